"""Operands of a product on their way to the warps: a block's part of each, brought to shared memory.

Left and right operand are one thing here: lines of the result (rows of the left, columns of the right operand), each
as long as the contracted axis, which is called depth. A lane brings a few elements that are neighbours in memory, so
one access does; what is outside the operand becomes zero. Where a GPU copies to shared memory by itself (``cp.async``)
and neighbours are 4 bytes or more, nothing goes through registers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_shelves import Shelf
from autojit.codegen.cuda.product_tiles import CHUNK_BYTES, GROUP_ROWS, Fragment, Tile
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import SharedCopy
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, surely_divides, surely_less

COPIED_BYTES = (4, 8, 16)
"""What one ``cp.async`` may copy."""

ALIKE_ROWS = 8
"""Apart, rows of a shelf are turned alike."""

Brought = list[str]
"""The bits of elements in registers."""


class Stored(ABC):
    """How one matrix of an operand is stored; ``lines`` and ``depth`` are its extents."""

    lines: int
    depth: int

    @property
    @abstractmethod
    def runs_deep(self) -> bool:
        """Whether neighbours in memory are neighbours in depth."""

    @abstractmethod
    def step(self) -> int | None:
        """From a row of a shelf to the next, in elements of the matrix; None: that differs, or a call knows it."""

    @abstractmethod
    def most_neighbours(self, width: int) -> int:
        """How many elements from a multiple of that number on are always next to each other: ``width`` or fewer."""

    @abstractmethod
    def place(self, kernel: CudaKernel, line: str, depth: str) -> tuple[str, str | None]:
        """The position of an element in its matrix, and the condition that it is none and counts as zero."""


@record
class Strided(Stored):
    """An operand whose two axes have strides, in elements.

    Args:
        steps: other strides and offsets of the operand, which say how positions are aligned.
    """

    lines: int
    depth: int
    line_stride: int
    depth_stride: int
    steps: tuple[int, ...]

    @property
    def runs_deep(self) -> bool:
        """The axis of the smaller stride."""
        return surely_less(self.depth_stride, self.line_stride + 1) or self.lines == 1

    def step(self) -> int | None:
        """The larger stride."""
        found = self.line_stride if self.runs_deep else self.depth_stride
        return None if is_symbolic(found) else found

    def most_neighbours(self, width: int) -> int:
        """As far as neighbours are 1 apart and begin at multiples."""
        inner, across, extent = self.line_stride, self.depth_stride, self.lines
        if self.runs_deep:
            inner, across, extent = across, inner, self.depth
        if inner != 1:
            return 1
        while any(n % width for n in (extent, across, *self.steps)):
            width //= 2
        return width

    def place(self, kernel: CudaKernel, line: str, depth: str) -> tuple[str, str | None]:
        """By the strides; all elements are there."""
        position = kernel.add(kernel.mul(line, self.line_stride), kernel.mul(depth, self.depth_stride))
        return position, None


@record
class Unit:
    """Elements that a lane brings at once, next to each other in memory.

    Args:
        line, depth: where they begin in a part.
        width: how many they are.
        first: a unit of the lane that is ``rows`` rows of the shelf before; None: there is no such. What an address is
            behind another takes no register, but LLVM has to be told: it makes an ``or`` of a sum, and forgets.
    """

    line: str
    depth: str
    width: int
    first: Unit | None = None
    rows: int = 0


class Supply:
    """Brings one operand's parts to shared memory, for one kernel.

    Args:
        kernel: that is printed.
        number: the operand's buffer.
        stored: one of its matrices.
        lines: of a part.
        stages: parts that there is room for.
        tile: says how deep a part is, how many threads bring it, and who reads it how.
        copies: whether the GPU has ``cp.async``.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        number: int,
        stored: Stored,
        dtype: DType,
        *,
        lines: int,
        stages: int,
        tile: Tile,
        copies: bool,
    ) -> None:
        self.kernel, self.number, self.stored, self.dtype = kernel, number, stored, dtype
        self.lines, self.depth, self.threads = lines, tile.depth, tile.slice_threads
        self.slices, self.turn_depth = tile.slices, tile.turn_depth
        self.kind = f"i{8 * dtype.size_bytes}"
        is_deep = stored.runs_deep
        panels = 1 if is_deep or not tile.is_grouped else -(-lines // GROUP_ROWS)
        rows, along = (lines, tile.depth) if is_deep else (tile.depth * panels, lines // panels)
        base = kernel.shared(self.kind, stages * tile.slices * rows * along)
        self.shelf = Shelf(base, dtype, rows, along, is_deep, _turn(tile.fragment, is_deep=is_deep), panels)
        self.width = self._width(along)
        self.is_copied = copies and self.width * dtype.size_bytes in COPIED_BYTES

    def _width(self, along: int) -> int:
        """How many neighbours a lane brings at once."""
        width = self.stored.most_neighbours(CHUNK_BYTES // self.dtype.size_bytes)
        while along % width or self.lines * self.depth % (width * self.threads):
            width //= 2
        return width

    def units(self) -> list[Unit]:
        """What this lane brings of every part; of several slices each has parts of its own."""
        kernel, width = self.kernel, self.width
        thread = kernel.thread if self.slices == 1 else kernel.remainder(kernel.thread, self.threads)
        per_row = self.shelf.along // width
        step = self.threads // per_row if self.threads % per_row == 0 else 0
        is_alike = step > 0 and step % ALIKE_ROWS == 0 and self.shelf.panels == 1
        found: list[Unit] = []
        for turn in range(self.lines * self.depth // (width * self.threads)):
            number = kernel.offset(thread, 0 if step else turn * self.threads)
            outer, inner = kernel.quotient(number, per_row), kernel.scaled(kernel.remainder(number, per_row), width)
            outer = kernel.offset(outer, turn * step)
            line, depth = (outer, inner) if self.stored.runs_deep else (inner, outer)
            if self.shelf.panels > 1:
                panel, depth = kernel.quotient(outer, self.depth), kernel.remainder(outer, self.depth)
                line = kernel.offset(kernel.scaled(panel, self.shelf.along), inner)
            found.append(Unit(line, depth, width, found[0] if is_alike and found else None, turn * step))
        return found

    def bring(self, part: Operand, matrix: str, first_line: str, first_depth: Operand) -> Brought:
        """Copy this lane's elements into the part that begins at ``part``; those that are not, are in registers.

        Args:
            matrix: where the operand's matrix begins.
            first_line, first_depth: where the part begins in it.
        """
        found: Brought = []
        for unit in self.units():
            source, outside = self._source(unit, matrix, first_line, first_depth)
            if self.is_copied:
                self._copy(self._place(part, unit), source, outside)
            else:
                found += self._load(source, outside)
        return found

    def put(self, part: Operand, brought: Brought) -> None:
        """Elements in registers into the part that begins at ``part``."""
        kernel, left = self.kernel, iter(brought)
        if brought:
            for unit in self.units():
                first = self._place(part, unit)
                for k in range(unit.width):
                    kernel.store(self.kind, next(left), kernel.element(first, self.kind, k) if k else first)

    def _place(self, part: Operand, unit: Unit) -> str:
        """The address in a part that a unit goes to."""
        if unit.first is not None:
            return self.kernel.element(self._place(part, unit.first), self.kind, unit.rows * self.shelf.along)
        at = self.kernel.offset(part, self.shelf.position(self.kernel, unit.line, unit.depth))
        return self.kernel.element(self.shelf.base, self.kind, at)

    def own_words(self, part: Operand) -> list[str]:
        """What this lane has brought to a part, of elements of 4 bytes, read again."""
        kernel, found = self.kernel, list[str]()
        for unit in self.units():
            address = self._place(part, unit)
            if unit.width == 1:
                found.append(kernel.load(self.kind, address))
                continue
            vector = f"<{unit.width} x {self.kind}>"
            words = kernel.load(vector, address, attributes=f", align {unit.width * self.dtype.size_bytes}")
            found += [kernel.value(f"extractelement {vector} {words}, i32 {k}") for k in range(unit.width)]
        return found

    def _source(self, unit: Unit, matrix: str, first_line: str, first_depth: Operand) -> tuple[str, str | None]:
        """The address of a unit, and the condition that it is none of the operand's; None: it always is."""
        kernel = self.kernel
        line, depth = kernel.offset(first_line, unit.line), kernel.offset(first_depth, unit.depth)
        position, is_zero = self.stored.place(kernel, line, depth)
        place = kernel.add(matrix, position)
        outside = self._outside(line, depth, is_zero)
        if outside is not None:
            place = kernel.choose(outside, 0, place)
        elif unit.first is not None and (step := self.stored.step()) is not None:
            start, _ = self._source(unit.first, matrix, first_line, first_depth)
            return kernel.element(start, self.kind, unit.rows * step), None
        return kernel.element(kernel.buffers[self.number], self.kind, place), outside

    def _copy(self, target: str, source: str, outside: str | None) -> None:
        """Elements are on their way; where they are outside, zeros are."""
        size = self.dtype.size_bytes
        copy = SharedCopy(self.number, self.width * size, size, fills=outside is not None)
        self.kernel.copy_to_shared(copy, target, source, outside)

    def _load(self, source: str, outside: str | None) -> Brought:
        kernel, found = self.kernel, list[str]()
        for k in range(self.width):
            bits = kernel.load(self.kind, kernel.element(source, self.kind, k) if k else source)
            if outside is not None:
                bits = kernel.choose(outside, 0, bits, self.kind)
            found.append(bits)
        return found

    def _outside(self, line: str, depth: str, is_zero: str | None) -> str | None:
        """Whether a place of the part is none of the operand; None where all are."""
        kernel, stored = self.kernel, self.stored
        tests = [is_zero] if is_zero else []
        tests += [
            kernel.test("uge", place, extent)
            for place, extent, part in ((line, stored.lines, self.lines), (depth, stored.depth, self.turn_depth))
            if not surely_divides(part, extent)
        ]
        return reduce(kernel.either, tests) if tests else None


def _turn(fragment: Fragment, *, is_deep: bool) -> int:
    """By how many chunks rows are turned: a warp reads four rows, each two chunks wide, or eight rows of one chunk.

    `product_fragments` reads halves, and what is 4 bytes and runs deep, as the hardware's matrices of eight rows.
    """
    if fragment.operand == "double":
        return 2
    return 2 if fragment.operand == "float" and not is_deep else 1
