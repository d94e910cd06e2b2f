"""Automatic differentiation: backward and grad, gradient modes, custom functions, checks."""

from autojit.autograd import functional, graph
from autojit.autograd.anomaly import detect_anomaly, set_detect_anomaly
from autojit.autograd.derivatives import backward, grad
from autojit.autograd.function import Function
from autojit.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from autojit.autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from autojit.tensor import Tensor

Variable = Tensor

__all__ = [
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad",
    "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled", "no_grad", "set_detect_anomaly",
    "set_grad_enabled",
]  # fmt: skip
