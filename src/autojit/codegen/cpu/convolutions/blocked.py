"""Planes and blocks of channels: what is contiguous along places becomes contiguous along channels, and back.

A *plane* is what one channel has, places one behind the other. A *block* holds a vector of channels for every place:
arithmetic on it has no idle lanes however few places a row has. Squares of as many planes as a vector has lanes are
transposed in registers.
"""

from __future__ import annotations

from dataclasses import replace

from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.vector_text import INTERNAL, VectorModule, VectorText
from autojit.codegen.module_text import Signature
from autojit.core.dtypes import DType

QUAD = 4
"""Lanes of 16 bytes: shuffles inside of them cost least."""

PACK = Signature("pack_block", "ptr planes, i64 stride, i64 last, i64 count, ptr block")
"""Fill a block from ``count`` places of the planes ``0..last``, ``stride`` bytes apart; the last plane fills up.

The block has room for whole squares.
"""

UNPACK = Signature("unpack_block", "ptr block, i64 count, ptr planes, i64 stride, i64 last, ptr products")
"""The inverse, for the planes that there are. ``products``, a vector, adds up zero times all that was written."""


def write_pack_block(module: VectorModule, lanes: Lanes, operand: DType) -> None:
    """Add `PACK`, for planes of the dtype of the block, or of bfloat16."""
    seen = replace(lanes, dtype=operand)
    text = VectorText(module, PACK, linkage="internal", attributes=INTERNAL)
    with text.loop(0, "%count", lanes.lanes) as first:
        mask = text.mask_below(lanes, text.sub("%count", first))
        start = text.at("%planes", text.mul(first, operand.size_bytes))
        rows = []
        for lane in range(lanes.lanes):
            plane = text.at(start, text.mul(text.least("%last", lane), "%stride"))
            rows.append(lanes.widened(text, text.masked_load(seen, plane, mask), seen))
        _store_square(text, lanes, transposed(text, lanes, rows), text.at("%block", text.mul(first, lanes.size_bytes)))
    text.finish()


def write_unpack_block(module: VectorModule, lanes: Lanes) -> None:
    """Add `UNPACK`. Masked stores are slow on some machines, so whole squares do without."""
    text = VectorText(module, UNPACK, linkage="internal", attributes=INTERNAL)
    n = lanes.lanes
    square = text.local(f"[{n} x {lanes.text}]")
    all_planes = text.test("sge", "%last", n - 1)
    planes = text.least(text.add("%last", 1), n)
    with text.loop(0, "%count", n) as first:
        left = text.sub("%count", first)
        start = text.at("%block", text.mul(first, lanes.size_bytes))
        rows = [text.load_vector(lanes, text.at(start, k * lanes.size_bytes)) for k in range(n)]
        found = transposed(text, lanes, rows)
        line = text.at("%planes", text.mul(first, lanes.dtype.size_bytes))
        with text.when(text.both(all_planes, text.test("sge", left, n))):
            total = text.load_vector(lanes, "%products")
            for number, row in enumerate(found):
                text.store_vector(lanes, row, text.at(line, text.mul("%stride", number)))
                total = lanes.multiply_add(text, row, "zeroinitializer", total)
            text.store_vector(lanes, total, "%products")
        with text.otherwise():
            _store_square(text, lanes, found, square)
            mask = text.mask_below(lanes, left)
            with text.loop(0, planes) as lane:
                row = text.masked_load(lanes, text.at(square, text.mul(lane, lanes.size_bytes)), mask)
                total = lanes.multiply_add(text, row, "zeroinitializer", text.load_vector(lanes, "%products"))
                text.store_vector(lanes, total, "%products")
                text.masked_store(lanes, row, text.at(line, text.mul("%stride", lane)), mask)
    text.finish()


def _store_square(text: VectorText, lanes: Lanes, rows: list[str], start: str) -> None:
    for k, row in enumerate(rows):
        text.store_vector(lanes, row, text.at(start, k * lanes.size_bytes))


def transposed(text: VectorText, lanes: Lanes, rows: list[str]) -> list[str]:
    """The transpose of a square: inside of quads of lanes first, then quads as wholes."""
    n, found = lanes.lanes, list(rows)
    quads = range(0, n, QUAD)
    low = [lane for q in quads for lane in (q, q + n, q + 1, q + 1 + n)]
    high = [lane + 2 for lane in low]
    first = [lane for q in quads for lane in (q, q + 1, q + n, q + 1 + n)]
    second = [lane + 2 for lane in first]
    for start in quads:
        a, b, c, d = found[start : start + QUAD]
        ab, cd = (text.shuffle(lanes, x, y, low) for x, y in ((a, b), (c, d)))
        ab_high, cd_high = (text.shuffle(lanes, x, y, high) for x, y in ((a, b), (c, d)))
        found[start : start + QUAD] = [
            text.shuffle(lanes, x, y, order) for x, y in ((ab, cd), (ab_high, cd_high)) for order in (first, second)
        ]
    step = QUAD
    while step < n:
        for k in range(n):
            if not k & step:
                a, b = found[k], found[k | step]
                kept = [lane if not lane & step else n + lane - step for lane in range(n)]
                moved = [lane + step if not lane & step else n + lane for lane in range(n)]
                found[k], found[k | step] = text.shuffle(lanes, a, b, kept), text.shuffle(lanes, a, b, moved)
        step *= 2
    return found
