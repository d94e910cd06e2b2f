"""Rows of a profile: one measured interval (``FunctionEvent``), and the sum of several (``FunctionEventAvg``).

All times are microseconds as floats; memory is in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple, Self

from autojit.core.errors import ArgumentError


def format_time(time_us: float) -> str:
    """A time with three decimals in the largest unit of which there is at least one.

    Example:
        >>> format_time(1500.0)
        '1.500ms'
    """
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3f}s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.3f}ms"
    return f"{time_us:.3f}us"


def format_share(time_us: float, total_us: float) -> str:
    """A part of a total in per cent; of nothing, only nothing is a part.

    Raises:
        ArgumentError: the total is 0 and the part is not.
    """
    if total_us == 0:
        if time_us != 0:
            raise ArgumentError("a part of a total of 0", {"part": f"{time_us} us"})
        return "NaN"
    return f"{100.0 * time_us / total_us:.2f}%"


def format_memory(size_bytes: int) -> str:
    """A size in the largest binary unit of which there is at least one.

    Example:
        >>> format_memory(-2048)
        '-2.00 Kb'
    """
    for unit, name in ((1 << 30, "Gb"), (1 << 20, "Mb"), (1 << 10, "Kb")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} b"


class Interval:
    """From ``start`` to ``end``, in microseconds since the profile began."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """The interval's length."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval({self.start}, {self.end})"


class Kernel(NamedTuple):
    """Work of a device that belongs to a row: its name, the device's number, how long it took (microseconds)."""

    name: str
    device: int
    duration: float


def _older(name: str) -> Any:
    return property(lambda row: float(getattr(row, name)), doc=f"``{name}`` under its older name.")


def _text_of(name: str) -> Any:
    return property(lambda row: format_time(getattr(row, name)))


def _without_children(name: str) -> Any:
    return property(lambda row: getattr(row, name) - sum(getattr(child, name) for child in row.cpu_children))


class Times:
    """Averages and texts of the times that both kinds of rows have."""

    count: int
    cpu_time_total: Any
    self_cpu_time_total: Any
    device_time_total: Any
    self_device_time_total: Any

    @property
    def cpu_time(self) -> float:
        """Time per call."""
        return 0.0 if self.count == 0 else float(self.cpu_time_total) / self.count

    @property
    def device_time(self) -> float:
        """Time per call on the device."""
        return 0.0 if self.count == 0 else float(self.device_time_total) / self.count

    cuda_time = _older("device_time")
    cuda_time_total = _older("device_time_total")
    self_cuda_time_total = _older("self_device_time_total")
    cpu_time_str = _text_of("cpu_time")
    cpu_time_total_str = _text_of("cpu_time_total")
    self_cpu_time_total_str = _text_of("self_cpu_time_total")
    device_time_str = _text_of("device_time")
    device_time_total_str = _text_of("device_time_total")
    self_device_time_total_str = _text_of("self_device_time_total")


@dataclass(eq=False)
class FunctionEvent(Times):
    """One measured call.

    Args:
        id: number of the row within its profile.
        name: what ran: an op's name, a node's, a user's label, a kernel.
        thread: number of the thread, from 1.
        start_us, end_us: when, in microseconds since the profile began.
        sequence_nr: of a forward op, the number its node in the history would get; of a node, that number; else -1.
        input_shapes: shapes of the operands, if they were asked for.
        stack: places in user code, innermost first: ``file.py(12): function``.
        scope: 0 for ops and kernels, 1 for nodes, 7 for users' labels.
        cpu_memory_usage: bytes of the arrays it made, its children's included.
        flops: floating-point operations, if they were asked for and the op is one that is counted.

    Example:
        >>> FunctionEvent(id=0, name="mul", thread=1, start_us=10, end_us=15).cpu_time_total
        5
    """

    id: int
    name: str
    thread: int
    start_us: InitVar[float]
    end_us: InitVar[float]
    fwd_thread: int | None = None
    input_shapes: Sequence[Any] = ()
    stack: Sequence[str] = ()
    scope: int = 0
    use_device: str | None = None
    cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    is_async: bool = False
    is_remote: bool = False
    sequence_nr: int = -1
    node_id: int = -1
    flops: int | None = None
    key: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    count: int = field(default=1, init=False)

    def __post_init__(self, start_us: float, end_us: float) -> None:
        self.time_range = Interval(start_us, end_us)
        self.key = self.key or self.name
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.kernels: list[Kernel] = []

    @property
    def cpu_interval(self) -> Interval:
        """``time_range`` under its older name."""
        return self.time_range

    @property
    def is_user_annotation(self) -> bool:
        """Whether ``record_function`` made the row."""
        return self.scope == USER_SCOPE

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add work of a device to the row."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Hang a row below this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say below which row this one hangs."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self) -> float:
        return self.time_range.elapsed_us()

    self_cpu_time_total = _without_children("cpu_time_total")
    self_device_time_total = _without_children("device_time_total")
    self_cpu_memory_usage = _without_children("cpu_memory_usage")
    self_device_memory_usage = _without_children("device_memory_usage")

    @property
    def device_time_total(self) -> float:
        return sum(kernel.duration for kernel in self.kernels)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"cpu_start={self.time_range.start} cpu_end={self.time_range.end} "
            f"cpu_children={[child.id for child in self.cpu_children]} cuda_time={self.device_time_str} "
            f"thread={self.thread} input_shapes={list(self.input_shapes)} cpu_memory_usage={self.cpu_memory_usage}>"
        )


USER_SCOPE = 7
NODE_SCOPE = 1

_SUMS = (
    "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage",
    "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip


class FunctionEventAvg(Times):
    """The sum of rows with one key; ``cpu_time`` and ``device_time`` are its averages.

    Example:
        >>> avg = FunctionEventAvg()
        >>> avg.add(FunctionEvent(id=0, name="mul", thread=1, start_us=10, end_us=15)).cpu_time
        5.0
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.is_async = False
        self.is_remote = False
        self.use_device: str | None = None
        self.cpu_time_total = 0.0
        self.device_time_total = 0.0
        self.self_cpu_time_total = 0.0
        self.self_device_time_total = 0.0
        self.cpu_memory_usage = 0
        self.device_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.self_device_memory_usage = 0
        self.input_shapes: Sequence[Any] = ()
        self.stack: Sequence[str] = ()
        self.scope = 0
        self.flops = 0

    def add(self, other: FunctionEvent | FunctionEventAvg) -> Self:
        """Add a row or a sum of rows with the same key; returns itself.

        Raises:
            ArgumentError: the keys differ.
        """
        if self.key is None:
            self.key, self.scope, self.stack = other.key, other.scope, other.stack
            self.input_shapes, self.use_device = other.input_shapes, other.use_device
            self.is_async, self.is_remote = other.is_async, other.is_remote
        elif other.key != self.key:
            raise ArgumentError("a sum of rows has one key", {"key": self.key, "added": other.key})
        return self._accumulate(other)

    def _accumulate(self, other: FunctionEvent | FunctionEventAvg) -> Self:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    def __iadd__(self, other: FunctionEvent | FunctionEventAvg) -> Self:
        return self.add(other)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} self_cuda_time={self.self_device_time_total_str} "
            f"cuda_time={self.device_time_str} input_shapes={list(self.input_shapes)} "
            f"cpu_memory_usage={self.cpu_memory_usage} cuda_memory_usage={self.device_memory_usage}>"
        )


def total_of(events: Sequence[FunctionEvent | FunctionEventAvg]) -> FunctionEventAvg:
    """The sum of rows whatever their keys, under the key ``Total``."""
    total = FunctionEventAvg()
    total.key = "Total"
    for event in events:
        total._accumulate(event)
    return total
