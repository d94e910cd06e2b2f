"""The way a CPU goes through the loops of a program: vectors along the last of them.

A nest that no reduction has split is walked with its last loop inside.
"""

from __future__ import annotations

from functools import cached_property

from autojit.codegen.walk import Walk
from autojit.schedule.expressions import Applied, Expr, Guarded, RandomWord
from autojit.schedule.loops import LoopProgram

# Of a mathematical function or a quotient, of a guard and of a random word, in cheap ops. No measurement is recorded;
# they only tell what is kept for a later phase (`machine.KEPT_COST`) from what is computed again.
FUNCTION_COST, GUARD_COST, RANDOM_COST = 7, 2, 40


class CpuWalk(Walk):
    """One program's."""

    def __init__(self, program: LoopProgram) -> None:
        rows, inner = program.rows, program.inner
        if program.is_flat and rows:
            rows, inner = rows[:-1], rows[-1:]
        super().__init__(program, rows, inner)

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
