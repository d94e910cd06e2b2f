"""How often the native entries of a jitted function ran, and whether this thread is inside one.

No entry is kept alive by being counted: one that its step no longer needs goes when the last call of it has ended,
and its count stays. Written under the function's lock, read without: what is read is replaced, never changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from autojit.runtime.gate import Gate

if TYPE_CHECKING:
    from autojit.jit.native import NativeStep
    from autojit.jit.step import CompiledStep
    from autojit.runtime.entry import Entry


class _Row(NamedTuple):
    """One native entry; whoever is inside it keeps it alive."""

    entry: weakref.ref[Entry]
    step: weakref.ref[CompiledStep]
    gate: Gate
    calls: Callable[[], int]


class NativeCalls:
    """The native entries of one jitted function."""

    def __init__(self) -> None:
        self._known: tuple[int, tuple[_Row, ...]] = 0, ()  # calls of entries that are gone, the others

    def add(self, native: NativeStep) -> None:
        """A step has got a native entry."""
        before, rows = self._known
        kept: list[_Row] = []
        for row in rows:
            if row.entry() is not None:
                kept.append(row)
                continue
            calls = row.calls()
            before += calls
            step = row.step()
            if step is not None:
                step.earlier_calls += calls
        step = native.step
        kept.append(_Row(weakref.ref(native.entry), weakref.ref(step), step.segment.gate, native.entry.calls))
        self._known = before, tuple(kept)

    def total(self) -> int:
        """Native calls of the function."""
        before, rows = self._known
        return before + sum(row.calls() for row in rows)

    def of(self, step: CompiledStep) -> int:
        """Native calls of one step."""
        return step.earlier_calls + sum(row.calls() for row in self._known[1] if row.step() is step)

    def is_inside(self) -> bool:
        """Whether the calling thread is in a native call of the function."""
        return any(row.gate.is_mine() for row in self._known[1] if row.entry() is not None)


def linked(before: Sequence[NativeStep], now: tuple[NativeStep, ...], are_alone: bool) -> tuple[NativeStep, ...]:
    """The steps of a function that ran last: a call that is not for one of them is tried by the others, natively."""
    able = [] if are_alone else [native.entry for native in now if not native.is_layered]
    for native in before:
        if native not in now:
            native.entry.set_others(())
    for native in now:
        native.entry.set_others([] if native.is_layered else [entry for entry in able if entry is not native.entry])  # type: ignore[misc]
    return now
