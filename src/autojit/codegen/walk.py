"""A way through the loops of a program: rows outside, inner loops inside. A target chooses which are which.

What does not vary along the inner loops is computed once a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from autojit.ir.index import Index, LoopVariable, Opaque, Term
from autojit.schedule.expressions import Expr
from autojit.schedule.loops import LoopProgram


class Walk:
    """One program's: ``rows`` and ``inner`` are its loops, from outside to inside."""

    def __init__(self, program: LoopProgram, rows: Sequence[LoopVariable], inner: Sequence[LoopVariable]) -> None:
        self.program = program
        self.rows, self.inner = rows, inner
        self._inside: frozenset[Term] = frozenset(self.inner)
        self.varying: set[Expr] = set()  # the expressions that have several values in one row
        for expr in program.exprs:
            if not self.varying.isdisjoint(expr.args) or self._looks_inside(expr):
                self.varying.add(expr)

    @property
    def row_count(self) -> int:
        return prod(v.extent for v in self.rows)

    @property
    def inner_count(self) -> int:
        return prod(v.extent for v in self.inner)

    @property
    def position(self) -> Index:
        """The row-major position among the inner loops."""
        found = Index()
        for variable in self.inner:
            found = found * variable.extent + Index.of(variable)
        return found

    def moves(self, index: Index) -> bool:
        """Whether an inner loop moves a position."""
        return not self._inside.isdisjoint(index.walk())

    def _looks_inside(self, expr: Expr) -> bool:
        if not expr.positions and not expr.guards:
            return False
        indices = [*expr.positions, *[index for index, _, _ in expr.guards]]
        return any(map(self.moves, indices)) or not self.varying.isdisjoint(self.lookups_of(indices))

    def lookups_of(self, indices: Iterable[Index]) -> list[Expr]:
        """What indices look up at run time."""
        lookups = self.program.lookups
        if not lookups:
            return []
        return [lookups[term.text] for index in indices for term in index.walk() if isinstance(term, Opaque)]
