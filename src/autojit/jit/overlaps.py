"""Arguments that share memory with what a step writes.

Of memory that tensors are known to share (one tensor given twice, a parameter as an argument) the step makes state
(`BeginsAgain`). What only NumPy knows to be shared (``from_numpy`` of two parts of one array) has no place in a graph:
a value written there would be another value's too. Such a call runs line by line (``Overlap``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autojit.core.memory_ranges import MemoryRanges, Range, range_of
from autojit.jit.line_by_line import Overlap
from autojit.jit.outcomes import BeginsAgain, Turned
from autojit.jit.outside_arrays import array_on
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.core.device_array import Array
    from autojit.jit.arguments import ArgumentLeaf
    from autojit.jit.step import CompiledStep


class Overlaps:
    """What a step writes, and whether arguments show it."""

    def __init__(self, step: CompiledStep) -> None:
        self.step = step
        arguments = step.capture.arguments
        self.writing = {w.index for w in step.effects.writes if w.what == "array"}
        self.given = [k for k, leaf in enumerate(arguments) if leaf.kind in ("tensor", "array")]
        self._bindings = -1
        self._written = self._read = MemoryRanges(())

    @property
    def written(self) -> MemoryRanges:
        """The addresses of the state that the step writes."""
        self._follow()
        return self._written

    def _follow(self) -> None:
        step = self.step
        bindings = int(step.segment.bindings[0])
        if self._bindings != bindings:
            self._bindings = bindings
            changed = step.capture.outside_arrays.changed
            self._written = MemoryRanges((*(e.array for e, _ in step.effects.written), *map(array_on, changed)))
            self._read = MemoryRanges(e.array for e in step.trace.state.values()) if self.writing else self._written

    def check(self, leaves: Sequence[Any]) -> BeginsAgain | None:
        """Look at a call's arguments: which are state of the step and must be bound, if any.

        Raises:
            Overlap, SharedWithArray: the step cannot serve the call.
        """
        step = self.step
        step.capture.outside_arrays.check(leaves)
        twins = {k for k, array in step.twins if leaves[k]._array is array}
        if not self.writing and not step.effects.written and not step.capture.outside_arrays.changed:
            return BeginsAgain(frozenset(twins)) if twins else None
        self._follow()
        arrays = {k: _array(leaves[k]) for k in self.given}
        ranges = {k: range_of(array) for k, array in arrays.items()}
        met = {k for k in self.given if (self._read if k in self.writing else self._written).meet(ranges[k])}
        pairs = [(k, j) for k in self.writing for j in self.given if j != k and _meet(ranges[k], ranges[j])]
        if not (met or pairs or twins or any(_is_special(arrays[k]) for k in self.writing)):
            return None
        return self._conflict(leaves, met, pairs, twins)

    def _conflict(
        self, leaves: Sequence[Any], met: set[int], pairs: Sequence[tuple[int, int]], twins: set[int]
    ) -> BeginsAgain:
        state = {id(e.array) for e in self.step.trace.state.values()}
        special = {k for k in self.writing if _is_special(_array(leaves[k]))}
        if any(id(_root(leaves[k])) not in state for k in met) or any(
            _root(leaves[k]) is not _root(leaves[j]) for k, j in pairs
        ):
            raise Overlap
        bound = met | special | twins | {k for pair in pairs for k in pair}
        if any(not isinstance(leaves[k], Tensor) for k in bound):
            raise Overlap
        return BeginsAgain(frozenset(bound))


def told_apart(
    made: Sequence[ArgumentLeaf], leaves: Sequence[Any], asked: Sequence[tuple[Tensor, Tensor | None]]
) -> list[tuple[int, Any]]:
    """Arguments whose identity Python has asked for, and the arrays of the tensors that they were found not to be.

    Raises:
        Turned: one is that tensor, or stood for a key (None): it must be in the capture itself.
    """
    found = []
    met: set[int] = set()
    for stand_in, other in asked:
        for k, leaf in enumerate(made):
            if leaf.kind == "tensor" and leaf.shell is stand_in:
                if other is None or leaves[k] is other:
                    met.add(k)
                else:
                    found.append((k, other._array))
    if met:
        raise Turned(BeginsAgain(frozenset(met)))
    return found


def _array(leaf: object) -> Any:
    return leaf._array if isinstance(leaf, Tensor) else leaf


def _root(leaf: object) -> Any:
    """The array of the memory that an argument shows, as far as its tensor knows."""
    return leaf._storage.array if isinstance(leaf, Tensor) and leaf._storage is not None else _array(leaf)


def _meet(a: Range, b: Range) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _is_special(array: Array) -> bool:
    """Whether writing to an array is not what writing to each of its elements is, or is not allowed."""
    if not array.flags.writeable:
        return True
    if array.flags.c_contiguous:
        return False
    reach = array.itemsize  # of what the inner axes show
    for step, n in sorted((abs(step), n) for step, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if step < reach:
            return bool(array.size)
        reach += step * (n - 1)
    return False
