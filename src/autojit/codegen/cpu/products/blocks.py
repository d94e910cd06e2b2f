"""The loop nest around the tiles of a matrix product, and what copying blocks of A and B pays for.

`BlockLoops` is the nest of `gemm`'s head comment. `PlainBlocks` reads A and B where they are if that is no slower;
`PairBlocks`, for bfloat16, needs two steps of k side by side, as rows of A have them and nothing else does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from autojit.codegen.cpu.products.packing import (
    PANELS_AT_ONCE,
    copy_block_signature,
    pack_panels_signature,
    pack_rows_signature,
)
from autojit.codegen.cpu.products.pairs import copy_pairs_signature, count_pairs
from autojit.codegen.cpu.products.tiles import ROW_UNIT, TileSet, tiles_signature
from autojit.codegen.cpu.vector_text import VectorText
from autojit.codegen.module_text import Signature
from autojit.core.dtypes import DType
from autojit.core.records import record

# What a core's caches hold decides about blocks. On a Zen 4 core a prototype did best with 256 to 384 steps of k and
# 144 rows per block, and with B packed above some 48 KiB and 64 rows; of other numbers no measurement is recorded.
DEPTH_BLOCK = 256
"""Most steps of k per block. A panel of B is then at most 32 KiB, a first-level cache, and C is read and written once
per block. On a Skylake server core (GF/s; blocks of 512, 384, 256): 128 x 784 x 512 94, 97, 113; transposed A 90, 92,
110; 128 x 1024 x 512, transposed A, 86, 92, 104; 1024 x 384 x 128 130, 130, 126. It is one number for all machines,
because sums are rounded between blocks.
"""

DEPTH_UNIT = 8
"""Blocks of k are cut in this unit, those of rows in `ROW_UNIT`, a multiple of every tile height."""

ROW_BLOCK_BYTES = 192 << 10
"""Size of a block of A: part of the second-level cache of any current core (256 KiB and more)."""

COLUMN_BLOCK = 1536
"""Columns of B per block; a multiple of every panel. With `DEPTH_BLOCK` steps 3 MiB of float32, in the shared cache."""

PACK_B_BYTES = 48 << 10
"""A larger B is packed if it is read more often than `PACK_B_ROWS` rows of A: with fewer, copying it costs more."""

PACK_B_ROWS = 64
PACK_A_COLUMNS = 128
PACK_A_STRIDE_BYTES = 512
"""A is copied if its columns are at least this far apart and it is read for at least `PACK_A_COLUMNS` columns.

From 512 bytes on the lines of columns meet in the sets of a first-level cache. On a Skylake server core (GF/s;
copied from 1024, 512, 256 bytes on) 128 x 784 x 512 runs at 99, 104, 108, 128 x 1024 x 512 at 83, 94, 96, and
64 x 512 x 128, whose columns are 256 bytes apart, at 122, 122, 111.
"""

MEETING_BYTES = 4096
"""Rows of A at multiples of this share the sets of a first-level cache, and are copied."""

PADDING = 16
"""Elements between the lines of a copied block of A beyond their length, against strides of a page."""


def row_block(dtype: DType) -> int:
    """Most rows of A per block: a multiple of every tile height."""
    return ROW_BLOCK_BYTES // (DEPTH_BLOCK * dtype.size_bytes) // ROW_UNIT * ROW_UNIT


def round_up(value: int, step: int) -> int:
    """To a multiple of ``step``."""
    return -(-value // step) * step


def a_block_elements(dtype: DType) -> int:
    """Room for a copied block of A, whichever way its lines run."""
    rows = round_up(row_block(dtype), PADDING)
    return (rows + PADDING) * (DEPTH_BLOCK + PADDING)  # panels of rows need a line more each


_A = "ptr a, i64 rsa, i64 csa"
_B = "ptr b, i64 rsb, i64 csb"
_C = "ptr c, i64 rsc, i64 csc"
_PARAMETERS = {
    "columns": f"i64 m, i64 k, {_A}, i64 skip, ptr b, i64 ldb, ptr c, i64 ldc, i64 columns, i64 accumulate",
    "scattered": f"i64 m, i64 k, {_A}, i64 skip, ptr b, i64 ldb, {_C}, i64 columns, i64 accumulate",
    **dict.fromkeys(("blocks", "gemm"), f"i64 m, i64 n, i64 k, {_A}, {_B}, {_C}, i64 accumulate, ptr scratch"),
}


def signature(dtype: DType, name: str) -> Signature:
    """A function of the products of one type."""
    return Signature(f"aj_{name}_{dtype.short}", _PARAMETERS[name])


def _even_step(text: VectorText, extent: str, most: int, unit: int) -> str:
    """Length of all blocks but the last when `extent` >= 1 is cut evenly: a multiple of `unit`, at most `most`."""
    count = text.quotient(text.add(extent, most - 1), most)
    even = text.quotient(text.sub(text.add(extent, count), 1), count)
    return text.mul(text.quotient(text.add(even, unit - 1), unit), unit)


@record
class _BlockOfB:
    """Names of what describes the block of B at hand: plain, or packed as the loops go.

    Args:
        plain: its address in B.
        base: where the tiles read it.
        columns: how many it has.
        depth: its rows.
        row_stride: bytes between rows, for the tiles.
        column_stride: bytes per column, from one panel to the next.
        column_mask: keeps the columns within one group of panels, if each is used only once after it is packed.
    """

    plain: str
    base: str
    columns: str
    depth: str
    row_stride: str
    column_stride: str
    column_mask: str


class BlockLoops(ABC):
    """Writes the loop nest of `gemm`'s head comment; strides are in bytes."""

    def __init__(self, text: VectorText, tiles: TileSet) -> None:
        self.text = text
        self.tiles = tiles
        self.size = tiles.dtype.size_bytes  # of an element of C, and of a packed one of A and B

    @abstractmethod
    def _packs_b(self) -> str:
        """Whether panels of B are packed."""

    @abstractmethod
    def _elements(self, depth: str) -> str:
        """Packed elements in as many steps of k."""

    @abstractmethod
    def _block_of_a(self, first_row: str, rows: str, first_depth: str, depth: str) -> tuple[str, str, str, str]:
        """Address, strides and skip (`tiles_signature`) of the block, after copying it if it must be, or that pays."""

    @abstractmethod
    def _wide_columns(self, columns: str, a: Sequence[str], starts: tuple[str, str], accumulate: str) -> str:
        """Columns done in a way of their own; returns where to go on."""

    def write(self) -> None:
        """The body of the function."""
        text = self.text
        self.packs_b = self._packs_b()
        self.packs_a = self._packs_a()
        self.rows_of_a_contiguous = text.test("eq", "%csa", self.tiles.operand.size_bytes)
        self.b_panels = text.at("%scratch", a_block_elements(self.tiles.dtype) * self.size)
        self.unit_c = text.test("eq", "%csc", self.size)
        self.depth_step = _even_step(text, "%k", self.tiles.steps * DEPTH_BLOCK, DEPTH_UNIT)
        self.row_step = _even_step(text, "%m", row_block(self.tiles.dtype), ROW_UNIT)
        self.one_row_block = text.test("sle", "%m", self.row_step)
        column_step = text.choose(self.packs_b, COLUMN_BLOCK, text.most("%n", 1))
        with text.loop(0, "%n", column_step) as first_column, text.loop(0, "%k", self.depth_step) as first_depth:
            self._depth_block(first_column, text.least(text.sub("%n", first_column), column_step), first_depth)

    @abstractmethod
    def _packs_a(self) -> str:
        """Whether blocks of A are copied because that pays."""

    def _depth_block(self, first_column: str, columns: str, first_depth: str) -> None:
        text = self.text
        depth = text.least(text.sub("%k", first_depth), self.depth_step)
        elements = self._elements(depth)
        later = text.convert("zext", text.test("sgt", first_depth, 0), "i1")
        accumulate = text.binary("or", "%accumulate", later)
        b = self._block_of_b(first_column, columns, first_depth, (depth, elements))
        with text.loop(0, "%m", self.row_step) as first_row:
            rows = text.least(text.sub("%m", first_row), self.row_step)
            a = self._block_of_a(first_row, rows, first_depth, depth)
            packs_now = text.both(self.packs_b, text.test("eq", first_row, 0))
            c_row = text.at("%c", text.add(text.mul(first_row, "%rsc"), text.mul(first_column, "%csc")))
            start = self._wide_columns(columns, (rows, elements, *a), (b.plain, c_row), accumulate)
            with text.loop(start, columns, self.tiles.panel) as column:
                width = text.least(text.sub(columns, column), self.tiles.panel)
                panel = self._panel_of_b(b, column, packs_now)
                c = text.at(c_row, text.mul(column, "%csc"))
                self._tiles((rows, elements, *a, panel, b.row_stride, c, "%rsc"), (width, accumulate))

    def _block_of_b(self, first_column: str, columns: str, first_depth: str, depths: tuple[str, str]) -> _BlockOfB:
        text, size, panel = self.text, self.size, self.tiles.panel
        plain = text.at("%b", text.add(text.mul(first_depth, "%rsb"), text.mul(first_column, "%csb")))
        depth, elements = depths
        panel_column = text.mul(elements, size)
        reuses = text.both(self.packs_b, self.one_row_block)
        return _BlockOfB(
            plain=plain,
            base=text.choose(self.packs_b, self.b_panels, plain, "ptr"),
            columns=columns,
            depth=depth,
            row_stride=text.choose(self.packs_b, panel * size, "%rsb"),
            column_stride=text.choose(self.packs_b, panel_column, "%csb"),
            column_mask=text.choose(reuses, PANELS_AT_ONCE * panel - 1, -1),
        )

    def _panel_of_b(self, b: _BlockOfB, column: str, packs_now: str) -> str:
        """Where the tiles read the columns from `column` on; packs this panel and the next few if it is time."""
        text, group = self.text, PANELS_AT_ONCE * self.tiles.panel
        panel = text.at(b.base, text.mul(text.binary("and", column, b.column_mask), b.column_stride))
        begins = text.test("eq", text.binary("and", column, group - 1), 0)
        with text.when(text.both(packs_now, begins)):
            source = text.at(b.plain, text.mul(column, "%csb"))
            columns = text.least(text.sub(b.columns, column), group)
            text.call(pack_panels_signature(self.tiles), b.depth, columns, source, "%rsb", "%csb", panel)
        return panel

    def _tiles(self, before: Sequence[str], after: Sequence[str]) -> None:
        text = self.text
        with text.when(self.unit_c):
            text.call(signature(self.tiles.operand, "columns"), *before, *after)
        with text.otherwise():
            text.call(signature(self.tiles.operand, "scattered"), *before, "%csc", *after)


class PlainBlocks(BlockLoops):
    """Operands of the dtype of C."""

    def _packs_b(self) -> str:
        text = self.text
        plain = text.test("eq", "%csb", self.size)
        large = text.test("sgt", text.mul(text.mul("%n", "%k"), self.size), PACK_B_BYTES)
        often = text.test("sgt", "%m", PACK_B_ROWS)
        return text.choose(plain, text.both(large, often), "true", "i1")

    def _elements(self, depth: str) -> str:
        return depth

    def _wide_columns(self, columns: str, a: Sequence[str], starts: tuple[str, str], accumulate: str) -> str:
        """A single row and a plain B: walk B in wide pieces as far as whole ones go; returns where to go on."""
        text, wide = self.text, self.tiles.wide
        is_plain = text.both(self.unit_c, text.negate(self.packs_b))
        whole = text.binary("and", columns, -wide.columns)
        stop = text.choose(text.both(text.test("eq", "%m", 1), is_plain), whole, 0)
        with text.loop(0, stop, wide.columns) as column:
            b, c = (text.at(start, text.mul(column, self.size)) for start in starts)
            tile = tiles_signature(self.tiles, wide)
            text.call(tile, *a, b, "%rsb", c, "%rsc", wide.columns, accumulate)
        return stop

    def _packs_a(self) -> str:
        """Rows that meet in a cache's sets, and columns, whose elements are far apart as tiles walk along k."""
        text = self.text
        meeting = text.test("eq", text.binary("and", "%rsa", MEETING_BYTES - 1), 0)
        apart = text.test("sge", "%csa", PACK_A_STRIDE_BYTES)
        pays = text.choose(text.test("eq", "%csa", self.size), meeting, apart, "i1")
        return text.both(pays, text.test("sge", "%n", PACK_A_COLUMNS))

    def _block_of_a(self, first_row: str, rows: str, first_depth: str, depth: str) -> tuple[str, str, str, str]:
        """Address, strides and skip of the block, after copying it if that pays: rows as such, columns in panels."""
        text, size = self.text, self.size
        plain = text.at("%a", text.add(text.mul(first_row, "%rsa"), text.mul(first_depth, "%csa")))
        by_rows = self.rows_of_a_contiguous
        padded = text.mul(text.add(text.round_up(depth, PADDING), PADDING), size)
        copies, packs = text.both(self.packs_a, by_rows), text.both(self.packs_a, text.negate(by_rows))
        with text.when(copies):
            text.call(copy_block_signature(self.tiles), rows, depth, plain, "%rsa", "%csa", "%scratch", padded)
        with text.when(packs):
            text.call(pack_rows_signature(self.tiles), rows, depth, plain, "%rsa", "%csa", "%scratch")
        row_stride = text.choose(copies, padded, text.choose(packs, size, "%rsa"))
        column_stride = text.choose(packs, ROW_UNIT * size, "%csa")
        skip = text.choose(packs, text.mul(depth, ROW_UNIT * size), 0)
        return text.choose(self.packs_a, "%scratch", plain, "ptr"), row_stride, column_stride, skip


class PairBlocks(BlockLoops):
    """Operands of bfloat16 as pairs of steps: B is always packed, A where its rows do not have them side by side."""

    def _packs_b(self) -> str:
        return "true"

    def _elements(self, depth: str) -> str:
        return count_pairs(self.text, depth)

    def _wide_columns(self, columns: str, a: Sequence[str], starts: tuple[str, str], accumulate: str) -> str:
        return "0"

    def _packs_a(self) -> str:
        text = self.text
        far = text.test("sge", text.most("%rsa", "%csa"), PACK_A_STRIDE_BYTES)
        return text.both(far, text.test("sge", "%n", PACK_A_COLUMNS))

    def _block_of_a(self, first_row: str, rows: str, first_depth: str, depth: str) -> tuple[str, str, str, str]:
        text, size = self.text, self.size
        plain = text.at("%a", text.add(text.mul(first_row, "%rsa"), text.mul(first_depth, "%csa")))
        by_rows, pairs = self.rows_of_a_contiguous, self._elements(depth)
        has_all_pairs = text.both(by_rows, text.test("eq", text.binary("and", depth, 1), 0))
        copies = text.either(self.packs_a, text.negate(has_all_pairs))
        padded = text.mul(text.add(text.round_up(text.choose(by_rows, pairs, rows), PADDING), PADDING), size)
        with text.when(copies):
            copied = rows, depth, plain, "%rsa", "%csa", "%scratch", padded
            text.call(copy_pairs_signature(self.tiles), *copied)
        row_stride = text.choose(copies, text.choose(by_rows, padded, size), "%rsa")
        column_stride = text.choose(by_rows, size, padded)
        return text.choose(copies, "%scratch", plain, "ptr"), row_stride, column_stride, "0"
