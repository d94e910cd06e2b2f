"""For which extents a kernel of eager mode on a device is compiled: the first ones exactly, then with some left open.

What a kernel is for besides extents is its *form*: the op, dtypes, orders of axes, which extents are equal, which are 1
or 0. A form's first extents get a kernel of their own, which knows all of them. An extent of which a form meets several
values while the others stay the same is left open (`_Form.note`): the outermost of the first operand, which is a batch
as a rule, with the second value, another with the fourth; all of them where that would leave many kernels. So batches
of any size have one kernel that still knows how wide rows are. Loops over operands that are alike have no more than
their number of elements to know, and it is open from the first call on.

A kernel that cannot leave sizes open is compiled for each; then the form is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from autojit.core.errors import AutojitError
from autojit.core.size_recorder import recording
from autojit.core.sizes import named_size
from autojit.dispatch.operand_memory import Axes, Memory

SECOND, FOURTH = 2, 4
MOST_FORMS = MOST_KNOWN = 4096
MOST_KEPT = 6
"""Kernels of a form that differ in extents which are not open; more, and all are left open."""

TOGETHER = 8
"""Neighbours of which a line of elements consists where their number allows it: accesses of them are wide."""

Values = dict[str, int]


class OpenMemory(NamedTuple):
    """Operands with some extents open, and the values of these in a call.

    Args:
        memories: what the kernel is compiled for.
        values: of the open sizes, by name.
        packed: the shape of elementwise results in the order of memory, where operands are seen as a line.
        axes: that order, where it is not row-major.
    """

    memories: tuple[Memory, ...]
    values: Values
    packed: tuple[int, ...] | None = None
    axes: Axes | None = None


class _Form:
    """What a form has met: which of its extents are left open, by their numbers."""

    def __init__(self) -> None:
        self.opened: set[int] = set()
        self.is_fixed = False  # kernels of it are compiled for their sizes
        self._values: dict[tuple[int, tuple[int, ...]], set[int]] = {}  # (an extent, the others that are not open)
        self._kept: set[tuple[int, ...]] = set()  # the extents that are not open: a kernel for each

    def note(self, extents: tuple[int, ...], outermost: int | None) -> None:
        """A call has these extents."""
        closed = [k for k in range(len(extents)) if k not in self.opened]
        for k in closed:
            others = tuple([extents[j] for j in closed if j != k])
            values = self._values.setdefault((k, others), set())
            values.add(extents[k])
            if len(values) >= (SECOND if k == outermost else FOURTH):
                self._open([k])
        self._kept.add(tuple([n for k, n in enumerate(extents) if k not in self.opened]))
        if len(self._kept) > MOST_KEPT:
            self._open(closed)

    def _open(self, extents: Iterable[int]) -> None:
        self.opened.update(extents)
        self._values.clear()
        self._kept.clear()


class OpenKernels:
    """The kernels of one kind.

    Args:
        make: makes a kernel for what is computed and its operands' memories.
        kept: how many there are at most.
    """

    def __init__(self, make: Callable[[Any, tuple[Memory, ...]], Any], kept: int) -> None:
        self._make = make
        self.kept = kept
        self._kernels: dict[Any, Any] = {}
        self._forms: dict[Any, _Form] = {}
        self._known: dict[Any, OpenMemory | None] = {}  # what is left open, by exact extents

    def find(
        self, what: Any, memories: tuple[Memory, ...], *, is_elementwise: bool, is_fixed: bool
    ) -> tuple[Any, OpenMemory | None]:
        """(the kernel for these operands, what of them it leaves open or None).

        Args:
            what: is computed; part of the form.
            is_elementwise: at every element alike, so that operands of one shape and order are a line.
            is_fixed: what is computed holds extents.
        """
        key = what, memories
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = None if is_fixed else self._open(what, memories, is_elementwise=is_elementwise)
        opened = self._known[key]
        return self._kernel(what, memories if opened is None else opened.memories), opened

    def kernels(self) -> list[Any]:
        """Those that there are."""
        return list(self._kernels.values())

    def _open(self, what: Any, memories: tuple[Memory, ...], *, is_elementwise: bool) -> OpenMemory | None:
        """What is left open of operands that are met for the first time; None: nothing is."""
        found = self._form(what, memories)
        if found is None or found[0].is_fixed:
            return None
        opened = (as_line(memories) if is_elementwise else None) or _opened(memories, *found)
        if opened is not None:
            try:
                self._kernel(what, opened.memories)
            except AutojitError:  # it depends on sizes: a kernel that knows them may do, or says what is wrong
                found[0].is_fixed = True
                return None
        return opened

    def _kernel(self, what: Any, memories: tuple[Memory, ...]) -> Any:
        with recording(None):  # a capture in progress has nothing to do with these sizes
            found = self._kernels.pop((what, memories), None)
            if found is None:
                found = self._make(what, memories)
                if len(self._kernels) >= self.kept:
                    del self._kernels[next(iter(self._kernels))]
            self._kernels[what, memories] = found  # the last one asked for is the last to go
        return found

    def _form(self, what: Any, memories: tuple[Memory, ...]) -> tuple[_Form, list[list[int]], tuple[int, ...]] | None:
        """The form, the numbers of the operands' extents, and the extents by number; None: strides fix them."""
        if any(memory.steps is not None for memory in memories):
            return None
        numbers: dict[int, int] = {}
        places = [
            [numbers.setdefault(n, len(numbers)) if n > 1 else -1 - n for n in memory.type.shape] for memory in memories
        ]
        kinds = tuple((tuple(p), m.axes, m.type.dtype, m.type.device) for p, m in zip(places, memories, strict=True))
        if len(self._forms) >= MOST_FORMS:
            self._forms.clear()
        form = self._forms.setdefault((what, kinds), _Form())
        extents = tuple(numbers)
        if len(form.opened) < len(extents):
            form.note(extents, _outermost(memories, places))
        return form, places, extents


def _outermost(memories: Sequence[Memory], places: Sequence[Sequence[int]]) -> int | None:
    """The number of the extent that is outermost in the memory of the first operand with axes."""
    for memory, numbers in zip(memories, places, strict=True):
        if numbers:
            return numbers[0 if memory.axes is None else memory.axes[0]]
    return None


def _opened(
    memories: Sequence[Memory], form: _Form, places: Sequence[Sequence[int]], extents: tuple[int, ...]
) -> OpenMemory | None:
    """The operands with the extents open that the form leaves open; None: it leaves none open."""
    if not form.opened:
        return None
    sizes = {k: named_size(f"n{k}", extents[k]) for k in sorted(form.opened)}
    found = tuple(
        memory._replace(
            type=memory.type.with_shape(tuple([sizes.get(k, n) for k, n in zip(p, memory.type.shape, strict=True)]))
        )
        for memory, p in zip(memories, places, strict=True)
    )
    return OpenMemory(found, {f"n{k}": extents[k] for k in sizes})


def as_line(memories: Sequence[Memory]) -> OpenMemory | None:
    """Operands of one shape and order, numbers beside them, as lines of any length; None: they are others."""
    arrays = [memory for memory in memories if memory.type.shape]
    if not arrays or any(
        (m.type.shape, m.axes, m.steps) != (arrays[0].type.shape, arrays[0].axes, None) for m in arrays
    ):
        return None
    count, first = arrays[0].type.size, arrays[0]
    if count <= 1:
        return None
    rest: tuple[int, ...] = (TOGETHER,) if count > TOGETHER and count % TOGETHER == 0 else ()
    value = count // TOGETHER if rest else count
    shape = (named_size("n", value), *rest)
    lines = tuple(
        memory._replace(type=memory.type.with_shape(shape), axes=None) if memory.type.shape else memory
        for memory in memories
    )
    axes = range(len(first.type.shape)) if first.axes is None else first.axes
    return OpenMemory(lines, {"n": value}, tuple([first.type.shape[axis] for axis in axes]), first.axes)
