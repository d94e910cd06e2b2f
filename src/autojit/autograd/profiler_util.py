"""The profiler's rows and lists under the module name that torch gives them."""

from __future__ import annotations

from autojit.autograd.profiler.event_list import EventList
from autojit.autograd.profiler.events import FunctionEvent, FunctionEventAvg, Interval, Kernel
from autojit.autograd.profiler.events import Times as FormattedTimesMixin
from autojit.autograd.profiler.events import format_memory as _format_memory
from autojit.autograd.profiler.events import format_share as _format_time_share
from autojit.autograd.profiler.events import format_time as _format_time

__all__ = [
    "EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "_format_memory",
    "_format_time", "_format_time_share",
]  # fmt: skip
