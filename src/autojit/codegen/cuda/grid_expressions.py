"""Expressions at the points that a lane computes together: vectors of neighbours, some of them in a row of slots.

What is computed at a point is known for as long as the point is (`Point.memo`), through all phases of a row, so a row
that lanes hold is read once, whatever is computed of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import prod

from autojit.codegen.cuda.grid_function import CudaKernel, Grid
from autojit.codegen.cuda.lane_limits import is_vector, vector_loops
from autojit.codegen.expressions import ExpressionPrinter, Memo
from autojit.codegen.function_text import Operand
from autojit.codegen.module_text import ModuleText
from autojit.codegen.piecewise import arms, below
from autojit.codegen.scalar import Scalar
from autojit.codegen.walk import Walk
from autojit.core.dtypes import DType
from autojit.core.records import record
from autojit.core.sizes import size_max
from autojit.ir.index import Index, LoopVariable, Opaque, Term
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
        base: a point from which it is ``shift`` elements away along the last loop, if there is one.
        first: the first of its vector, from which it is ``place`` elements away; None: itself.
    """

    slot: int
    counters: Mapping[LoopVariable, str]
    position: str
    inside: str | None
    memo: Memo
    base: Point | None = None
    shift: int = 0
    first: Point | None = None
    place: int = 0

    @property
    def start(self) -> Point:
        """The base, or itself."""
        return self.base or self


class GridExpressions(CudaKernel, ExpressionPrinter):
    """A kernel on a GPU whose threads compute expressions of a program."""

    def __init__(self, grid: Grid, walk: Walk, *, is_checked: bool) -> None:
        ExpressionPrinter.__init__(self, ModuleText(), "body", walk, is_checked=is_checked)
        self.run_by(grid)
        self.point: Point | None = None  # the one whose expressions are being computed
        self.of_vectors: set[Operand] = set()  # positions of vectors whose alignment LLVM does not see
        self.width = 1  # of the vectors that were made last
        self.along = walk.inner[-1] if walk.inner else None  # the loop that neighbours follow each other in
        self.has_line = True  # whether positions of points are those in the line of all
        self._line = frozenset(walk.position.terms)
        self.shifted: dict[str, tuple[str, int]] = {}  # a position -> another one, and the elements between them

    # -- addresses

    def index(self, index: Index, memo: Memo, phase: int = 0) -> str:
        """A position at the current point; of one that has a base, how far it is from the base's is kept."""
        point = self.point
        if point is not None and memo is point.memo and index not in memo and self._is_along(index):
            memo[index] = self.behind(self.offset(point.start.position, index.offset), point.shift)
            return str(memo[index])
        if point is not None and memo is point.memo and point.first is not None and self._wraps:
            start = point.first.memo.get(index)
            if start is not None and not _looks_up(index) and is_vector(self.walk, index, self.width):
                memo[index] = self.behind(start, point.place)
                return str(memo[index])
        found = super().index(index, memo, phase)
        if point is not None and point.base is None and memo is point.memo and self._hides(index):
            self.of_vectors.add(found)
        is_known = point is None or point.base is None or memo is not point.memo or found in self.shifted
        if is_known or self._wraps:
            return found
        assert point is not None and point.base is not None
        start, last = point.base.memo.get(index), self.along
        if start is not None and last not in index.divided_variables() and not _looks_up(index):
            self.shifted[found] = start, point.shift * dict[Term | None, int](index.terms).get(last, 0)
        return found

    def _is_along(self, index: Index) -> bool:
        """Whether a position is that of the point in a line of several loops: it is not made of their counters then."""
        return self.has_line and len(self.walk.inner) > 1 and index.offset >= 0 and frozenset(index.terms) == self._line

    def _hides(self, index: Index) -> bool:
        """Whether a position is a vector's, made of remainders: that these are multiples of its width LLVM forgets."""
        is_last = self.width > 1 and len(self.walk.inner) > 1 and self.along == self.walk.inner[-1]
        return is_last and is_vector(self.walk, index, self.width)

    @property
    def _wraps(self) -> bool:
        """Whether neighbours of a vector may be in different turns of the last loop."""
        return len(vector_loops(self.walk, self.width)) > 1

    def behind(self, position: str, shift: int) -> str:
        """A position this many elements behind another."""
        if not shift:
            return position
        found = self.offset(position, shift)
        self.shifted[found] = position, shift
        return found

    def address(self, pointer: str, dtype: DType, position: Operand) -> str:
        """The address of an element: a constant behind another's, where that is known.

        Of a sum LLVM may make an ``or`` that no longer says so, and then it does not see that elements are neighbours.
        """
        start, shift = self.shifted.get(str(position), (position, 0))
        first = super().address(pointer, dtype, start)
        if start in self.of_vectors:
            first = self.as_aligned(first, [pointer], self.width * dtype.size_bytes)
        return super().address(first, dtype, shift) if shift else first

    # -- points

    def vectors(self, first: str, step: int, slots: int, width: int, *, is_whole: bool) -> list[Point]:
        """The points of a lane: ``slots`` vectors of ``width`` neighbours, the first at a position of the row.

        Args:
            first: a position that is a multiple of ``width``. What is left of the row behind its last multiple is in
                no vector.
            step: from one vector to the next.
            is_whole: none of them can be outside of the row.
        """
        count, points = self.walk.inner_count // width * width, list[Point]()
        is_single = is_whole and len(self.walk.inner) == 1
        for slot in range(slots):
            start = self.offset(first, slot * step)
            inside = None if is_whole else self.test("ult", start, count)
            if inside is not None:
                start = self.at_most(start, size_max(count - width, 0))
            self.width = width
            self.set_counters(self.walk.inner, start)
            counters = {v: self.variables[v] for v in self.walk.inner}
            vector = [self.neighbour(slot, counters, start, inside, k) for k in range(width)]
            base, distance = (points[0], slot * step) if is_single and points else (vector[0], 0)
            for k, point in enumerate(vector):
                if point is not base:
                    point.base, point.shift = base, distance + k
                if k:
                    point.first, point.place = vector[0], k
            points += vector
        return points

    def neighbour(
        self, slot: int, counters: Mapping[LoopVariable, str], start: str, inside: str | None, place: int
    ) -> Point:
        """A point of a vector: only the counters of the loops that have such vectors differ from the first one's."""
        own, along = dict(counters), vector_loops(self.walk, self.width)
        if place and len(along) == 1:
            own[along[0]] = self.offset(own[along[0]], place)
        elif place:
            count = prod(v.extent for v in along)
            begin = start if len(along) == len(self.walk.inner) else self.remainder(start, count)
            self.set_counters(along, self.offset(begin, place))
            own.update({v: self.variables[v] for v in along})
        return Point(slot, own, self.offset(start, place), inside, {})

    def at_point(self, point: Point, expr: Expr, phase: int) -> Scalar:
        """An expression at a point."""
        self.variables.update(point.counters)
        self.point = point
        return self.expr(expr, point.memo, phase)

    def presence(self) -> str | None:
        """The condition that the current point is one that this lane is for; None: it always is."""
        return None if self.point is None else self.point.inside

    def read(self, argument: int, dtype: DType, position: str) -> Scalar:
        """An element of a buffer; surplus lanes read none of one that is overwritten, by others and meanwhile."""
        present = self.presence() if argument in self.program.in_place.values() else None
        if present is None:
            return super().read(argument, dtype, position)
        slot = self.slot(dtype)
        self.put(slot, self.emit.constant(0, dtype))
        with self.when(present):
            self.put(slot, super().read(argument, dtype, position))
        return self.get(slot, dtype)

    def picked_address(self, expr: Guarded, start: str, position: str, known: Memo) -> str:
        """The address of what a guard stands for; that of a vector is as aligned as the buffers are.

        LLVM sees that by itself where there are few arms: it looks six choices deep.
        """
        point, loads = self.point, list(_arms_of(expr))
        is_here = point is not None and known is point.memo  # not behind another guard
        if point is None or not is_here or not self._are_vectors(loads):
            return super().picked_address(expr, start, position, known)
        memo, key = (point.first or point).memo, ("vector", expr)
        if key not in memo:
            assert not point.place, "the first of a vector comes first"
            address = super().picked_address(expr, start, position, known)
            buffers = dict.fromkeys(self.buffers[load.buffer] for load in loads)
            memo[key] = self.as_aligned(address, buffers, self.width * expr.dtype.size_bytes)
        return str(super().address(memo[key], expr.dtype, point.place) if point.place else memo[key])

    def _are_vectors(self, loads: Iterable[Load]) -> bool:
        return self.width > 1 and all(is_vector(self.walk, load.positions[0], self.width) for load in loads)

    def compute(self, points: Sequence[Point], roots: Sequence[Expr], phase: int) -> None:
        """Compute expressions at all points, what they read first, so that reads of neighbours stand together."""
        if self.has_guards and not self._wraps:
            self._pick_for_vectors(points, roots, phase)
        for expr in self._plain_reads(points[0].memo if points else {}, roots):
            for _, vector in groupby(points, lambda point: point.slot):
                self.read_at(list(vector), expr, phase)
        for point in points:
            for expr in roots:
                self.at_point(point, expr, phase)

    def read_first(self, points: Sequence[Point], roots: Sequence[Expr], phase: int) -> list[Expr]:
        """Read, at points of one vector, what expressions read at every point; which reads these are."""
        memo = points[0].memo
        found: list[Expr] = [e for e in self._plain_reads(memo, roots) if isinstance(e, Load) and e not in memo]
        for expr in found:
            self.read_at(points, expr, phase)
        return found

    def read_at(self, vector: Sequence[Point], expr: Expr, phase: int) -> None:
        """Read what an expression reads at the points of a vector."""
        for point in vector:
            self.at_point(point, expr, phase)

    def is_read_together(self, guard: Guarded) -> bool:
        """Whether what a guard stands for is read wherever it says, for a whole vector at once."""
        return False

    def _pick_for_vectors(self, points: Sequence[Point], roots: Sequence[Expr], phase: int) -> None:
        """Where guards say the same of all neighbours of a vector, choose what they read once for all of them."""
        for _, vector in groupby(points, lambda point: point.slot):
            first, *others = vector
            self.variables.update(first.counters)
            self.point = None
            self.pick_addresses(roots, phase, self.walk.inner[-1:], first.memo, self.width)
            picked = {key: found for key, found in first.memo.items() if isinstance(key, tuple) and key[0] == "address"}
            for point in others:
                point.memo.update(picked)

    def _plain_reads(self, memo: Memo, roots: Iterable[Expr]) -> list[Expr]:
        """The reads that happen at every point, at positions that are known without reading."""
        found: list[Expr] = []
        behind: set[Expr] = set()  # what a guard stands for is read only where it says so

        def is_apart(expr: Expr) -> bool:
            return expr not in self.walk.varying or expr in behind or (isinstance(expr, Guarded) and not is_plain(expr))

        def is_plain(expr: Guarded) -> bool:
            return ("address", expr) in memo or ("address", expr) in self.row_memo or self.is_read_together(expr)

        for expr in below(roots, is_apart):
            if isinstance(expr, Guarded):
                found.append(expr)
                behind.update(expr.args)
            elif isinstance(expr, Load) and not _looks_up(expr.positions[0]):
                found.append(expr)
        return sorted(found, key=lambda expr: expr.serial)


def _arms_of(guard: Guarded) -> Iterator[Load]:
    """What a guard reads that only reads, and the guards in it."""
    for arm in arms(guard):
        if isinstance(arm, Guarded):
            yield from _arms_of(arm)
        elif isinstance(arm, Load):
            yield arm


def _looks_up(index: Index) -> bool:
    return any(isinstance(term, Opaque) for term in index.walk())
