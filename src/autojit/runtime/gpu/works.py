"""The kernels of a run, before they are bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from autojit.codegen.cuda.copies import access_bytes, copy_kernel, fill_kernel
from autojit.codegen.cuda.report import report_kernel
from autojit.codegen.grid_text import GridText
from autojit.codegen.lowered import DeviceCopy, DeviceFill, DeviceRun, Launch, Offset, Scratch
from autojit.core.records import record
from autojit.core.sizes import is_symbolic
from autojit.ir.graph import Node, Value
from autojit.runtime.gpu.moving import WIDEST_ACCESS_BYTES

BufferArgument = Value | Offset | Scratch


@record(eq=False)
class Work:
    """A kernel of a run before it is bound.

    Args:
        kernel: gives it for buffers whose addresses are multiples of these numbers.
        buffers: what it takes.
        label: its name for users.
        code: of its reports.
        commits: it writes what lasts, so it does nothing once an error was reported.
        nodes: that it computes.
        partials: where its partial results are; None: in memory of its own.
    """

    kernel: Callable[[Sequence[int]], GridText]
    buffers: tuple[BufferArgument, ...]
    label: str
    code: int
    commits: bool
    nodes: tuple[Node, ...] = ()
    partials: Scratch | None = None

    @property
    def widest(self) -> GridText:
        """The kernel for the best of addresses."""
        return self.kernel([WIDEST_ACCESS_BYTES] * len(self.buffers))


def with_report(works: Sequence[Work]) -> list[Work]:
    """The kernels of a run with the one that tells the host, behind the last that may report an error.

    What combines its partial results follows a kernel at once, so the report is behind that, too.
    """
    reporting = [place for place, work in enumerate(works) if work.widest.reports]
    if not reporting:
        return list(works)
    behind = reporting[-1] + 1
    while behind < len(works) and works[behind].widest is works[behind - 1].widest.combine:
        behind += 1  # kernels with partial results in common follow each other
    return [*works[:behind], Work(partial(_same, report_kernel()), (), "report", 0, False), *works[behind:]]


def guarded(works: Sequence[Work], home: Callable[[Value], Value]) -> list[bool]:
    """Which kernels do nothing once an error was reported: those that commit, and who reads what such kernels write.

    There is nothing where a kernel has written nothing.

    Args:
        works: the kernels of a run, in order.
        home: gives the value whose memory a value has.
    """
    if not any(work.widest.reports for work in works):
        return [False] * len(works)
    unwritten: set[Value | Scratch] = set()
    found: list[bool] = []
    combining: GridText | None = None
    for work in works:
        places = [_home(argument, home) for argument in work.buffers]
        roles = [buffer.role for buffer in work.widest.buffers]
        reads = [p for p, role in zip(places, roles, strict=True) if role in ("reads", "updates")]
        is_guarded = work.commits or not unwritten.isdisjoint(reads)
        if work.widest is combining:  # of partial results that there are or not
            is_guarded = found[-1]
        combining = work.widest.combine
        if is_guarded:
            unwritten.update(p for p, r in zip(places, roles, strict=True) if r in ("writes", "updates"))
        found.append(is_guarded)
    return found


def base_of(argument: BufferArgument) -> Value | Scratch:
    """What a buffer is, or is a part of."""
    return argument.value if isinstance(argument, Offset) else argument


def offset_of(argument: BufferArgument) -> int:
    """The bytes between the beginning of what a buffer is a part of and its own."""
    return argument.offset_bytes if isinstance(argument, Offset) else 0


def size_of(argument: BufferArgument) -> int:
    """The bytes of a buffer, from its address on."""
    if isinstance(argument, Scratch):
        return argument.size_bytes
    if not isinstance(argument, Offset):
        return argument.type.size_bytes
    return size_of(argument.value) - argument.offset_bytes if argument.size_bytes is None else argument.size_bytes


def _home(argument: BufferArgument, home: Callable[[Value], Value]) -> Value | Scratch:
    base = base_of(argument)
    return base if isinstance(base, Scratch) else home(base)


def works_of(run: DeviceRun) -> Iterator[Work]:
    """The kernels of a run in order; copies and fills are kernels too."""
    for item in run.work:
        if isinstance(item, Launch):
            yield from _launched(item)
        elif not item.size_bytes:
            continue
        elif isinstance(item, DeviceCopy):
            widest = _widest(item.size_bytes, item.target)
            yield Work(partial(_copy, item.size_bytes, widest), (item.target, item.source), "copy", 0, item.commits)
        else:
            assert isinstance(item, DeviceFill)
            widest = _widest(item.size_bytes, item.target)
            yield Work(partial(_fill, item.size_bytes, widest), (item.target,), "fill", 0, item.commits)


def _launched(launch: Launch) -> Iterator[Work]:
    kernel: GridText | None = launch.kernel
    while kernel is not None:
        if all(kernel.blocks):
            same = partial(_same, kernel)
            told = launch.buffers, launch.label, launch.code, launch.commits, launch.nodes, launch.partials
            yield Work(same, *told)
        kernel = kernel.combine


def _same(kernel: GridText, alignments: Sequence[int]) -> GridText:
    return kernel


def _widest(size_bytes: int, target: BufferArgument) -> int:
    """The widest access of a copy: of an open size an element, so that its grid does not depend on addresses."""
    if not is_symbolic(size_bytes):
        return WIDEST_ACCESS_BYTES
    base = base_of(target)
    return 1 if isinstance(base, Scratch) else base.type.dtype.numpy.itemsize


def _copy(size_bytes: int, widest: int, alignments: Sequence[int]) -> GridText:
    return copy_kernel(size_bytes, access_bytes(size_bytes, widest, *alignments))


def _fill(size_bytes: int, widest: int, alignments: Sequence[int]) -> GridText:
    return fill_kernel(size_bytes, access_bytes(size_bytes, widest, *alignments))
