"""Matrix products for one thread, as an LLVM module that is compiled once per machine and dtype.

What a caller gets (``<t>`` is ``f32`` or ``f64``; every argument but the pointers is an ``i64``; strides count elements
and may be any positive number, so transposes are free; ``accumulate`` 1 means C += AB, 0 means C = AB)::

    void aj_gemm_<t>(m, n, k, A, rsa, csa, B, rsb, csb, C, rsc, csc, accumulate, scratch)

``scratch`` holds `scratch_bytes` and belongs to the calling thread; it is best aligned to 64 bytes.

How blocking works (names as in Goto and van de Geijn, ACM TOMS 34(3), 2008)::

    for n in steps of COLUMN_BLOCK             B's block stays in the shared cache
      for k in even steps of at most DEPTH_BLOCK
        for m in steps of row_block            A's block stays in the second-level cache
          [copy A's block, or pack it in panels, if its strides are bad]
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

from functools import partial

from autojit.codegen.cpu.products.blocks import (
    COLUMN_BLOCK,
    DEPTH_BLOCK,
    PairBlocks,
    PlainBlocks,
    a_block_elements,
    round_up,
    signature,
)
from autojit.codegen.cpu.products.dots import add_old_value, dots_signature, write_dots
from autojit.codegen.cpu.products.packing import (
    copy_block_signature,
    pack_panels_signature,
    pack_rows_signature,
    write_copy_block,
    write_pack_panels,
    write_pack_rows,
)
from autojit.codegen.cpu.products.pairs import copy_pairs_signature, write_copy_pairs, write_pack_pairs
from autojit.codegen.cpu.products.tiles import (
    ROW_UNIT,
    TileSet,
    TileShape,
    tile_set,
    tiles_signature,
    write_tiles,
)
from autojit.codegen.cpu.vector_text import INTERNAL, Vector, VectorModule, VectorText
from autojit.codegen.function_text import Operand, State
from autojit.codegen.target import HostTarget
from autojit.core.dtypes import DType, bfloat16, float32
from autojit.core.sizes import size_max, size_min

NARROW_DEPTH = 16
"""Fewer steps of k do not pay for the detour of a product with few columns."""

WIDEST_PANEL = 64
MOST_TRANSPOSE_LANES = 8


def scratch_bytes(operand: DType, m: int, n: int, k: int) -> int:
    """Upper bound of what one call of ``aj_gemm`` with these extents uses of ``scratch``."""
    if operand is bfloat16:  # blocks of pairs
        return scratch_bytes(float32, m, n, -(-k // 2))
    a_block, b_block = a_block_elements(operand), 0
    for columns in (n, m):  # C^T = B^T A^T exchanges the roles
        padded = round_up(size_min(columns, COLUMN_BLOCK), WIDEST_PANEL)
        b_block = size_max(b_block, padded * size_min(k, DEPTH_BLOCK) + MOST_TRANSPOSE_LANES * WIDEST_PANEL)
    return operand.size_bytes * (a_block + size_max(b_block, k))


def gemm_module(operand: DType, host: HostTarget) -> str:
    """The module's text for products of float32, float64 or bfloat16 on a machine."""
    tiles, module = tile_set(operand, host), VectorModule()
    add = partial(VectorText.define, module, linkage="internal", attributes=INTERNAL)
    for shape in tiles.shapes:
        add(tiles_signature(tiles, shape), partial(write_tiles, tiles, shape))
    if tiles.steps == 1:
        add(pack_panels_signature(tiles), partial(write_pack_panels, tiles))
        add(copy_block_signature(tiles), partial(write_copy_block, tiles))
        add(pack_rows_signature(tiles), partial(write_pack_rows, tiles))
        add(dots_signature(tiles), partial(write_dots, tiles))
    else:
        add(pack_panels_signature(tiles), partial(write_pack_pairs, tiles))
        add(copy_pairs_signature(tiles), partial(write_copy_pairs, tiles))
    add(signature(operand, "columns"), partial(_write_columns, tiles))
    add(signature(operand, "scattered"), partial(_write_scattered, tiles))
    blocks = PlainBlocks if tiles.steps == 1 else PairBlocks
    add(signature(operand, "blocks"), lambda text: blocks(text, tiles).write())
    VectorText.define(module, signature(operand, "gemm"), partial(_write_gemm, tiles))
    return module.text()


def _write_columns(tiles: TileSet, text: VectorText) -> None:
    """Tiles from left to right over one panel."""

    def run(shape: TileShape, b: str, c: str, columns: Operand) -> None:
        a = "%a", "%rsa", "%csa", "%skip"
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
    assert tiles.tallest == ROW_UNIT, "turns begin with panels of A"
    tile = text.local(f"[{tiles.tallest * panel} x {element}]")
    text.line("%adds = icmp ne i64 %accumulate, 0")
    with text.loop(0, "%m", tiles.tallest) as row:
        rows = text.least(text.sub("%m", row), tiles.tallest)
        panels = text.mul(text.quotient(row, ROW_UNIT), "%skip")
        a = text.at(text.at("%a", text.mul(row, "%rsa")), panels), "%rsa", "%csa", "%skip"
        b, c = ("%b", "%ldb"), (tile, panel * size)
        text.call(signature(tiles.operand, "columns"), rows, "%k", *a, *b, *c, "%columns", 0)
        with text.loop(0, rows) as i, text.loop(0, "%columns") as j:
            source = text.at(tile, text.add(text.mul(i, panel * size), text.mul(j, size)))
            line = text.mul(text.add(row, i), "%rsc")
            target = text.at("%c", text.add(line, text.mul(j, "%csc")))
            text.store(element, add_old_value(text, element, text.load(element, source), target), target)


def _write_gemm(tiles: TileSet, text: VectorText) -> None:
    size = tiles.operand.size_bytes
    stride = {name: text.mul(f"%{name}", size) for name in ("rsa", "csa", "rsb", "csb")}
    stride |= {name: text.mul(f"%{name}", tiles.dtype.size_bytes) for name in ("rsc", "csc")}
    _return_when_empty(text, tiles, stride)
    single = text.test("eq", "%n", 1)
    if tiles.steps == 1:  # pairs come as loops where n is 1 (passes.narrow_products)
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
    text.call(signature(tiles.operand, "blocks"), m, n, "%k", *operands, "%accumulate", "%scratch")


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
