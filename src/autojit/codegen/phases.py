"""The passes over the inner loops of a row, which its reductions separate, and what is left when they are done."""

from __future__ import annotations

from dataclasses import field

from autojit.codegen.walk import Walk
from autojit.core.records import record
from autojit.schedule.expressions import Expr
from autojit.schedule.loops import Accumulator, RowReduction, Store

Stores = list[tuple[int, Store]]
Accumulators = list[tuple[int, Accumulator]]
"""With their places among those of the program."""


@record(frozen=False)
class Phase:
    """What one pass over the inner loops of a row computes; ``kept``: what a target keeps for later phases."""

    number: int
    reductions: list[RowReduction]
    stores: Stores
    accumulators: Accumulators
    kept: list[Expr] = field(default_factory=list)

    def roots(self) -> list[Expr]:
        stores, sums = (s.expr for _, s in self.stores), (a.expr for _, a in self.accumulators)
        return [*(r.expr for r in self.reductions), *stores, *sums, *self.kept]


def phases_of(walk: Walk) -> list[Phase]:
    """The phases of a row, those of which nothing is left to do among them."""
    program = walk.program
    inner = [(k, s) for k, s in enumerate(program.stores) if _is_full(walk, s)]
    sums = [(k, a) for k, a in enumerate(program.accumulators) if _accumulates_inside(walk, a)]
    roots = [*(r.expr for r in program.reductions), *(s.expr for _, s in inner), *(a.expr for _, a in sums)]
    last = max((root.phase for root in roots), default=-1)
    return [
        Phase(
            number,
            [r for r in program.reductions if r.expr.phase == number],
            [(k, s) for k, s in inner if s.expr.phase == number],
            [(k, a) for k, a in sums if a.expr.phase == number],
        )
        for number in range(last + 1)
    ]


def row_results(walk: Walk) -> tuple[Stores, Accumulators]:
    """What is stored and accumulated once a row, after its last phase."""
    program = walk.program
    stores = [(k, s) for k, s in enumerate(program.stores) if not _is_full(walk, s)]
    sums = [(k, a) for k, a in enumerate(program.accumulators) if not _accumulates_inside(walk, a)]
    return stores, sums


def _is_full(walk: Walk, store: Store) -> bool:
    return store.expr in walk.varying or walk.moves(store.index)


def _accumulates_inside(walk: Walk, accumulator: Accumulator) -> bool:
    return accumulator.kind == "col" or accumulator.full or accumulator.expr in walk.varying
