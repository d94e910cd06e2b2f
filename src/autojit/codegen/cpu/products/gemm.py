"""Matrix products for one thread, as an LLVM module that is compiled once per machine and dtype.

What a caller gets (``<t>`` is ``f32`` or ``f64``; every argument but the pointers is an ``i64``; strides count elements
and may be any positive number, so transposes are free; ``accumulate`` 1 means C += AB, 0 means C = AB)::

    void aj_gemm_<t>(m, n, k, A, rsa, csa, B, rsb, csb, C, rsc, csc, accumulate, scratch)

``scratch`` holds `scratch_bytes` and belongs to the calling thread; it is best aligned to 64 bytes.

How blocking works (names as in Goto and van de Geijn, ACM TOMS 34(3), 2008)::

    for n in steps of COLUMN_BLOCK             B's block stays in the shared cache
      for k in even steps of at most DEPTH_BLOCK
        for m in steps of row_block            A's block stays in the second-level cache
          [copy A's block, if its strides are bad]
          for n in steps of one panel          B's panel stays in the first-level cache
            [pack the next few panels, on the first round over m]
            micro-kernels down the rows of A   (tiles)

Packing pays only when B is read often or cannot be read by vectors, so it is decided per call from extents and strides.
A column-major C is computed as C^T = B^T A^T; a C with neither stride 1 goes through a small tile on the stack. A
single column (n = 1) with contiguous rows of A is done by dot products. The other way round, one row of A with a
transposed B, has to transpose B in passing: whoever knows that m is 1 in all should hand over C^T = B^T A^T.

Every element of C is the sum over depth blocks of one multiply-add chain in ascending k, whatever path computes it, so
the bits of the result depend on k and dtype, for n = 1 also on A's layout, and never on how rows are cut into calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from autojit.codegen.cpu.products.dots import add_old_value, dots_signature, write_dots
from autojit.codegen.cpu.products.packing import (
    PANELS_AT_ONCE,
    copy_block_signature,
    pack_panels_signature,
    write_copy_block,
    write_pack_panels,
)
from autojit.codegen.cpu.products.tiles import TileSet, TileShape, tile_set, tiles_signature, write_tiles
from autojit.codegen.cpu.vector_text import INTERNAL, Vector, VectorModule, VectorText
from autojit.codegen.function_text import Operand, State
from autojit.codegen.module_text import Signature
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.sizes import size_max, size_min

# What a core's caches hold decides about blocks. On a Zen 4 core a prototype did best with 256 to 384 steps of k and
# 144 rows per block, and with B packed above some 48 KiB and 64 rows; of other numbers no measurement is recorded.
DEPTH_BLOCK = 512
"""Most steps of k per block. A panel of B is then 32 or 64 KiB, and C is read and written once per block."""

DEPTH_UNIT = 8
ROW_UNIT = 12
"""Blocks are cut in these units; the rows' is a multiple of every tile height."""

ROW_BLOCK_BYTES = 192 << 10
"""Size of a block of A: part of the second-level cache of any current core (256 KiB and more)."""

COLUMN_BLOCK = 1536
"""Columns of B per block; a multiple of every panel. With `DEPTH_BLOCK` steps 3 MiB of float32, in the shared cache."""

PACK_B_BYTES = 48 << 10
"""A larger B is packed if it is read more often than `PACK_B_ROWS` rows of A: with fewer, copying it costs more."""

PACK_B_ROWS = 64
PACK_A_COLUMNS = 128
PACK_A_STRIDE_BYTES = 1024
"""A is copied if its lines are at least this far apart and it is read for at least `PACK_A_COLUMNS` columns.

Lines at multiples of a large power of two share few sets of a cache.
"""

NARROW_DEPTH = 16
"""Fewer steps of k do not pay for the detour of a product with few columns."""

PADDING = 16
"""Elements between the lines of a copied block of A beyond their length, against strides of a page."""

WIDEST_PANEL = 64
MOST_TRANSPOSE_LANES = 8


def row_block(dtype: DType) -> int:
    """Most rows of A per block: a multiple of every tile height."""
    return ROW_BLOCK_BYTES // (DEPTH_BLOCK * dtype.size_bytes) // ROW_UNIT * ROW_UNIT


def scratch_bytes(dtype: DType, m: int, n: int, k: int) -> int:
    """Upper bound of what one call of ``aj_gemm`` with these extents uses of ``scratch``."""
    a_block, b_block = _a_block_elements(dtype), 0
    for columns in (n, m):  # C^T = B^T A^T exchanges the roles
        padded = _round_up(size_min(columns, COLUMN_BLOCK), WIDEST_PANEL)
        b_block = size_max(b_block, padded * size_min(k, DEPTH_BLOCK) + MOST_TRANSPOSE_LANES * WIDEST_PANEL)
    return dtype.size_bytes * (a_block + size_max(b_block, k))


def gemm_module(dtype: DType, host: HostTarget) -> str:
    """The module's text for float32 or float64 on a machine."""
    tiles, module = tile_set(dtype, host), VectorModule()
    add = partial(VectorText.define, module, linkage="internal", attributes=INTERNAL)
    for shape in tiles.shapes:
        add(tiles_signature(tiles, shape), partial(write_tiles, tiles, shape))
    add(pack_panels_signature(tiles), partial(write_pack_panels, tiles))
    add(copy_block_signature(tiles), partial(write_copy_block, tiles))
    add(signature(dtype, "columns"), partial(_write_columns, tiles))
    add(signature(dtype, "scattered"), partial(_write_scattered, tiles))
    add(signature(dtype, "blocks"), lambda text: _BlockLoops(text, tiles).write())
    add(dots_signature(tiles), partial(write_dots, tiles))
    VectorText.define(module, signature(dtype, "gemm"), partial(_write_gemm, tiles))
    return module.text()


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _a_block_elements(dtype: DType) -> int:
    """Room for a copied block of A, whichever way its lines run."""
    rows = _round_up(row_block(dtype), PADDING)
    return (rows + PADDING) * (DEPTH_BLOCK + PADDING)


_A = "ptr a, i64 rsa, i64 csa"
_B = "ptr b, i64 rsb, i64 csb"
_C = "ptr c, i64 rsc, i64 csc"
_PARAMETERS = {
    "columns": f"i64 m, i64 k, {_A}, ptr b, i64 ldb, ptr c, i64 ldc, i64 columns, i64 accumulate",
    "scattered": f"i64 m, i64 k, {_A}, ptr b, i64 ldb, {_C}, i64 columns, i64 accumulate",
    **dict.fromkeys(("blocks", "gemm"), f"i64 m, i64 n, i64 k, {_A}, {_B}, {_C}, i64 accumulate, ptr scratch"),
}


def signature(dtype: DType, name: str) -> Signature:
    """A function of the products of one type."""
    return Signature(f"aj_{name}_{dtype.short}", _PARAMETERS[name])


def _write_columns(tiles: TileSet, text: VectorText) -> None:
    """Tiles from left to right over one panel."""

    def run(shape: TileShape, b: str, c: str, columns: Operand) -> None:
        a = "%a", "%rsa", "%csa"
        text.call(tiles_signature(tiles, shape), "%m", "%k", *a, b, "%ldb", c, "%ldc", columns, "%accumulate")

    def whole(shape: TileShape, state: State) -> State:
        left, b, c = state
        run(shape, b, c, shape.columns)
        skip = shape.columns * tiles.dtype.size_bytes
        return [text.sub(left, shape.columns), text.at(b, skip), text.at(c, skip)]

    state = ["%columns", "%b", "%c"]
    for shape in tiles.whole:
        state = text.while_left(shape.columns, ("i64", "ptr", "ptr"), state, partial(whole, shape))
    left, b, c = state
    text.return_when(text.test("eq", left, 0))
    for shape in tiles.rest[:-1]:
        fits = text.test("sle", left, shape.columns)
        with text.when(fits):
            run(shape, b, c, left)
        text.return_when(fits)
    run(tiles.rest[-1], b, c, left)


def _write_scattered(tiles: TileSet, text: VectorText) -> None:
    """The same for a C with any strides ``rsc, csc``: tile by tile through the stack."""
    size, panel = tiles.dtype.size_bytes, tiles.panel
    element = Vector(tiles.dtype, 1).element
    tile = text.local(f"[{tiles.tallest * panel} x {element}]")
    text.line("%adds = icmp ne i64 %accumulate, 0")
    with text.loop(0, "%m", tiles.tallest) as row:
        rows = text.least(text.sub("%m", row), tiles.tallest)
        a = text.at("%a", text.mul(row, "%rsa"))
        b, c = ("%b", "%ldb"), (tile, panel * size)
        text.call(signature(tiles.dtype, "columns"), rows, "%k", a, "%rsa", "%csa", *b, *c, "%columns", 0)
        with text.loop(0, rows) as i, text.loop(0, "%columns") as j:
            source = text.at(tile, text.add(text.mul(i, panel * size), text.mul(j, size)))
            line = text.mul(text.add(row, i), "%rsc")
            target = text.at("%c", text.add(line, text.mul(j, "%csc")))
            text.store(element, add_old_value(text, element, text.load(element, source), target), target)


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


class _BlockLoops:
    """Writes the loop nest of the module's head comment; strides are in bytes."""

    def __init__(self, text: VectorText, tiles: TileSet) -> None:
        self.text = text
        self.tiles = tiles
        self.size = tiles.dtype.size_bytes

    def write(self) -> None:
        text = self.text
        self.packs_b = self._packs_b()
        self.packs_a = self._packs_a()
        self.rows_of_a_contiguous = text.test("eq", "%csa", self.size)
        self.b_panels = text.at("%scratch", _a_block_elements(self.tiles.dtype) * self.size)
        self.unit_c = text.test("eq", "%csc", self.size)
        plain = text.both(self.unit_c, text.negate(self.packs_b))
        self.one_plain_row = text.both(text.test("eq", "%m", 1), plain)
        self.depth_step = _even_step(text, "%k", DEPTH_BLOCK, DEPTH_UNIT)
        self.row_step = _even_step(text, "%m", row_block(self.tiles.dtype), ROW_UNIT)
        self.one_row_block = text.test("sle", "%m", self.row_step)
        column_step = text.choose(self.packs_b, COLUMN_BLOCK, text.most("%n", 1))
        with text.loop(0, "%n", column_step) as first_column, text.loop(0, "%k", self.depth_step) as first_depth:
            self._depth_block(first_column, text.least(text.sub("%n", first_column), column_step), first_depth)

    def _packs_b(self) -> str:
        text = self.text
        plain = text.test("eq", "%csb", self.size)
        large = text.test("sgt", text.mul(text.mul("%n", "%k"), self.size), PACK_B_BYTES)
        often = text.test("sgt", "%m", PACK_B_ROWS)
        return text.choose(plain, text.both(large, often), "true", "i1")

    def _packs_a(self) -> str:
        text = self.text
        far = text.test("sge", text.most("%rsa", "%csa"), PACK_A_STRIDE_BYTES)
        return text.both(far, text.test("sge", "%n", PACK_A_COLUMNS))

    def _depth_block(self, first_column: str, columns: str, first_depth: str) -> None:
        text = self.text
        depth = text.least(text.sub("%k", first_depth), self.depth_step)
        later = text.convert("zext", text.test("sgt", first_depth, 0), "i1")
        accumulate = text.binary("or", "%accumulate", later)
        b = self._block_of_b(first_column, columns, first_depth, depth)
        with text.loop(0, "%m", self.row_step) as first_row:
            rows = text.least(text.sub("%m", first_row), self.row_step)
            a = self._block_of_a(first_row, rows, first_depth, depth)
            packs_now = text.both(self.packs_b, text.test("eq", first_row, 0))
            c_row = text.at("%c", text.add(text.mul(first_row, "%rsc"), text.mul(first_column, "%csc")))
            start = self._wide_columns(columns, (rows, depth, *a), (b.plain, c_row), accumulate)
            with text.loop(start, columns, self.tiles.panel) as column:
                width = text.least(text.sub(columns, column), self.tiles.panel)
                panel = self._panel_of_b(b, column, packs_now)
                c = text.at(c_row, text.mul(column, "%csc"))
                self._tiles((rows, depth, *a, panel, b.row_stride, c, "%rsc"), (width, accumulate))

    def _block_of_b(self, first_column: str, columns: str, first_depth: str, depth: str) -> _BlockOfB:
        text, size, panel = self.text, self.size, self.tiles.panel
        plain = text.at("%b", text.add(text.mul(first_depth, "%rsb"), text.mul(first_column, "%csb")))
        panel_column = text.mul(depth, size)
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

    def _wide_columns(self, columns: str, a: Sequence[str], starts: tuple[str, str], accumulate: str) -> str:
        """A single row and a plain B: walk B in wide pieces as far as whole ones go; returns where to go on."""
        text, wide = self.text, self.tiles.wide
        whole = text.binary("and", columns, -wide.columns)
        stop = text.choose(self.one_plain_row, whole, 0)
        with text.loop(0, stop, wide.columns) as column:
            b, c = (text.at(start, text.mul(column, self.size)) for start in starts)
            tile = tiles_signature(self.tiles, wide)
            text.call(tile, *a, b, "%rsb", c, "%rsc", wide.columns, accumulate)
        return stop

    def _block_of_a(self, first_row: str, rows: str, first_depth: str, depth: str) -> tuple[str, str, str]:
        """Address and strides in bytes of the block, after copying it if that pays."""
        text, size = self.text, self.size
        plain = text.at("%a", text.add(text.mul(first_row, "%rsa"), text.mul(first_depth, "%csa")))
        by_rows = self.rows_of_a_contiguous
        lines, length = text.choose(by_rows, rows, depth), text.choose(by_rows, depth, rows)
        line_stride, stride = text.choose(by_rows, "%rsa", "%csa"), text.choose(by_rows, "%csa", "%rsa")
        padded = text.mul(text.add(text.round_up(length, PADDING), PADDING), size)
        with text.when(self.packs_a):
            copy = copy_block_signature(self.tiles)
            text.call(copy, lines, length, plain, line_stride, stride, "%scratch", padded)
        row_stride = text.choose(self.packs_a, text.choose(by_rows, padded, size), "%rsa")
        column_stride = text.choose(self.packs_a, text.choose(by_rows, size, padded), "%csa")
        return text.choose(self.packs_a, "%scratch", plain, "ptr"), row_stride, column_stride

    def _tiles(self, before: Sequence[str], after: Sequence[str]) -> None:
        text = self.text
        with text.when(self.unit_c):
            text.call(signature(self.tiles.dtype, "columns"), *before, *after)
        with text.otherwise():
            text.call(signature(self.tiles.dtype, "scattered"), *before, "%csc", *after)


def _write_gemm(tiles: TileSet, text: VectorText) -> None:
    size = tiles.dtype.size_bytes
    stride = {name: text.mul(f"%{name}", size) for name in ("rsa", "csa", "rsb", "csb", "rsc", "csc")}
    _return_when_empty(text, tiles, stride)
    single = text.test("eq", "%n", 1)
    rows_contiguous = text.test("eq", "%csa", 1)
    dots = text.both(single, rows_contiguous)
    with text.when(dots):
        _dots_of_rows(text, tiles, stride)
    text.return_when(dots)
    turned = text.either(single, text.either(_column_major(text), _is_narrow(text, tiles)))
    m, n = text.choose(turned, "%n", "%m"), text.choose(turned, "%m", "%n")
    a, b = text.choose(turned, "%b", "%a", "ptr"), text.choose(turned, "%a", "%b", "ptr")
    rsa, csa = text.choose(turned, stride["csb"], stride["rsa"]), text.choose(turned, stride["rsb"], stride["csa"])
    rsb, csb = text.choose(turned, stride["csa"], stride["rsb"]), text.choose(turned, stride["rsa"], stride["csb"])
    rsc, csc = text.choose(turned, stride["csc"], stride["rsc"]), text.choose(turned, stride["rsc"], stride["csc"])
    csb = text.choose(text.test("eq", n, 1), size, csb)  # the stride of a single column does not matter
    operands = a, rsa, csa, b, rsb, csb, "%c", rsc, csc
    text.call(signature(tiles.dtype, "blocks"), m, n, "%k", *operands, "%accumulate", "%scratch")


def _column_major(text: VectorText) -> str:
    return text.both(text.test("ne", "%csc", 1), text.test("eq", "%rsc", 1))


def _is_narrow(text: VectorText, tiles: TileSet) -> str:
    """Few columns of C would leave most lanes idle, while A^T, taken for B, fills them: worth a scattered C."""
    widest_idle = tiles.rest[0].columns // 2
    few = text.both(text.test("sle", "%n", widest_idle), text.test("sge", "%m", tiles.rest[0].columns))
    contiguous = text.both(text.test("eq", "%rsa", 1), text.test("sge", "%k", NARROW_DEPTH))
    return text.both(few, contiguous)


def _return_when_empty(text: VectorText, tiles: TileSet, stride: dict[str, str]) -> None:
    """No elements of C: nothing to do. No elements to sum: C becomes zero, or stays."""
    text.return_when(text.test("sle", text.least("%m", "%n"), 0))
    no_sum = text.test("sle", "%k", 0)
    rows = text.choose(text.both(no_sum, text.test("eq", "%accumulate", 0)), "%m", 0)
    with text.loop(0, rows) as i, text.loop(0, "%n") as j:
        target = text.at("%c", text.add(text.mul(i, stride["rsc"]), text.mul(j, stride["csc"])))
        text.store(Vector(tiles.dtype, 1).element, "0.0", target)
    text.return_when(no_sum)


def _dots_of_rows(text: VectorText, tiles: TileSet, stride: dict[str, str]) -> None:
    """n = 1 and contiguous rows of A; the column of B is made contiguous in ``scratch`` first if it is not."""
    size = tiles.dtype.size_bytes
    scattered = text.test("ne", "%rsb", 1)
    with text.when(scattered):
        text.call(copy_block_signature(tiles), 1, "%k", "%b", 0, stride["rsb"], "%scratch", size)
    x = text.choose(scattered, "%scratch", "%b", "ptr")
    text.call(dots_signature(tiles), "%m", "%k", "%a", stride["rsa"], x, "%c", stride["rsc"], "%accumulate")
