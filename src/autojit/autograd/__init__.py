"""Automatic differentiation: backward and grad, gradient modes, custom functions, checks."""

from typing import TYPE_CHECKING

from autojit.autograd.anomaly import detect_anomaly, set_detect_anomaly
from autojit.autograd.derivatives import _calculate_shape, backward, grad
from autojit.autograd.grad_mode import _force_original_view_tracking as _force_original_view_tracking
from autojit.autograd.grad_mode import _unsafe_preserve_version_counter as _unsafe_preserve_version_counter
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
from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.core.lazy_modules import provide as _provide
from autojit.history.saved import SavedTensor

if TYPE_CHECKING:
    from autojit.autograd import forward_ad, functional, graph, profiler
    from autojit.autograd.function import Function
    from autojit.autograd.variable import Variable
    from autojit.gradcheck import GradcheckError, gradcheck, gradgradcheck

__getattr__ = _LazyNames(
    __name__,
    {
        "Function": "autojit.autograd.function",
        "Variable": "autojit.autograd.variable",
        "GradcheckError": "autojit.gradcheck",
        "gradcheck": "autojit.gradcheck",
        "gradgradcheck": "autojit.gradcheck",
        "_profiler_enabled": "autojit.autograd.profiler:_is_profiler_enabled",
        "kineto_available": "autojit.autograd.profiler",
    },
    modules="_functions forward_ad functional graph profiler profiler_util",
)
_provide("autojit.autograd", {"anomaly_mode": "anomaly", "gradcheck": "autojit.gradcheck"})

__all__ = [
    "Function", "GradcheckError", "SavedTensor", "Variable", "_calculate_shape", "backward", "detect_anomaly",
    "enable_grad", "forward_ad", "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode",
    "is_grad_enabled", "is_multithreading_enabled", "is_view_replay_enabled", "no_grad", "profiler",
    "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip
