"""The kernels of a run, before they are bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from autojit.codegen.cuda.copies import access_bytes, copy_kernel, fill_kernel
from autojit.codegen.cuda.decision import decision_kernel
from autojit.codegen.cuda.report import report_kernel
from autojit.codegen.grid_text import GridText
from autojit.codegen.lowered import (
    Conditional,
    DeviceCopy,
    DeviceFill,
    DeviceRun,
    DeviceWork,
    Launch,
    Offset,
    Scratch,
    simple_work,
)
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
        is_chosen: it is in a body that may be left out.
    """

    kernel: Callable[[Sequence[int]], GridText]
    buffers: tuple[BufferArgument, ...]
    label: str
    code: int
    commits: bool
    nodes: tuple[Node, ...] = ()
    partials: Scratch | None = None
    is_chosen: bool = False

    @property
    def widest(self) -> GridText:
        """The kernel for the best of addresses."""
        return self.kernel([WIDEST_ACCESS_BYTES] * len(self.buffers))


@record(eq=False)
class Body:
    """Kernels of a run that it does only if a condition is set, or as long as it is.

    Args:
        first: the kernel in front that sets the condition.
        items: in order; the last one of a body that repeats sets the condition anew.
        repeats: as long as the condition is set.
    """

    first: Work
    items: tuple[Item, ...]
    repeats: bool


Item = Work | Body


def flat(items: Iterable[Item]) -> Iterator[Work]:
    """The kernels in order, each once."""
    for item in items:
        if isinstance(item, Body):
            yield item.first
            yield from flat(item.items)
        else:
            yield item


def with_report(items: Sequence[Item]) -> list[Item]:
    """The kernels of a run with the one that tells the host, behind the last that may report an error.

    What combines its partial results follows a kernel at once, so the report is behind that, too. It is behind all of
    a body in which errors are reported.
    """
    reporting = [place for place, item in enumerate(items) if any(work.widest.reports for work in flat([item]))]
    if not reporting:
        return list(items)
    behind = reporting[-1] + 1
    while behind < len(items) and _combines(items[behind - 1], items[behind]):
        behind += 1  # kernels with partial results in common follow each other
    return [*items[:behind], Work(partial(_same, report_kernel()), (), "report", 0, False), *items[behind:]]


def _combines(first: Item, then: Item) -> bool:
    return isinstance(first, Work) and isinstance(then, Work) and then.widest is first.widest.combine


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
        if work.widest.decides:  # it looks for errors itself: a condition that nobody sets would stay what it was
            found.append(False)
            combining = None
            continue
        places = [_home(argument, home) for argument in work.buffers]
        roles = [buffer.role for buffer in work.widest.buffers]
        reads = [p for p, role in zip(places, roles, strict=True) if role in ("reads", "updates")]
        is_guarded = work.commits or not unwritten.isdisjoint(reads)
        if work.widest is combining:  # of partial results that there are or not
            is_guarded = found[-1]
        combining = work.widest.combine
        if is_guarded or work.is_chosen:
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


def items_of(run: DeviceRun) -> list[Item]:
    """The kernels of a run in order; copies and fills are kernels too."""
    heeds = any(isinstance(each, Launch) and each.kernel.reports for each in simple_work(run.work))
    return list(_items(run.work, heeds=heeds, is_chosen=False))


def _items(work: Iterable[DeviceWork], *, heeds: bool, is_chosen: bool) -> Iterator[Item]:
    for item in work:
        if isinstance(item, Conditional):
            inner = list(_items(item.work, heeds=heeds, is_chosen=is_chosen or not item.repeats))
            if not inner:
                continue
            kernel = decision_kernel(item.is_negated, heeds)
            decision = Work(partial(_same, kernel), (item.condition,), "decide", 0, False)
            inner += [replace(decision)] if item.repeats else []
            yield Body(decision, tuple(inner), item.repeats)
        else:
            yield from (replace(each, is_chosen=is_chosen) for each in _simple(item))


def _simple(item: Launch | DeviceCopy | DeviceFill) -> Iterator[Work]:
    if isinstance(item, Launch):
        yield from _launched(item)
    elif item.size_bytes:
        widest = _widest(item.size_bytes, item.target)
        if isinstance(item, DeviceCopy):
            yield Work(partial(_copy, item.size_bytes, widest), (item.target, item.source), "copy", 0, item.commits)
        else:
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
