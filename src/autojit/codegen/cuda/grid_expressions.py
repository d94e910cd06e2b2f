"""Expressions at the points that a lane computes together: vectors of neighbours, some of them in a row of slots.

What is computed at a point is known for as long as the point is (`Point.memo`), through all phases of a row, so a row
that lanes hold is read once, whatever is computed of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.expressions import ExpressionPrinter, Memo
from autojit.codegen.module_text import ModuleText
from autojit.codegen.piecewise import below
from autojit.codegen.scalar import Scalar
from autojit.codegen.walk import Walk
from autojit.core.records import record
from autojit.ir.index import LoopVariable, Opaque
from autojit.schedule.expressions import Expr, Guarded, Load


@record(frozen=False)
class Point:
    """An element of a row.

    Args:
        slot: which of the lane's vectors it is in.
        counters: of the inner loops.
        position: in the row; of one that is not inside, an element's that is.
        inside: the condition that it is an element of the row; None: it always is.
        memo: what has been computed of it.
    """

    slot: int
    counters: Mapping[LoopVariable, str]
    position: str
    inside: str | None
    memo: Memo


class GridExpressions(CudaKernel, ExpressionPrinter):
    """A kernel on a GPU whose threads compute expressions of a program."""

    def __init__(self, grid: Grid, walk: Walk, *, is_checked: bool) -> None:
        ExpressionPrinter.__init__(self, ModuleText(), "body", walk, is_checked=is_checked)
        self.run_by(grid)

    # -- points

    def vectors(self, first: str, step: int, slots: int, width: int, *, is_whole: bool) -> list[Point]:
        """The points of a lane: ``slots`` vectors of ``width`` neighbours, the first at a position of the row.

        Args:
            first: a position that is a multiple of ``width``, which divides the row's length.
            step: from one vector to the next.
            is_whole: none of them can lie outside of the row.
        """
        count, points = self.walk.inner_count, list[Point]()
        for slot in range(slots):
            start = self.offset(first, slot * step)
            inside = None if is_whole else self.test("ult", start, count)
            if inside is not None:
                start = self.at_most(start, max(count - width, 0))
            self.set_counters(self.walk.inner, start)
            counters = {v: self.variables[v] for v in self.walk.inner}
            points += [self._neighbour(slot, counters, start, inside, k) for k in range(width)]
        return points

    def _neighbour(
        self, slot: int, counters: Mapping[LoopVariable, str], start: str, inside: str | None, place: int
    ) -> Point:
        """A point of a vector: only the last counter differs from the first one's."""
        own = dict(counters)
        if place:
            last = self.walk.inner[-1]
            own[last] = self.offset(own[last], place)
        return Point(slot, own, self.offset(start, place), inside, {})

    def at_point(self, point: Point, expr: Expr, phase: int) -> Scalar:
        """An expression at a point."""
        self.variables.update(point.counters)
        return self.expr(expr, point.memo, phase)

    def compute(self, points: Sequence[Point], roots: Sequence[Expr], phase: int) -> None:
        """Compute expressions at all points, what they read first, so that reads of neighbours stand together."""
        reads = self._plain_reads(roots, phase)
        for expr in reads:
            for point in points:
                self.at_point(point, expr, phase)
        for point in points:
            for expr in roots:
                self.at_point(point, expr, phase)

    def _plain_reads(self, roots: Iterable[Expr], phase: int) -> list[Expr]:
        """The reads that happen at every point, at positions that are known without reading."""

        def is_apart(expr: Expr) -> bool:
            return expr not in self.walk.varying or isinstance(expr, Guarded)

        found = [
            expr
            for expr in below(roots, is_apart)
            if isinstance(expr, Load) and not any(isinstance(term, Opaque) for term in expr.positions[0].walk())
        ]
        return sorted(found, key=lambda expr: expr.serial)
