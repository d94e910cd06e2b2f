"""Dot products of rows with one vector: the matrix product with a single column (n = 1).

Rows are taken several at a time, so that the vector is read once for all of them. The order in which one row is summed
depends on k alone: `CHAINS` vectors side by side, then single vectors, then across lanes.
"""

from __future__ import annotations

from functools import partial

from autojit.codegen.cpu.products.tiles import TileSet
from autojit.codegen.cpu.vector_text import Vector, VectorText
from autojit.codegen.module_text import Signature

CHAINS = 4
"""Independent vector sums of one row: with two rows at a time, the eight that hide the latency of the multiply-add."""


def dots_signature(tiles: TileSet) -> Signature:
    """What `write_dots` writes: C[i] = A[i] . x with contiguous rows and x, strides in bytes; ``k >= 1``."""
    parameters = "i64 m, i64 k, ptr a, i64 rsa, ptr x, ptr c, i64 rsc, i64 accumulate"
    return Signature(f"aj_dots_{tiles.dtype.short}", parameters)


def write_dots(tiles: TileSet, text: VectorText) -> None:
    """What the function does."""
    vector = tiles.widest
    rows = 4 if tiles.registers == 32 else 2
    step = vector.lanes * CHAINS
    text.line(f"%whole = udiv i64 %k, {step}")
    text.line(f"%rest = urem i64 %k, {step}")
    text.line("%adds = icmp ne i64 %accumulate, 0")
    state = ["%m", "%a", "%c"]
    for height in (rows, 1):
        kinds = ("i64", "ptr", "ptr")
        state = text.while_left(height, kinds, state, partial(_rows, text, tiles, vector, height))


def _rows(text: VectorText, tiles: TileSet, vector: Vector, height: int, state: list[str]) -> list[str]:
    """`height` rows; returns the rows left below them and where A and C go on."""
    rows_left, a, c = state
    kinds = ["i64", "i64", *[vector.text] * (height * CHAINS)]
    bases = [a]
    for _ in range(height - 1):
        bases.append(text.at(bases[-1], "%rsa"))
    first = ["%whole", "0", *["zeroinitializer"] * (height * CHAINS)]
    after = text.while_left(1, kinds, first, partial(_long_step, text, tiles, vector, bases))
    heads = after[2::CHAINS]
    state = ["%rest", after[1], *heads]
    after_rest = text.while_left(1, kinds[: 2 + height], state, partial(_short_step, text, tiles, vector, bases))
    for row in range(height):
        sums = [after_rest[2 + row], *after[3 + row * CHAINS : 2 + (row + 1) * CHAINS]]
        _finish_row(text, vector, sums, text.at(c, text.mul("%rsc", row)))
    below = text.at(a, text.mul("%rsa", height)), text.at(c, text.mul("%rsc", height))
    return [text.sub(rows_left, height), *below]


def _long_step(text: VectorText, tiles: TileSet, vector: Vector, bases: list[str], state: list[str]) -> list[str]:
    """`CHAINS` vectors of every row. `state` is steps left, bytes done, sums row by row."""
    left, done, *sums = state
    x = [text.load_vector(vector, text.at(text.at("%x", done), chain * vector.size_bytes)) for chain in range(CHAINS)]
    news = []
    for row, base in enumerate(bases):
        start = text.at(base, done)
        for chain in range(CHAINS):
            a = text.load_vector(vector, text.at(start, chain * vector.size_bytes))
            news.append(text.multiply_add(vector, a, x[chain], sums[row * CHAINS + chain], fused=tiles.fused))
    return [text.sub(left, 1), text.add(done, CHAINS * vector.size_bytes), *news]


def _short_step(text: VectorText, tiles: TileSet, vector: Vector, bases: list[str], state: list[str]) -> list[str]:
    """One vector of every row, cut where k ends. `state` is elements left, bytes done, one sum per row."""
    left, done, *sums = state
    mask = text.mask_below(vector, left)
    x = text.masked_load(vector, text.at("%x", done), mask)
    news = []
    for base, total in zip(bases, sums, strict=True):
        a = text.masked_load(vector, text.at(base, done), mask)
        news.append(text.multiply_add(vector, a, x, total, fused=tiles.fused))
    return [text.sub(left, vector.lanes), text.add(done, vector.size_bytes), *news]


def _finish_row(text: VectorText, vector: Vector, sums: list[str], target: str) -> None:
    v, element = vector.text, vector.element
    while len(sums) > 1:
        sums = [text.binary("fadd", a, b, v) for a, b in zip(sums[::2], sums[1::2], strict=True)]
    dot = text.value(f"call reassoc {element} @llvm.vector.reduce.fadd.{vector.suffix}({element} -0.0, {v} {sums[0]})")
    text.store(element, add_old_value(text, element, dot, target), target)


def add_old_value(text: VectorText, element: str, value: str, target: str) -> str:
    """`value`, plus what `target` holds if ``%adds``."""
    with text.when("%adds"):
        total = text.binary("fadd", text.load(element, target), value, element)
    return text.merge(element, total, value)
