"""Operands of a product on their way to the warps: a block's part of each, brought to shared memory.

Left and right operand are one thing here: lines of the result (rows of the left, columns of the right operand), each
as long as the contracted axis, which is called depth. A lane brings a few elements that are neighbours in memory, so
LLVM can make one access of them; what is outside the operand becomes zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_tiles import Tile, column_pad, row_pad
from autojit.codegen.function_text import Operand
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.sizes import surely_less

MOST_ACCESS_BYTES = 16

Brought = list[tuple[str, str]]
"""Elements in registers: (address in shared memory that it goes to, bits)."""


class Stored(ABC):
    """How one matrix of an operand is stored; ``lines`` and ``depth`` are its extents."""

    lines: int
    depth: int

    @property
    @abstractmethod
    def runs_deep(self) -> bool:
        """Whether neighbours in memory are neighbours in depth."""

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
class Shelf:
    """A part of an operand in shared memory: element (line, depth) is ``line * line_stride + depth * depth_stride``."""

    base: str
    line_stride: int
    depth_stride: int


def shelf_of(kernel: CudaKernel, stored: Stored, extents: tuple[int, int], dtype: DType, *, is_deep: bool) -> Shelf:
    """Shared memory for a part of (lines, depth) elements.

    Neighbours in memory stay neighbours, unless registers hold neighbours in depth (``is_deep``).
    """
    lines, depth = extents
    kind = f"i{8 * dtype.size_bytes}"
    if is_deep or stored.runs_deep:
        stride = depth + row_pad(dtype.size_bytes)
        return Shelf(kernel.shared(kind, lines * stride), stride, 1)
    stride = lines + column_pad(dtype.size_bytes, lines)
    return Shelf(kernel.shared(kind, depth * stride), 1, stride)


class Stage:
    """Brings one operand's parts to shared memory, for one kernel.

    Args:
        kernel: that is printed.
        buffer: the address of the operand.
        stored: one of its matrices.
        shelf: where a part goes.
        extents: lines and depth of a part.
    """

    def __init__(
        self, kernel: CudaKernel, buffer: str, stored: Stored, shelf: Shelf, extents: tuple[int, int], dtype: DType
    ) -> None:
        self.kernel, self.buffer, self.stored, self.shelf, self.dtype = kernel, buffer, stored, shelf, dtype
        self.lines, self.depth = extents
        self.kind = f"i{8 * dtype.size_bytes}"

    def width(self, threads: int) -> int:
        """How many neighbours a lane brings at once."""
        part = self.depth if self.stored.runs_deep else self.lines
        width = self.stored.most_neighbours(MOST_ACCESS_BYTES // self.dtype.size_bytes)
        while part % width or self.lines * self.depth % (width * threads):
            width //= 2
        return width

    def load(self, tile: Tile, matrix: str, first_line: str, first_depth: Operand) -> Brought:
        """The elements that this lane brings of one part, whose matrix begins at a position of the operand."""
        kernel, stored = self.kernel, self.stored
        width = self.width(tile.threads)
        along = self.depth if stored.runs_deep else self.lines
        per_line = along // width
        found: Brought = []
        for turn in range(self.lines * self.depth // (width * tile.threads)):
            number = kernel.add(kernel.thread, turn * tile.threads)
            outer = kernel.quotient(number, per_line)
            inner = kernel.mul(kernel.remainder(number, per_line), width)
            line, depth = (outer, inner) if stored.runs_deep else (inner, outer)
            found += self._neighbours(width, (line, depth), (first_line, first_depth), matrix)
        return found

    def _neighbours(self, width: int, inside: tuple[str, str], first: tuple[str, Operand], matrix: str) -> Brought:
        """Elements next to each other in memory, from one place in the part on."""
        kernel, stored, shelf = self.kernel, self.stored, self.shelf
        line, depth = (kernel.add(start, at) for start, at in zip(first, inside, strict=True))
        position, is_zero = stored.place(kernel, line, depth)
        place = kernel.add(matrix, position)
        outside = self._outside(line, depth, is_zero)
        if outside is not None:
            place = kernel.choose(outside, 0, place)
        source = kernel.element(self.buffer, self.kind, place)
        to = kernel.add(kernel.mul(inside[0], shelf.line_stride), kernel.mul(inside[1], shelf.depth_stride))
        target = kernel.element(shelf.base, self.kind, to)
        step = shelf.depth_stride if stored.runs_deep else shelf.line_stride
        found: Brought = []
        for k in range(width):
            bits = kernel.load(self.kind, kernel.element(source, self.kind, k) if k else source)
            if outside is not None:
                bits = kernel.choose(outside, 0, bits, self.kind)
            found.append((kernel.element(target, self.kind, k * step) if k else target, bits))
        return found

    def _outside(self, line: str, depth: str, is_zero: str | None) -> str | None:
        """Whether a place of the part is none of the operand; None where all are."""
        kernel, stored = self.kernel, self.stored
        tests = [is_zero] if is_zero else []
        tests += [
            kernel.test("uge", place, extent)
            for place, extent, part in ((line, stored.lines, self.lines), (depth, stored.depth, self.depth))
            if extent % part
        ]
        return reduce(kernel.either, tests) if tests else None
