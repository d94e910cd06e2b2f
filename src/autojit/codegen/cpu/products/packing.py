"""Copying blocks of A and B to where the micro-kernels read them fast.

B goes into panels: ``k`` rows of `TileSet.panel` contiguous columns, so that a tile walks B straight through. A block
of A whose rows are contiguous keeps its order and only becomes dense, because some strides put all rows of a tile into
one cache set; one whose columns are becomes panels of `ROW_UNIT` rows, which tiles read straight through as well.

Three ways to fill panels: rows of B are contiguous (vector copies), columns are (square blocks transposed in
registers), neither (element by element). Columns beyond B are never read from memory; what the panel holds there is
zero, a copy of the last column or what was there before, and no tile stores it.
"""

from __future__ import annotations

from autojit.codegen.cpu.products.tiles import ROW_UNIT, TileSet
from autojit.codegen.cpu.vector_text import Vector, VectorText
from autojit.codegen.module_text import Signature

PANELS_AT_ONCE = 4
"""Panels packed in one go: rows of B are read in longer pieces, and the panels still fit the second-level cache.

256 KiB at most, with the deepest block; no measurement is recorded.
"""


def pack_panels_signature(tiles: TileSet) -> Signature:
    """What `write_pack_panels` writes: panels one after the other; ``columns >= 1``; strides in bytes.

    Writes up to `transpose_lanes` - 1 rows beyond the last panel's end.
    """
    parameters = "i64 k, i64 columns, ptr b, i64 rsb, i64 csb, ptr packed"
    return Signature(f"aj_pack_panels_{tiles.operand.short}", parameters)


def write_pack_panels(tiles: TileSet, text: VectorText) -> None:
    """What the function does."""
    size = tiles.dtype.size_bytes
    text.line(f"%column_bytes = mul nsw i64 %k, {size}")
    rows_contiguous = text.test("eq", "%csb", size)
    with text.when(rows_contiguous):
        _copy_rows(text, tiles)
    text.return_when(rows_contiguous)
    columns_contiguous = text.test("eq", "%rsb", size)
    with text.when(columns_contiguous):
        transpose_columns(text, tiles)
    text.return_when(columns_contiguous)
    _copy_elements(text, tiles)


def _panel_at(text: VectorText, tiles: TileSet, column: str) -> str:
    """Address of the panel that holds a column."""
    first = text.binary("and", column, -tiles.panel)
    return text.at("%packed", text.mul(first, "%column_bytes"))


def _copy_rows(text: VectorText, tiles: TileSet) -> None:
    """Whole panels side by side, so that a row is read in one piece; then what is left, under masks."""
    vectors = [Vector(tiles.dtype, lanes) for lanes in tiles.whole[0].lanes]
    firsts = [sum(v.lanes for v in vectors[:k]) for k in range(len(vectors))]
    size = tiles.dtype.size_bytes
    panel_bytes = tiles.panel * size
    whole = text.binary("and", "%columns", -tiles.panel)
    with text.loop(0, "%k") as p:
        source = text.at("%b", text.mul(p, "%rsb"))
        target = text.at("%packed", text.mul(p, panel_bytes))
        with text.loop(0, whole, tiles.panel) as column:
            piece, place = text.at(source, text.mul(column, size)), text.at(target, text.mul(column, "%column_bytes"))
            for vector, first in zip(vectors, firsts, strict=True):
                text.store_vector(
                    vector, text.load_vector(vector, text.at(piece, first * size)), text.at(place, first * size)
                )
    rest = text.sub("%columns", whole)
    masks = [text.mask_below(v, rest, first) for v, first in zip(vectors, firsts, strict=True)]
    start, last_panel = text.at("%b", text.mul(whole, size)), text.at("%packed", text.mul(whole, "%column_bytes"))
    rows = text.choose(text.test("sgt", rest, 0), "%k", 0)
    with text.loop(0, rows) as p:
        source, place = text.at(start, text.mul(p, "%rsb")), text.at(last_panel, text.mul(p, panel_bytes))
        for vector, first, mask in zip(vectors, firsts, masks, strict=True):
            value = text.masked_load(vector, text.at(source, first * size), mask)
            text.store_vector(vector, value, text.at(place, first * size))


TRANSPOSE_ROWS = 128
"""Rows of a panel that are finished before the next: they stay in the first-level cache while their columns come in.

8 KiB of a panel of 16 columns of float32; no measurement is recorded.
"""


def transpose_columns(text: VectorText, tiles: TileSet) -> None:
    """Fill panels from contiguous columns."""
    rows = text.quotient(text.add("%k", tiles.steps - 1), tiles.steps)
    with (
        text.loop(0, "%columns", tiles.panel) as first,
        text.loop(0, rows, TRANSPOSE_ROWS) as start,
        text.loop(first, text.least(text.add(first, tiles.panel), "%columns"), tiles.transpose_lanes) as column,
    ):
        stop = text.least(text.add(start, TRANSPOSE_ROWS), rows)
        panel = text.at("%packed", text.mul(first, "%column_bytes"))
        place = text.at(panel, text.mul(text.sub(column, first), tiles.dtype.size_bytes))
        _transpose_strip(text, tiles, column, place, (start, stop))


def _transpose_strip(text: VectorText, tiles: TileSet, column: str, place: str, rows: tuple[str, str]) -> None:
    """`transpose_lanes` columns from `column` on, for some rows of the panel; `place` is where they begin in it."""
    vector = Vector(tiles.dtype, tiles.transpose_lanes)
    seen = Vector(tiles.operand, tiles.steps * vector.lanes)  # as many bytes
    side, size = vector.lanes, tiles.dtype.size_bytes
    last = text.sub("%columns", 1)
    sources = [text.at("%b", text.mul(text.least(text.add(column, i), last), "%csb")) for i in range(side)]
    with text.loop(*rows, side) as p:
        mask = text.mask_below(seen, text.sub("%k", text.mul(p, tiles.steps)))
        skip = text.mul(p, size)
        block = [text.masked_load(seen, text.at(source, skip), mask) for source in sources]
        if seen != vector:
            block = [text.convert("bitcast", columns, seen.text, vector.text) for columns in block]
        row = text.at(place, text.mul(p, tiles.panel * size))
        for i, value in enumerate(transposed(text, vector, block)):
            text.store_vector(vector, value, text.at(row, i * tiles.panel * size))


def _copy_elements(text: VectorText, tiles: TileSet) -> None:
    size = tiles.dtype.size_bytes
    with text.loop(0, "%columns") as column:
        source = text.at("%b", text.mul(column, "%csb"))
        within = text.binary("and", column, tiles.panel - 1)
        target = text.at(_panel_at(text, tiles, column), text.mul(within, size))
        with text.loop(0, "%k") as p:
            row = text.at(target, text.mul(p, tiles.panel * size))
            copy_element(text, tiles, text.at(source, text.mul(p, "%rsb")), row)


def transposed(text: VectorText, vector: Vector, rows: list[str]) -> list[str]:
    """Transpose a square block held in registers: log2(side) rounds of two-input shuffles.

    Round by round, halves of distance ``d`` change places: row ``i`` and row ``i + d`` exchange their off-diagonal
    groups of ``d`` lanes.
    """
    side = vector.lanes
    distance = side // 2
    while distance:
        low = [lane if not lane & distance else lane - distance + side for lane in range(side)]
        high = [lane + distance if not lane & distance else lane + side for lane in range(side)]
        for i in range(side):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = text.shuffle(vector, a, b, low), text.shuffle(vector, a, b, high)
        distance //= 2
    return rows


def copy_element(text: VectorText, tiles: TileSet, source: str, target: str) -> None:
    """Append the copy of one element between two addresses."""
    element = Vector(tiles.dtype, 1).element
    text.store(element, text.load(element, source), target)


def copy_block_signature(tiles: TileSet) -> Signature:
    """What `write_copy_block` writes: strides in bytes; the target's lines are contiguous, the source's usually too."""
    return Signature(
        f"aj_copy_block_{tiles.dtype.short}",
        "i64 lines, i64 length, ptr source, i64 line_stride, i64 stride, ptr target, i64 target_line_stride",
    )


def write_copy_block(tiles: TileSet, text: VectorText) -> None:
    """What the function does."""
    size = tiles.dtype.size_bytes
    contiguous = text.test("eq", "%stride", size)
    line_bytes = text.mul("%length", size)
    with text.loop(0, "%lines") as i:
        source = text.at("%source", text.mul(i, "%line_stride"))
        target = text.at("%target", text.mul(i, "%target_line_stride"))
        with text.when(contiguous):
            text.copy_bytes(target, source, line_bytes)
        elements = text.choose(contiguous, 0, "%length")
        with text.loop(0, elements) as j:
            copy_element(text, tiles, text.at(source, text.mul(j, "%stride")), text.at(target, text.mul(j, size)))


def pack_rows_signature(tiles: TileSet) -> Signature:
    """What `write_pack_rows` writes: panels of `ROW_UNIT` rows, each as long as `ROW_UNIT` times ``k`` + 1 elements.

    Strides are in bytes. Vectors stick out of the last line of a panel, into the line that is left free.
    """
    return Signature(f"aj_pack_rows_{tiles.dtype.short}", "i64 rows, i64 k, ptr a, i64 rsa, i64 csa, ptr packed")


def write_pack_rows(tiles: TileSet, text: VectorText) -> None:
    """What the function does: line after line, so that the next line of a panel covers what sticks out of the last."""
    vector, size = tiles.widest, tiles.dtype.size_bytes
    beyond = -ROW_UNIT % vector.lanes
    contiguous = text.test("eq", "%rsa", size)
    whole = text.quotient(text.most(text.sub("%rows", beyond), 0), ROW_UNIT)
    whole, part = text.choose(contiguous, text.mul(whole, ROW_UNIT), 0), text.choose(contiguous, "%rows", 0)
    row_bytes = text.mul(text.add("%k", 1), size)
    with text.loop(0, "%k") as p:
        source, target = text.at("%a", text.mul(p, "%csa")), text.at("%packed", text.mul(p, ROW_UNIT * size))

        def copy(row: str, first: int, mask: str = "") -> None:
            piece = text.at(source, text.mul(text.add(row, first), size))
            place = text.at(text.at(target, text.mul(row, row_bytes)), first * size)
            value = text.masked_load(vector, piece, mask) if mask else text.load_vector(vector, piece)
            text.store_vector(vector, value, place)

        with text.loop(0, whole, ROW_UNIT) as row:
            for first in range(0, ROW_UNIT, vector.lanes):
                copy(row, first)
        with text.loop(whole, part, ROW_UNIT) as row:
            for first in range(0, ROW_UNIT, vector.lanes):
                copy(row, first, text.mask_below(vector, text.sub("%rows", row), first))
        with text.loop(part, "%rows") as single:
            panel = text.mul(text.quotient(single, ROW_UNIT), ROW_UNIT)
            place = text.at(text.at(target, text.mul(panel, row_bytes)), text.mul(text.sub(single, panel), size))
            copy_element(text, tiles, text.at(source, text.mul(single, "%rsa")), place)
