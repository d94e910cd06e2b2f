"""Automatic differentiation: backward and grad, gradient modes, custom functions, checks."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from autojit.autograd import graph
from autojit.autograd.anomaly import detect_anomaly, set_detect_anomaly
from autojit.autograd.derivatives import backward, grad
from autojit.autograd.function import Function
from autojit.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from autojit.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from autojit.autograd.variable import Variable
from autojit.tensor.saved import SavedTensor

if TYPE_CHECKING:
    from autojit.autograd import forward_ad, functional, profiler

_LAZY_MODULES = frozenset({"forward_ad", "functional", "profiler", "profiler_util"})


def __getattr__(name: str) -> Any:
    """Import the functional forms, forward mode and the profiler when they are first used."""
    if name in _LAZY_MODULES:
        return _import_module(f"autojit.autograd.{name}")
    if name == "_profiler_enabled":
        return _import_module("autojit.autograd.profiler")._is_profiler_enabled
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Function", "GradcheckError", "SavedTensor", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad",
    "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled",
    "is_multithreading_enabled", "no_grad", "profiler", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip
