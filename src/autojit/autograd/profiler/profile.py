"""``profile``: measure a block of code; ``record_function``: label a part of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from autojit.autograd.profiler.block import ObservedBlock
from autojit.autograd.profiler.event_list import EventList
from autojit.autograd.profiler.observer import NO_NUMBER, USER, Observer
from autojit.autograd.profiler.recorder import Options, Recorder
from autojit.core.device import is_available
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.user_warnings import warn
from autojit.core.wrapping import wraps
from autojit.cuda.driver import EventClock, has_device
from autojit.tensor.state import state

P = ParamSpec("P")
T = TypeVar("T")


def _of_events(method: Callable[Concatenate[EventList, P], T]) -> Callable[Concatenate[profile, P], T]:
    """A method of the rows as one of the block that has measured them."""

    def forward(self: profile, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._finished(), *args, **kwargs)

    functools.update_wrapper(forward, method)
    return forward


class profile(ObservedBlock):
    """Context manager that measures what this thread does inside: ops, derivatives, compiled steps and their kernels.

    Args:
        enabled: False makes the block do nothing.
        use_cuda: also take times on the CUDA device's clock; without a device, or with an
            emulated one, this warns and measures the CPU alone; kernels have their rows all the same.
        use_device: "cuda", the newer spelling of ``use_cuda``.
        record_shapes: keep the shapes of operands.
        with_flops: count floating-point operations of products and arithmetic.
        profile_memory: count the bytes of arrays that ops make.
        with_stack: keep the places in user code; kernels of compiled steps always have theirs.
        with_modules, use_kineto: accepted for torch's sake; there are no scripted modules and one way to measure.
        use_cpu: False is an error without a device: nothing would be measured.

    Raises:
        UsageError: at entry, when a profiler runs in this thread already or a step is being captured.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(3.0, requires_grad=True)
        >>> with aj.autograd.profiler.profile() as prof:
        ...     y = x * 2
        ...     y.backward()
        >>> {"aten::mul", "GraphRoot", "MulBackward0"} <= {event.name for event in prof.function_events}
        True
    """

    what = "profile"

    def __init__(
        self,
        enabled: bool = True,
        use_cuda: bool = False,
        *,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
    ) -> None:
        if use_device not in (None, "cpu", "cuda"):
            raise ArgumentError(f"profile: unknown device {use_device!r}", {"devices": "cpu, cuda"})
        self.enabled = bool(enabled)
        self.use_cuda = bool(use_cuda) or use_device == "cuda"
        if self.use_cuda and self.enabled and not has_device():
            what = "an emulated device has no times" if is_available("cuda") else "CUDA is not available"
            warn(f"{what}, disabling CUDA profiling", UserWarning)
            self.use_cuda = False
        if not use_cpu and not self.use_cuda:
            raise ArgumentError("profile: use_cpu=False leaves nothing to measure", {}, "pass use_cuda=True as well")
        self.options = Options(record_shapes, with_stack, profile_memory, with_flops)
        self.use_device = "cuda" if self.use_cuda else None
        self.function_events: EventList | None = None

    def _open(self) -> Recorder:
        self._recorder = Recorder(self.options, EventClock() if self.use_cuda else None)
        return self._recorder

    def _close(self) -> None:
        self.function_events = self._recorder.events()
        del self._recorder

    def _finished(self) -> EventList:
        if self.function_events is None:
            raise UsageError(
                "Profiler didn't finish running",
                {"enabled": self.enabled},
                "ask after the block has ended, and measure with enabled=True",
            )
        return self.function_events

    def __repr__(self) -> str:
        if self.function_events is None:
            return "<unfinished autojit.autograd.profile>"
        return repr(self.function_events)

    def __str__(self) -> str:
        return repr(self) if self.function_events is None else self.table()

    table = _of_events(EventList.table)
    export_chrome_trace = _of_events(EventList.export_chrome_trace)
    export_stacks = _of_events(EventList.export_stacks)
    total_average = _of_events(EventList.total_average)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The sums of rows with the same name: see ``EventList.key_averages``."""
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all rows, each counted once (microseconds)."""
        return self._finished().self_cpu_time_total


class record_function:
    """Context manager and decorator: what runs inside gets a row of its own with this name.

    Without an open profile it does nothing; while a step is captured neither.

    Args:
        name: the row's name.
        args: further text, shown after the name.

    Example:
        >>> import autojit as aj
        >>> with aj.autograd.profiler.profile() as prof:
        ...     with aj.autograd.profiler.record_function("twice"):
        ...         y = aj.ones(2) + aj.ones(2)
        >>> prof.function_events[0].name
        'twice'
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._observers: list[Observer | None] = []  # a block may be open several times (recursion)

    def __enter__(self) -> Self:
        observer = None if state.trace is not None else state.observer
        self._observers.append(observer)
        if observer is not None:
            label = self.name if self.args is None else f"{self.name}({self.args})"
            observer.sink.push(label, USER, NO_NUMBER)
        return self

    def __exit__(self, *exception: object) -> None:
        observer = self._observers.pop()
        if observer is not None and state.observer is observer:
            observer.sink.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function: every call gets a row."""

        @wraps(function)
        def labelled(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return labelled


def kineto_available() -> bool:
    """Whether torch's Kineto library measures: never, the one way to measure is autojit's own."""
    return False


def is_enabled() -> bool:
    """Whether a profile or ``emit_nvtx`` block is open in this thread."""
    return state.observer is not None
