"""Fragments of operands out of shared memory, in the registers that a warp's instruction takes.

Where a register holds what is next to each other in a row of shared memory, the hardware reads four matrices of eight
rows of 16 bytes at once (``ldmatrix``): elements of 4 bytes where rows are lines, pairs of 2 bytes either way, because
it turns those round. All else is read element by element.
"""

from __future__ import annotations

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_shelves import Reader, Shelf
from autojit.codegen.cuda.product_tiles import COLUMNS, WARP, Tile
from autojit.codegen.function_text import Operand
from autojit.core.dtypes import DType

MATRIX_ROWS = 8
"""Of a matrix that a warp reads at once; so are the lanes that say where its rows are."""


class Places:
    """Where in the block's tile a lane's elements are."""

    def __init__(self, kernel: CudaKernel, tile: Tile) -> None:
        self.tile = tile
        self.lane = kernel.remainder(kernel.thread, WARP)
        warp = kernel.quotient(kernel.thread, WARP)
        self.slice: str | None = None  # the number of the lane's slice, if there are several
        if tile.slices > 1:
            self.slice = kernel.quotient(kernel.thread, tile.slice_threads)
            warp = kernel.remainder(warp, tile.slice_threads // WARP)
        self.group = kernel.quotient(self.lane, 4)
        self.member = kernel.remainder(self.lane, 4)
        self.warp = warp
        down = kernel.quotient(warp, tile.warps[1])
        across = kernel.remainder(warp, tile.warps[1])
        self.first_row = kernel.scaled(down, tile.warp_rows)
        self.first_column = kernel.scaled(across, tile.warp_columns)
        self.row = kernel.offset(self.first_row, self.group)
        self.column = kernel.offset(self.first_column, kernel.scaled(self.member, 2))

    def finishes(self, kernel: CudaKernel) -> str | None:
        """The condition that a lane goes on with what is summed up: all lanes of a warp do, or none."""
        return None if self.slice is None else kernel.test("eq", self.slice, 0)

    def of_lane(self) -> list[tuple[int, int]]:
        """What to add to ``row`` and ``column`` for each element of a lane, fragment by fragment."""
        down, across = self.tile.fragments
        height = self.tile.fragment.rows
        return [
            (x * height + row, y * COLUMNS + column)
            for x in range(down)
            for y in range(across)
            for row in range(0, height, 8)
            for column in range(2)
        ]


class Fragments:
    """The fragments of one operand in a part of its shelf.

    Args:
        kernel: that is printed.
        shelf: where the operand's parts are.
        part: where this one begins.
        first: the line of the tile with which the warp's lines begin.
        lines: of a fragment.
        count: fragments of the warp.
        begin: the depth of the part that counts as the first.
        skipped: fragments of the warp in front of the first.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        places: Places,
        shelf: Shelf,
        part: Operand,
        first: str,
        *,
        lines: int,
        count: int,
        begin: int = 0,
        skipped: int = 0,
    ) -> None:
        self.kernel, self.places, self.shelf, self.part, self.first = kernel, places, shelf, part, first
        self.fragment = places.tile.fragment
        self.lines, self.count, self.begin, self.skipped = lines, count, begin, skipped
        self.known: dict[tuple[int, int], list[str]] = {}
        self.reader = self._matrix_reader() if self.by_matrix else self._element_reader()

    @property
    def by_matrix(self) -> bool:
        """Whether the hardware reads matrices."""
        return self.fragment.neighbours > 1 or (self.fragment.operand == "float" and self.shelf.is_deep)

    @property
    def at_once(self) -> int:
        """Fragments that one reading of matrices gives; four at most."""
        return 1 if self.lines > MATRIX_ROWS or self.count == 1 else 2

    def registers(self, number: int, depth: int) -> list[str]:
        """A fragment's registers, at a depth of the part."""
        number, depth = number + self.skipped, depth + self.begin
        found = self.known.get((number, depth))
        if found is None:
            if self.by_matrix:
                self._read_matrices(number // self.at_once, depth)
            else:
                self.known[number, depth] = self._read_elements(number, depth)
            found = self.known[number, depth]
        return found

    # -- by matrices

    def _matrix_reader(self) -> Reader:
        """Lane ``8 q + e`` says where row e of matrix q is; of two fragments the first two matrices are the first."""
        kernel, lane = self.kernel, self.places.lane
        row, quarter = kernel.remainder(lane, MATRIX_ROWS), kernel.quotient(lane, MATRIX_ROWS)
        odd, half = kernel.remainder(quarter, 2), kernel.quotient(quarter, 2)
        is_left = self.lines > MATRIX_ROWS
        across, deeper = (odd, half) if is_left else (half, odd)
        rows = self.at_once * self.lines // MATRIX_ROWS
        line = kernel.offset(self.first, kernel.scaled(across, MATRIX_ROWS)) if rows > 1 else self.first
        if self.shelf.is_deep:
            return Reader(kernel, self.shelf, kernel.offset(line, row), kernel.scaled(deeper, self.shelf.per_chunk))
        return Reader(kernel, self.shelf, kernel.offset(row, kernel.scaled(deeper, MATRIX_ROWS)), line)

    def _read_matrices(self, pair: int, depth: int) -> None:
        kernel, lines = self.kernel, pair * self.at_once * self.lines
        rows, elements = (lines, depth) if self.shelf.is_deep else (depth, lines)
        address = self.reader.address(self.part, rows, elements)
        count = 4 if self.at_once * self.lines > MATRIX_ROWS else 2
        turned = "" if self.shelf.is_deep else ".trans"
        returned = f"{{ {', '.join(['i32'] * count)} }}"
        name = f"@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{turned}.b16.p3"
        whole = kernel.value(f"call {returned} {name}(ptr {address})")
        words = [kernel.value(f"extractvalue {returned} {whole}, {k}") for k in range(count)]
        kind = self.fragment.operand
        if kind != "i32":
            words = [kernel.convert("bitcast", word, "i32", kind) for word in words]
        each = count // self.at_once
        for k in range(self.at_once):
            self.known[pair * self.at_once + k, depth] = words[k * each : (k + 1) * each]

    # -- by elements

    def _element_reader(self) -> Reader:
        line = self.kernel.offset(self.first, self.places.group)
        row, at = (line, self.places.member) if self.shelf.is_deep else (self.places.member, line)
        return Reader(self.kernel, self.shelf, row, at)

    def _read_elements(self, number: int, depth: int) -> list[str]:
        kernel, found = self.kernel, list[str]()
        dtype: DType = self.shelf.dtype
        for deeper in range(0, self.fragment.depth, 4):
            for line in range(0, self.lines, MATRIX_ROWS):
                lines, depths = number * self.lines + line, depth + deeper
                rows, elements = (lines, depths) if self.shelf.is_deep else (depths, lines)
                found.append(kernel.load(self.fragment.operand, self.reader.address(self.part, rows, elements)))
        assert dtype.size_bytes >= 4, "smaller elements are read by matrices"
        return found
