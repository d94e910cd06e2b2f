"""Scatters of many rows: rows are sorted by the place they go to, then each place takes its rows, in their order.

The sort is stable, so a place meets its rows in the order of ``src``, as in the form of `scatter` and on the CPU, and
sums have the same bits. The work grows with the rows, not with their square, and does not depend on how often a place
is met until the end, where the rows of one place are taken one after the other by a thread for each few columns.

A chain of kernels: places of all rows (bad ones are reported here), sorted in one block or digit by digit; then the
places that are met.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cuda import network, radix
from autojit.codegen.cuda.counting import CountingKernel
from autojit.codegen.cuda.grid_expressions import GridExpressions, Point
from autojit.codegen.cuda.grid_function import Grid
from autojit.codegen.cuda.lane_limits import vector_width
from autojit.codegen.cuda.network import Network, NetworkKernel
from autojit.codegen.cuda.radix import Workspace
from autojit.codegen.cuda.thread_items import thread_grid
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.walk import Walk
from autojit.core.config import config
from autojit.core.sizes import is_symbolic
from autojit.ir.index import Index
from autojit.schedule.expressions import Applied

FEWEST_ROWS = 512  # of fewer, threads that look at all of them are done before a sort is [not measured]


def takes(walk: Walk) -> bool:
    """Whether a scatter whose rows have places of their own is worth sorting."""
    return bool(walk.inner_count) and FEWEST_ROWS <= walk.row_count <= radix.MOST_ELEMENTS


def print_sorted_scatter(walk: Walk, row_place: Index) -> GridText:
    """The kernels of a scatter; its buffers are those of `scatter`."""
    program, count = walk.program, walk.row_count
    (store,) = program.stores
    last_place = max(store.value.type.size - 1, 1)
    key_bytes = 4 if last_place < 1 << 32 else 8
    passes = 0 if count <= network.MOST_ELEMENTS else -(-last_place.bit_length() // 8)
    space = Workspace(1, count, key_bytes, passes)
    then = _Places(walk, row_place, space).print()
    if not passes:
        return _SortedRows(walk, row_place, space).print(then)
    roles, sizes = _buffers(walk)
    return _Rows(walk, row_place, space).print(space.passes_over(roles, sizes, then))


def _buffers(walk: Walk) -> tuple[Sequence[Buffer], Sequence[int]]:
    program, most = walk.program, walk.row_count * walk.inner_count
    values = [*program.loads, program.stores[0].value]
    ends = 0, len(values) - 1  # the base and the result, in the same memory
    roles = [
        Buffer("updates", v.type.dtype.size_bytes, most_elements=None if is_symbolic(most) else most)
        if k in ends
        else Buffer("reads", v.type.dtype.size_bytes)
        for k, v in enumerate(values)
    ]
    return roles, [v.type.size for v in values]


class _Kernel(GridExpressions, CountingKernel):
    """A kernel of the chain that computes expressions of the scatter's loops."""

    def __init__(self, walk: Walk, row_place: Index, space: Workspace, grid: Grid) -> None:
        GridExpressions.__init__(self, grid, walk, is_checked=config.check)
        self.row_place, self.space = row_place, space
        self.begin_counting(*_buffers(walk), space.size_bytes)

    def place_of(self, row: str) -> str:
        """The key of a row: where it goes."""
        self.row_memo = {}
        self.set_counters(self.walk.rows, row)
        for lookup in self.program.lookups.values():
            self.expr(lookup, self.row_memo, 0)
        place = self.index(self.row_place, self.row_memo, 0)
        return place if self.space.key_bytes == 8 else self.convert("trunc", place, "i64", self.space.kind)


class _Rows(_Kernel):
    """A thread for each row says where it goes."""

    def __init__(self, walk: Walk, row_place: Index, space: Workspace) -> None:
        super().__init__(walk, row_place, space, thread_grid(walk.row_count))

    def print(self, then: GridText) -> GridText:
        with self.numbered(self.walk.row_count) as row:
            self.space.put(self, row, self.place_of(row), row)
            with self.when(self.test("eq", row, 0)):
                self.space.begin(self, "0")
        return self.ended(then)


class _SortedRows(_Kernel, NetworkKernel):
    """One block says where rows go, and sorts them."""

    def __init__(self, walk: Walk, row_place: Index, space: Workspace) -> None:
        spread = Network(1, walk.row_count)
        super().__init__(walk, row_place, space, spread.grid)
        self.begin_network(spread, space.key_bytes)

    def print(self, then: GridText) -> GridText:
        self.fill(lambda _, row: self.place_of(row))
        self.sort()

        def leave(_: str, rank: str, row: str) -> None:
            key = self.key_at(rank)
            narrow = key if self.space.key_bytes == 8 else self.convert("trunc", key, "i64", self.space.kind)
            self.space.put(self, rank, narrow, row)

        self.take(leave)
        return self.ended(then)


class _Places(_Kernel):
    """A thread for some columns of each place that is met: those in front of its first row, or behind its last."""

    def __init__(self, walk: Walk, row_place: Index, space: Workspace) -> None:
        self.together = vector_width(walk)
        super().__init__(walk, row_place, space, thread_grid(walk.row_count * walk.inner_count // self.together))
        (self.stored,) = self.program.stores
        self.result = len(self.program.loads)

    def print(self) -> GridText:
        count, vectors = self.walk.row_count, self.walk.inner_count // self.together
        replaces = not isinstance(self.stored.expr, Applied)
        with self.numbered(count * vectors) as number:
            rank, vector = self.quotient(number, vectors), self.remainder(number, vectors)
            key = self.space.sorted_key(self, rank)
            neighbour = self.add(rank, 1) if replaces else self.sub(rank, 1)
            inside = self.most(self.least(neighbour, count - 1), 0)
            is_end = self.test("eq", rank, count - 1 if replaces else 0)
            is_mine = self.either(is_end, self.test("ne", self.space.sorted_key(self, inside), key))
            first = self.scaled(vector, self.together)
            with self.when(is_mine):
                self._replace(rank, first, key) if replaces else self._fold(rank, first, key)
        return self.ended()

    def _targets(self, key: str, points: Sequence[Point]) -> list[str]:
        """The written positions. That a key is a multiple of the vector's width LLVM does not see."""
        own = self.row_place.terms
        of_column = Index(tuple(pair for pair in self.stored.index.terms if pair not in own), 0)
        first = self.add(key, self.index(of_column, points[0].memo))
        if self.together > 1:
            self.of_vectors.add(first)
        return [self.behind(first, point.place) for point in points]

    def _points(self, rank: str, first: str) -> list[Point]:
        """The thread's columns of the row in a place of the order."""
        self.row_memo = {}
        self.set_counters(self.walk.rows, self.space.sorted_position(self, rank))
        return self.vectors(first, 0, 1, self.together, is_whole=True)

    def _replace(self, rank: str, first: str, key: str) -> None:
        """The last row wins."""
        points, expr = self._points(rank, first), self.stored.expr
        self.compute(points, [expr], 0)
        for point, target in zip(points, self._targets(key, points), strict=True):
            self.write(self.result, self.at_point(point, expr, 0), target)

    def _fold(self, rank: str, first: str, key: str) -> None:
        """Rows from one on are folded into what is there, as long as they go there."""
        fold = self.stored.expr
        assert isinstance(fold, Applied), "an element is folded into what is there"
        dtype, element, lower = fold.dtype, fold.args[1], fold.op.lower
        points = self.vectors(first, 0, 1, self.together, is_whole=True)
        self.row_memo = {}
        targets = self._targets(key, points)
        totals = [self.slot(dtype) for _ in points]
        before = [self.read(self.result, dtype, target) for target in targets]
        for total, value in zip(totals, before, strict=True):
            self.put(total, value)
        last = self.walk.row_count - 1

        def goes_on(state: list[str]) -> str:
            place = self.space.sorted_key(self, self.least(state[0], last))
            return self.both(self.test("sle", state[0], last), self.test("eq", place, key))

        def turn(state: list[str]) -> list[str]:
            met = self._points(state[0], first)
            self.compute(met, [element], 0)
            for total, point in zip(totals, met, strict=True):
                self.put(total, lower(self.emit, self.get(total, dtype), self.at_point(point, element, 0)))
            return [self.add(state[0], 1)]  # of a half, what was put is rounded

        self.repeat_while(("i64",), (rank,), goes_on, turn)
        for total, target in zip(totals, targets, strict=True):
            self.write(self.result, self.get(total, dtype), target)
