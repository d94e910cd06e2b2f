"""The way a CPU goes through the loops of a program: rows outside, inner loops inside, vectors along the last of them.

A nest that no reduction has split is walked with its last loop inside. What does not vary along the inner loops is
computed once a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import prod

from autojit.ir.index import Index, Opaque, Term
from autojit.schedule.expressions import Applied, Expr, Guarded, RandomWord
from autojit.schedule.loops import LoopProgram

# Of a mathematical function or a quotient, of a guard and of a random word, in cheap ops. No measurement is recorded;
# they only tell what is kept for a later phase (`machine.KEPT_COST`) from what is computed again.
FUNCTION_COST, GUARD_COST, RANDOM_COST = 7, 2, 40


class Walk:
    """One program's."""

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self.rows, self.inner = program.rows, program.inner
        if program.is_flat and program.rows:
            self.rows, self.inner = program.rows[:-1], program.rows[-1:]
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

    @cached_property
    def costs(self) -> dict[Expr, int]:
        """Arithmetic steps of each expression, those of its operands included."""
        costs: dict[Expr, int] = {}
        for expr in self.program.exprs:
            cost = 0
            if isinstance(expr, Applied):
                cost = (1 if expr.op.is_cheap else FUNCTION_COST) + sum(costs[arg] for arg in expr.args)
            elif isinstance(expr, Guarded):
                cost = GUARD_COST + sum(costs[arg] for arg in expr.args)
            elif isinstance(expr, RandomWord):
                cost = RANDOM_COST
            costs[expr] = cost
        return costs
