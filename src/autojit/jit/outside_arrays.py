"""Arrays and buffers from outside that a step's function looks at or changes by Python, and whose memory tensors show.

What the function reads in one is a constant of its steps, guarded by what the array holds before a call; what it
assigns to one is assigned after the call. Neither is what eager mode does where the step changes, or reads, a tensor on
the same memory: such calls run line by line. Whether any do depends on addresses, which each call looks at; steps
of functions that meet no such array look at nothing.
"""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.memory_ranges import MemoryRanges, Range, range_of
from autojit.core.wrapping import own
from autojit.jit.guards import Guard
from autojit.jit.held_contents import refill
from autojit.jit.line_by_line import SharedWithArray
from autojit.jit.places import is_a
from autojit.tensor.tensor import Tensor

if TYPE_CHECKING:
    from autojit.jit.arguments import ArgumentLeaf
    from autojit.jit.effects import Effects
    from autojit.jit.observer import Observer
    from autojit.jit.trace import Trace

BUFFERS = (np.ndarray, array, bytearray, memoryview)
_OF_LIBRARIES = (mmap.mmap, ctypes.Array)  # read by functions of theirs
_FORM = frozenset(("base", "dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides"))
_SHOWING = frozenset(("T", "mT", "real", "imag", "base", "data", "obj", "flat", "ctypes", "_arr"))


def attribute(observer: Observer, obj: object, name: str) -> Any:
    """``obj.name`` of a container; what shows the memory of an array from outside is such an array, too."""
    value = getattr(obj, name)
    if name in _FORM and is_a(obj, np.ndarray) and id(obj) in observer.outside:
        if name in ("base", "flags", "strides"):
            observer.mean(obj)  # equal arrays may have others
        read: Callable[[], Any] = (lambda: obj.flags.num) if name == "flags" else lambda: getattr(obj, name)
        observer.note(obj, name, f"{observer.name_of(obj)}.{name}", read, read())
    if name in _SHOWING and is_a(obj, np.ndarray | memoryview) and id(obj) in observer.outside:
        if is_a(value, BUFFERS):
            return observer.enter(value, f"{observer.name_of(obj)}.{name}")
        observer.contents.whole(obj)
    return value


class ArraysMet:
    """What a capture has met, for ``OutsideArrays``: its observer, and the leaves of the call at hand."""

    def __init__(self, observer: Observer, leaves: Sequence[Any]) -> None:
        self.observer = observer
        self.leaves = leaves

    def read(self) -> list[Any]:
        """The buffers whose contents the function has looked at."""
        outside = tuple(self.observer.outside.values())
        return [
            x for x in outside if (is_a(x, BUFFERS) and self.observer.contents.is_whole(x)) or is_a(x, _OF_LIBRARIES)
        ]

    def changed(self) -> list[Any]:
        """The buffers that are changed after every run."""
        found: dict[int, Any] = {}
        for call in self.observer.deferred:
            function: Any = call.function
            is_refill = type(function) is partial and function.func is refill
            changed = function.args[0] if is_refill else own(function, "__self__", None)
            if is_a(changed, BUFFERS):
                found[id(changed)] = changed
        return list(found.values())


class OutsideArrays:
    """Those of one capture: which it reads and changes, and the memory of its tensors that they must not have."""

    def __init__(
        self, met: ArraysMet | None, trace: Trace, effects: Effects, arguments: Sequence[ArgumentLeaf]
    ) -> None:
        self.trace, self.effects = trace, effects
        self.read: list[Any] = [] if met is None else met.read()
        self.changed: list[Any] = [] if met is None else met.changed()
        self.names = {} if met is None else {id(x): met.observer.name_of(x) for x in (*self.read, *self.changed)}
        self._given = {k: leaf for k, leaf in enumerate(arguments) if leaf.kind in ("tensor", "array")}
        self._writing = [w.index for w in effects.writes if w.what == "array"]
        self._adding = [w.index for w in effects.writes if w.what == "grad"]
        self._known: dict[bool, tuple[list[Any], MemoryRanges]] = {}
        self.ranges_changed = list(map(_range, self.changed))  # native entries look for them among arguments
        if self and met is not None:
            self._check_call(met.leaves)

    def __bool__(self) -> bool:
        return bool(self.read or self.changed)

    def guards(self) -> list[Guard]:
        """Guards of later calls, natively run ones among them; none where there is nothing to look at."""
        if not self or not (self.changed or any(True for _ in self._written())):
            return []
        return [Guard("memory that NumPy arrays share with tensors", self._is_other, None)]

    def check(self, leaves: Sequence[Any]) -> None:
        """Look at the memory of a call.

        Raises:
            SharedWithArray: the step does not do with it what eager mode does.
        """
        if not self:
            return
        name = self._shared_with_state()
        if name is None:
            name = next((self.names[id(x)] for x, _ in self._shared_with(leaves)), None)
        if name is not None:
            raise SharedWithArray(name)

    def _check_call(self, leaves: Sequence[Any]) -> None:
        """``check`` of the call that is captured; it is known then which other calls would be given up."""
        pairs: list[tuple[Any, Callable[[Sequence[Any]], Any]]] = []
        for x, is_read in self._buffers():
            for owner, shown in self._written() if is_read else self._shown():
                if _meet(_range(x), range_of(shown)):
                    pairs.append((x, partial(_present, owner, shown)))
        pairs += [(x, partial(_of_leaves, k)) for x, k in self._shared_with(leaves)]
        if pairs:
            name = self.names[id(pairs[0][0])]
            reason = SharedWithArray(name)
            reason.asked = _StillShared(name, pairs)
            raise reason

    def _buffers(self) -> Iterator[tuple[Any, bool]]:
        """The buffers, and whether they are read: then what is written counts, else all that the step shows."""
        yield from ((x, True) for x in self.read)
        yield from ((x, False) for x in self.changed)

    def _written(self) -> Iterator[tuple[Tensor | None, Any]]:
        """The state that the step changes: (a tensor that shows it, its array)."""
        gradients = self.effects.gradients.replaced
        replaced = {id(grad.state) for grad in gradients}
        yield from ((e.owner, e.array) for e, _ in self.effects.written if id(e) not in replaced)
        for grad in gradients:
            if grad.is_changed and grad.leaf._grad is not None:
                yield grad.leaf._grad, grad.leaf._grad._array

    def _shown(self) -> Iterator[tuple[Tensor | None, Any]]:
        """The state that the step reads or changes."""
        yield from ((e.owner, e.array) for e in self.trace.state.values())

    def _ranges(self, is_read: bool) -> MemoryRanges:
        arrays = [shown for _, shown in (self._written() if is_read else self._shown())]
        known = self._known.get(is_read)
        if known is None or len(known[0]) != len(arrays) or not all(map(is_, known[0], arrays)):
            known = self._known[is_read] = arrays, MemoryRanges(arrays)
        return known[1]

    def _is_other(self) -> str | None:
        """The name of a buffer that has memory in common with the state, or has moved; None without one."""
        moved = (x for x, known in zip(self.changed, self.ranges_changed, strict=True) if _range(x) != known)
        return next((self.names[id(x)] for x in moved), None) or self._shared_with_state()

    def _shared_with_state(self) -> str | None:
        """The name of a buffer that has memory in common with the state, or None."""
        for x, is_read in self._buffers():
            if self._ranges(is_read).meet(_range(x)):
                return self.names[id(x)]
        return None

    def _shared_with(self, leaves: Sequence[Any]) -> Iterator[tuple[Any, int]]:
        """The buffers that have memory in common with arguments: (buffer, argument)."""
        for x, is_read in self._buffers():
            mine = _range(x)
            for k in self._writing if is_read else self._given:
                if _meet(mine, range_of(_array(leaves[k]))):
                    yield x, k
            for k in self._adding:
                grad = leaves[k]._grad
                if is_read and grad is not None and _meet(mine, range_of(grad._array)):
                    yield x, k


class _StillShared(NamedTuple):
    """``Asking``: the calls in which an array has memory in common with what it had some with when one was given up."""

    name: str
    pairs: Sequence[tuple[Any, Callable[[Sequence[Any]], Any]]]

    def check(self, leaves: Sequence[Any]) -> None:
        for x, shown in self.pairs:
            if any(_meet(_range(x), range_of(found)) for found in shown(leaves)):
                raise SharedWithArray(self.name)


def _present(owner: Tensor | None, shown: object, leaves: Sequence[Any]) -> Iterable[Any]:
    return (shown if owner is None or owner._array is None else owner._array,)


def _of_leaves(place: int, leaves: Sequence[Any]) -> Iterable[Any]:
    given = leaves[place]
    grad = given._grad if isinstance(given, Tensor) else None
    return [_array(given)] if grad is None else [_array(given), grad._array]


def _array(leaf: object) -> Any:
    return leaf._array if isinstance(leaf, Tensor) else leaf


def array_on(buffer: Any) -> Any:
    """An array on the memory that a buffer has now."""
    if is_a(buffer, np.ndarray):
        return buffer
    try:
        return np.asarray(memoryview(buffer))
    except (TypeError, ValueError):  # released, closed, or of a form that NumPy does not know
        return np.empty(0)


def _range(buffer: object) -> Range:
    return range_of(array_on(buffer))


def _meet(a: Range, b: Range) -> bool:
    return a[0] < b[1] and b[0] < a[1]
