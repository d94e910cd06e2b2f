"""Parts of operands in shared memory: rows of 16-byte chunks, turned so that a warp meets every bank once.

Neighbours in memory stay neighbours: rows are lines of the operand where those run deep, depths where they do not. In
row r chunk c is stored as chunk ``c ^ turn * (r / rows of 128 bytes)``: eight rows that a warp reads at one place of
each are in eight other groups of banks, and the chunks themselves are whole, so copies of 16 bytes can go there.
"""

from __future__ import annotations

from autojit.codegen.cuda.grid_function import CudaKernel
from autojit.codegen.cuda.product_tiles import CHUNK_BYTES
from autojit.codegen.function_text import Operand
from autojit.core.dtypes import DType
from autojit.core.records import record

BANKS_BYTES = 128
"""What all banks of shared memory hold together."""


@record
class Shelf:
    """Shared memory for the parts of one operand.

    Args:
        base: its address.
        rows: of a part.
        along: elements of a row, a power of two.
        is_deep: rows are lines of the operand, each as long as a part is deep; else they are depths.
        turn: how many chunks neighbouring rows of 128 bytes are turned: 2 where a warp reads two chunks of four rows.
        panels: parts of the lines, one behind the other, whose rows are depths; more than 1 where groups of warps read
            rows of 128 bytes. ``rows`` are those of all panels.
    """

    base: str
    dtype: DType
    rows: int
    along: int
    is_deep: bool
    turn: int
    panels: int = 1

    @property
    def panel_bytes(self) -> int:
        return self.size // self.panels * self.dtype.size_bytes

    @property
    def size(self) -> int:
        """Elements of a part."""
        return self.rows * self.along

    @property
    def per_chunk(self) -> int:
        return CHUNK_BYTES // self.dtype.size_bytes

    @property
    def turned(self) -> int:
        """Chunks of a row that change places; 1: none does."""
        return max(min(self.along // self.per_chunk, BANKS_BYTES // CHUNK_BYTES), 1)

    def turn_of(self, kernel: CudaKernel, row: str) -> str | None:
        """What the chunks of a row are turned by; None: nothing. Of rows that are 8 apart it is the same."""
        per_banks = BANKS_BYTES // CHUNK_BYTES // self.turned
        if self.turned <= self.turn:
            return None
        turns = kernel.scaled(kernel.quotient(row, per_banks), self.turn)
        return kernel.remainder(turns, self.turned)

    def position(self, kernel: CudaKernel, line: str, depth: str) -> str:
        """Where an element is in its part."""
        row, at = (line, depth) if self.is_deep else (depth, line)
        if self.panels > 1:
            row = kernel.offset(kernel.scaled(kernel.quotient(line, self.along), self.rows // self.panels), depth)
            at = kernel.remainder(line, self.along)
        return Reader(kernel, self, row, at).position(0, 0)


class Reader:
    """Where a lane reads a shelf: at one place and at others that are constant numbers of rows and elements from it.

    Rows are multiples of 8 apart, or of 4 where they are turned by two chunks; elements by what has no bit in common
    with the lane's own place.
    """

    def __init__(self, kernel: CudaKernel, shelf: Shelf, row: str, at: str) -> None:
        self.kernel, self.shelf = kernel, shelf
        self.first = kernel.scaled(row, shelf.along)
        chunk, self.rest = kernel.quotient(at, shelf.per_chunk), kernel.remainder(at, shelf.per_chunk)
        turn = shelf.turn_of(kernel, row)
        self.chunk = chunk if turn is None else kernel.binary("xor", chunk, turn)
        self.is_turned = turn is not None
        self.known: dict[int, str] = {}

    def position(self, rows: int, elements: int) -> str:
        """Where in a part the lane reads this many rows and elements further."""
        shelf = self.shelf
        chunks, rest = divmod(elements, shelf.per_chunk)
        near = chunks % shelf.turned if self.is_turned else 0
        start = self._start(near)
        return self.kernel.offset(start, rows * shelf.along + (chunks - near) * shelf.per_chunk + rest)

    def _start(self, chunks: int) -> str:
        """The lane's place, this many chunks further among those that change places."""
        found = self.known.get(chunks)
        if found is None:
            kernel = self.kernel
            chunk = kernel.binary("xor", self.chunk, chunks) if chunks else self.chunk
            inside = kernel.offset(kernel.scaled(chunk, self.shelf.per_chunk), self.rest)
            found = self.known[chunks] = kernel.offset(self.first, inside)
        return found

    def address(self, part: Operand, rows: int = 0, elements: int = 0) -> str:
        """The address, in the part that begins at an element of the shelf."""
        at = self.kernel.offset(part, self.position(rows, elements))
        return self.kernel.address(self.shelf.base, self.shelf.dtype, at)
