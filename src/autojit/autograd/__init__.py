"""Automatic differentiation: backward and grad, gradient modes, custom functions, checks."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from autojit.autograd import graph
from autojit.autograd.anomaly import detect_anomaly, set_detect_anomaly
from autojit.autograd.derivatives import backward, grad
from autojit.autograd.function import Function
from autojit.autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from autojit.tensor import Tensor

if TYPE_CHECKING:
    from autojit.autograd import functional
    from autojit.autograd.finite_differences import GradcheckError, gradcheck, gradgradcheck

Variable = Tensor


def __getattr__(name: str) -> Any:
    """Import the checks and the functional forms when they are first used."""
    if name == "functional":
        return _import_module("autojit.autograd.functional")
    if name in ("GradcheckError", "gradcheck", "gradgradcheck"):
        checks = _import_module("autojit.autograd.finite_differences")
        globals().update({n: getattr(checks, n) for n in ("GradcheckError", "gradcheck", "gradgradcheck")})
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad",
    "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled", "no_grad", "set_detect_anomaly",
    "set_grad_enabled",
]  # fmt: skip
