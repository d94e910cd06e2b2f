"""Transforms of minimal filtering on vectors of channels: ``T X S^T`` for a small grid ``X`` of vectors.

A matrix of `minimal_filtering` has points of both signs. Such rows, or columns, differ in the signs of some entries, so
what they have in common is computed once: 12 operations for 6 x 6 entries, 13 for 4 x 6.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from autojit.codegen.cpu.convolutions.minimal_filtering import Matrix, transposed
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.vector_text import VectorText

Term = tuple[Fraction, str]


def two_sided(
    text: VectorText, lanes: Lanes, rows: Matrix, columns: Matrix, grid: Sequence[Sequence[str]]
) -> list[list[str]]:
    """``rows @ grid @ columns^T``."""
    by_column = [_apply(text, lanes, rows, column) for column in zip(*grid, strict=True)]
    return [_apply(text, lanes, columns, row) for row in zip(*by_column, strict=True)]


def _apply(text: VectorText, lanes: Lanes, matrix: Matrix, values: Sequence[str]) -> list[str]:
    """The product of a matrix and a column of vectors."""
    if len(matrix) == len(values) == 1:  # of one tap: one
        return list(values)
    pairs = _pairs(transposed(matrix))
    if pairs:
        return _by_columns(text, lanes, matrix, values, pairs)
    found = [""] * len(matrix)
    for first, second in _pairs(matrix):
        same = [a == b for a, b in zip(matrix[first], matrix[second], strict=True)]
        even = [(c, v) for c, v, s in zip(matrix[first], values, same, strict=True) if s]
        odd = [(c, v) for c, v, s in zip(matrix[first], values, same, strict=True) if not s]
        scale = next(c for c, _ in odd if c)
        left = combined(text, lanes, even)
        right = combined(text, lanes, [(c / scale, v) for c, v in odd])
        found[first] = combined(text, lanes, [(Fraction(1), left), (scale, right)])
        found[second] = combined(text, lanes, [(Fraction(1), left), (-scale, right)])
    for number, row in enumerate(matrix):
        found[number] = found[number] or combined(text, lanes, list(zip(row, values, strict=True)))
    return found


def _by_columns(
    text: VectorText, lanes: Lanes, matrix: Matrix, values: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> list[str]:
    """Sums and differences of the values of columns that differ by signs, then rows of these."""
    one, taken = Fraction(1), {k for pair in pairs for k in pair}
    plus = {pair: combined(text, lanes, [(one, values[pair[0]]), (one, values[pair[1]])]) for pair in pairs}
    minus = {pair: combined(text, lanes, [(one, values[pair[0]]), (-one, values[pair[1]])]) for pair in pairs}
    found = []
    for row in matrix:
        terms = [(row[a], (plus if row[a] == row[b] else minus)[a, b]) for a, b in pairs]
        terms += [(c, v) for k, (c, v) in enumerate(zip(row, values, strict=True)) if k not in taken]
        found.append(combined(text, lanes, terms))
    return found


@lru_cache(maxsize=64)
def _pairs(rows: Matrix) -> list[tuple[int, int]]:
    """Rows that are equal but for the signs of some entries, and not of all."""
    found: list[tuple[int, int]] = []
    for first, row in enumerate(rows):
        for second in range(first + 1, len(rows)):
            signs = [0 if a == b else 1 if a == -b else 2 for a, b in zip(row, rows[second], strict=True) if a or b]
            if set(signs) == {0, 1} and all(second not in pair and first not in pair for pair in found):
                found.append((first, second))
    return found


def combined(text: VectorText, lanes: Lanes, terms: Sequence[Term]) -> str:
    """The sum of factors times vectors, by additions where a factor is one."""
    present = sorted((t for t in terms if t[0]), key=lambda term: (term[0] != 1, abs(term[0]) != 1))
    if not present:
        return "zeroinitializer"
    (factor, total), *rest = present
    if factor != 1:
        total = text.binary("fmul", constant(lanes, factor), total, lanes.text)
    for factor, value in rest:
        if abs(factor) == 1:
            total = text.binary("fadd" if factor == 1 else "fsub", total, value, lanes.text)
        else:
            total = lanes.multiply_add(text, constant(lanes, factor), value, total)
    return total


@lru_cache(maxsize=256)
def constant(lanes: Lanes, value: Fraction) -> str:
    """The literal of a vector whose elements are all this float32."""
    (near,) = struct.unpack("<f", struct.pack("<f", float(value)))
    (word,) = struct.unpack("<Q", struct.pack("<d", near))
    return f"<{', '.join([f'float 0x{word:016X}'] * lanes.lanes)}>"
