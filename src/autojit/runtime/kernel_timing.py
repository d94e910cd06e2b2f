"""Watching: a compiled step run kernel by kernel, while somebody in this thread wants to know what takes how long.

The plan runner walks a list of entries. Here each entry becomes a plan of its own for the time of one call, so the
same code runs on the same memory in the same order, with a stop after every kernel.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from autojit.codegen.cpu.plan.records import Plan, PlanEntry
from autojit.codegen.lowered import LoweredStep
from autojit.core.program_parts import FORWARD, Part
from autojit.core.source import UNKNOWN, SourceLocation
from autojit.ir.graph import Node

_WORDS = len(Plan.fields)


class KernelRow(NamedTuple):
    """What a kernel is: its name (fused ops and lines), the ops, the places in user code they come from."""

    name: str
    ops: tuple[str, ...]
    places: tuple[SourceLocation, ...]


class KernelObserver(Protocol):
    """Wants to know of native calls and of the kernels in them."""

    def call(self, name: str, kind: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Make a native call by calling the function."""
        ...

    def kernel(self, row: KernelRow, function: Callable[..., Any], *arguments: Any) -> None:
        """Run the kernel by calling the function."""
        ...


class Watching(threading.local):
    """Who watches this thread; None while steps run at full speed."""

    observer: KernelObserver | None = None


watching = Watching()


class RunApart(Protocol):
    """What a device does as one entry, which can be done launch by launch."""

    def apart(self) -> Iterator[tuple[str, Sequence[Node]]]:
        """Let the entry be one launch after another, each with its name and what it computes."""
        ...


Apart = Callable[[int], RunApart | None]
"""The run of a device whose context is at an address; None: the entry is the host's."""


def run_entries(
    words: Any,
    native: Callable[[int], None],
    table: int,
    rows: Sequence[KernelRow],
    observer: KernelObserver,
    apart: Apart = lambda context: None,
) -> None:
    """Run a plan entry by entry; after an entry that reports an error the rest is left out, as in the plan runner.

    Args:
        words: the table with the plan's address in front; nobody else uses it meanwhile.
        native: ``aj_step``.
        rows: one per entry.
        apart: finds what devices do, whose launches have rows of their own.
    """
    plan = words[0]
    whole = (ctypes.c_int64 * _WORDS).from_address(plan)
    part = (ctypes.c_int64 * _WORDS)(*whole)
    error = ctypes.c_int64.from_address(whole[Plan.error.place])
    part[Plan.n_entries.place] = 1

    def one_by_one() -> None:
        for place, row in enumerate(rows):
            part[Plan.entries.place] = whole[Plan.entries.place] + PlanEntry.size_bytes * place
            part[Plan.n_stoppable.place] = int(place < whole[Plan.n_stoppable.place])
            entry = (ctypes.c_int64 * len(PlanEntry.fields)).from_address(part[Plan.entries.place])
            run = apart(entry[PlanEntry.context.place])
            for each in (row,) if run is None else (launch_row(*launch) for launch in run.apart()):
                observer.kernel(each, native, table)
                part[Plan.n_patches.place] = 0  # pointers are patched once, before the first entry
                if error.value:
                    break
            if error.value:
                break

    words[0] = ctypes.addressof(part)
    try:
        observer.call(f"native call of {len(rows)} kernels", "native_call", one_by_one)
    finally:
        words[0] = plan


def kernel_rows(lowered: LoweredStep) -> list[KernelRow]:
    """A row for every entry of the plan, in order."""
    found = []
    for entry, nodes in zip(lowered.entries, lowered.origins, strict=True):
        if entry.chunks:
            found.append(_row(entry.label, nodes))
    return found


def entry_name(label: str, nodes: Sequence[Node]) -> str:
    """A kernel as users know it: what it computes, the lines and the modules it comes from."""
    return _row(label, nodes).name.removeprefix("kernel ")


def _row(label: str, nodes: Sequence[Node]) -> KernelRow:
    ops = tuple(dict.fromkeys(node.op.name for node in nodes))
    sources = dict.fromkeys(node.source for node in nodes)  # nodes share them, and a line takes a while to be found
    places = {(p.file, p.line): p for p in sources if p is not UNKNOWN}
    ordered = tuple(places[key] for key in sorted(places))
    is_telling = not ops or label.startswith(("combine", "copy", "sum slices", "matmul "))
    name = label if is_telling else "+".join(ops)
    return KernelRow(_named(name, ordered, nodes), ops, ordered)


def _named(name: str, places: Sequence[SourceLocation], nodes: Sequence[Node]) -> str:
    found = "; ".join(filter(None, (shown_lines(places), shown_parts(node.source.part for node in nodes))))
    return f"kernel {name} ({found})" if found else f"kernel {name}"


def launch_row(label: str, nodes: Sequence[Node]) -> KernelRow:
    """The row of a launch of a device, which may do what several kernels of the schedule are."""
    row = _row(label, nodes)
    return row._replace(name=_named(label, row.places, nodes))


def shown_lines(places: Iterable[SourceLocation]) -> str:
    """Places as short text: ``train.py:12,14 model.py:7``.

    Example:
        >>> shown_lines([])
        ''
    """
    files: dict[str, list[int]] = {}
    for place in places:
        lines = files.setdefault(os.path.basename(place.file), [])
        if place.line not in lines:
            lines.append(place.line)
    return " ".join(f"{file}:{','.join(map(str, lines))}" for file, lines in files.items())


def shown_parts(parts: Iterable[Part]) -> str:
    """Modules and phases as short text: where there are several, what their paths have in common.

    Example:
        >>> shown_parts([])
        ''
    """
    found = list(dict.fromkeys(parts))
    modules = list(dict.fromkeys(part.module for part in found))
    paths = [module.split(".") for module in modules]
    common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))]
    module = ".".join(common) or " ".join(filter(None, modules[:2])) + (" ..." if len(modules) > 2 else "")
    phases = {part.phase for part in found}
    return " ".join(filter(None, (module.strip(), phases.pop() if len(phases) == 1 and FORWARD not in phases else "")))
