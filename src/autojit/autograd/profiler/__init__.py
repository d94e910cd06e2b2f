"""The profiler: where the time of a block of code goes, op by op, in eager mode and inside compiled steps."""

from autojit.autograd.profiler.event_list import EventList
from autojit.autograd.profiler.events import FunctionEvent, FunctionEventAvg, Interval, Kernel
from autojit.autograd.profiler.events import format_time as _format_time
from autojit.autograd.profiler.itt import emit_itt
from autojit.autograd.profiler.nvprof import load_nvprof
from autojit.autograd.profiler.profile import is_enabled as _is_profiler_enabled
from autojit.autograd.profiler.profile import kineto_available, profile, record_function
from autojit.autograd.profiler.ranges import emit_nvtx

__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "_format_time", "_is_profiler_enabled",
    "emit_itt", "emit_nvtx", "kineto_available", "load_nvprof", "profile", "record_function",
]  # fmt: skip
