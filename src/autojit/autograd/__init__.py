"""Automatic differentiation: backward and grad, gradient modes, custom functions, checks."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from autojit.autograd.anomaly import detect_anomaly, set_detect_anomaly
from autojit.autograd.derivatives import _calculate_shape, backward, grad
from autojit.autograd.grad_mode import (
    _force_original_view_tracking as _force_original_view_tracking,
)
from autojit.autograd.grad_mode import (
    _unsafe_preserve_version_counter as _unsafe_preserve_version_counter,
)
from autojit.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from autojit.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from autojit.core.module_paths import provide as _provide
from autojit.core.undivided import undivided as _undivided
from autojit.tensor.saved import SavedTensor

if TYPE_CHECKING:
    from autojit.autograd import forward_ad, functional, graph, profiler
    from autojit.autograd.function import Function
    from autojit.autograd.variable import Variable

_LAZY_MODULES = frozenset({"_functions", "forward_ad", "functional", "graph", "profiler", "profiler_util"})
_LAZY_NAMES = {"Function": "function", "Variable": "variable"}
_OF_PROFILER = {"_profiler_enabled": "_is_profiler_enabled", "kineto_available": "kineto_available"}


_provide("autojit.autograd", {"anomaly_mode": "autojit.autograd.anomaly"})


def __getattr__(name: str) -> Any:
    """Import custom functions, saved-tensor hooks, the functional forms, forward mode, the profiler on first use."""
    with _undivided:
        return _found(name)


def _found(name: str) -> Any:
    if name in _LAZY_NAMES:
        found = globals()[name] = getattr(_import_module(f"autojit.autograd.{_LAZY_NAMES[name]}"), name)
        return found
    if name in _LAZY_MODULES:
        return _import_module(f"autojit.autograd.{name}")
    if name in _OF_PROFILER:
        return getattr(_import_module("autojit.autograd.profiler"), _OF_PROFILER[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Function", "GradcheckError", "SavedTensor", "Variable", "_calculate_shape", "backward", "detect_anomaly",
    "enable_grad", "forward_ad", "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode",
    "is_grad_enabled", "is_multithreading_enabled", "is_view_replay_enabled", "no_grad", "profiler",
    "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
