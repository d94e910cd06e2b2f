"""Transforms of minimal filtering on vectors of channels: ``T X S^T`` for a small grid ``X`` of vectors.

A matrix of `minimal_filtering` has points of both signs. Such rows, or columns, differ in the signs of some entries, so
what they have in common is computed once: 12 operations for 6 x 6 entries, 13 for 4 x 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

from autojit.codegen.cpu.convolutions.minimal_filtering import Matrix, transposed
from autojit.codegen.cpu.convolutions.movers import Lanes
from autojit.codegen.cpu.vector_text import VectorText
from autojit.core.records import record

Term = tuple[Fraction, int]
"""A factor, and the number of the vector that it multiplies."""
Sum = tuple[tuple[str, int], ...]
"""Operands of a sum in the order in which they are added: how (``+``, ``-``, or the literal of an element that the
vector is multiplied by), and the number of the vector. The first that is ``+`` is the start of the sum.
"""


@record(eq=False)
class Plan:
    """The product of a matrix and a column of vectors, as sums.

    Attributes:
        sums: of the vectors of the column and, numbered after them, of the sums before.
        results: the number of every row's.
    """

    sums: tuple[Sum, ...]
    results: tuple[int, ...]

    def write(self, text: VectorText, lanes: Lanes, column: Sequence[str]) -> list[str]:
        """Add the instructions; the results."""
        known = list(column)
        for terms in self.sums:
            known.append(_summed(text, lanes, terms, known))
        return [known[number] for number in self.results]


def two_sided(
    text: VectorText, lanes: Lanes, rows: Matrix, columns: Matrix, grid: Sequence[Sequence[str]]
) -> list[list[str]]:
    """``rows @ grid @ columns^T``."""
    down, across = plan_of(rows), plan_of(columns)
    by_column = [down.write(text, lanes, column) for column in zip(*grid, strict=True)]
    return [across.write(text, lanes, row) for row in zip(*by_column, strict=True)]


@lru_cache(maxsize=64)
def plan_of(matrix: Matrix) -> Plan:
    """How a matrix is applied; fractions are compared and hashed here, and for no column again."""
    return _Planner(matrix).plan()


class _Planner:
    """Finds the sums of a matrix."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.width = len(matrix[0])
        self.sums: list[Sum] = []

    def plan(self) -> Plan:
        if len(self.matrix) == self.width == 1:  # of one tap: one
            return Plan((), (0,))
        pairs = _pairs(transposed(self.matrix))
        results = self._by_columns(pairs) if pairs else self._by_rows()
        return Plan(tuple(self.sums), tuple(results))

    def _add(self, terms: Iterable[Term]) -> int:
        """A sum more: its number. Factors of one come first, since the sum then begins without an instruction."""
        present = sorted((t for t in terms if t[0]), key=lambda term: (term[0] != 1, abs(term[0]) != 1))
        signs = {Fraction(1): "+", Fraction(-1): "-"}
        parts = [(signs.get(factor) or _literal(factor), number) for factor, number in present]
        if parts and parts[0][0] == "-":  # nothing to subtract from
            parts[0] = _literal(Fraction(-1)), parts[0][1]
        self.sums.append(tuple(parts))
        return self.width + len(self.sums) - 1

    def _by_rows(self) -> list[int]:
        """Rows that differ by signs have the sum of what is equal and the sum of what is not."""
        found: dict[int, int] = {}
        one = Fraction(1)
        for first, second in _pairs(self.matrix):
            pairs = list(zip(self.matrix[first], self.matrix[second], strict=True))
            odd = [(a, k) for k, (a, b) in enumerate(pairs) if a != b]
            scale = next(c for c, _ in odd if c)
            left = self._add((a, k) for k, (a, b) in enumerate(pairs) if a == b)
            right = self._add((c / scale, k) for c, k in odd)
            found[first] = self._add([(one, left), (scale, right)])
            found[second] = self._add([(one, left), (-scale, right)])
        for number, row in enumerate(self.matrix):
            if number not in found:
                found[number] = self._add((c, k) for k, c in enumerate(row))
        return [found[number] for number in range(len(self.matrix))]

    def _by_columns(self, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Sums and differences of the values of columns that differ by signs, then rows of these."""
        one, taken = Fraction(1), {k for pair in pairs for k in pair}
        plus = {(a, b): self._add([(one, a), (one, b)]) for a, b in pairs}
        minus = {(a, b): self._add([(one, a), (-one, b)]) for a, b in pairs}
        found = []
        for row in self.matrix:
            terms = [(row[a], (plus if row[a] == row[b] else minus)[a, b]) for a, b in pairs]
            found.append(self._add([*terms, *((c, k) for k, c in enumerate(row) if k not in taken)]))
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


def _summed(text: VectorText, lanes: Lanes, terms: Sum, known: Sequence[str]) -> str:
    """The value of a sum of known vectors."""
    if not terms:
        return "zeroinitializer"
    (how, number), *rest = terms
    total = known[number]
    if how != "+":
        total = text.binary("fmul", f"splat ({how})", total, lanes.text)
    for how, number in rest:
        if how == "+" or how == "-":
            total = text.binary("fadd" if how == "+" else "fsub", total, known[number], lanes.text)
        else:
            total = lanes.multiply_add(text, f"splat ({how})", known[number], total)
    return total


def _literal(value: Fraction) -> str:
    """A float32 as LLVM writes it."""
    (near,) = struct.unpack("<f", struct.pack("<f", float(value)))
    (word,) = struct.unpack("<Q", struct.pack("<d", near))
    return f"float 0x{word:016X}"
