"""Scatters: elements of ``src`` set or folded in at run-time places, in the order of ``src`` as on the CPU.

The loops are those of `schedule.scatter_loops`. A thread has neighbouring columns (positions of the inner loops), as
many as one access takes, so what it writes no other thread's columns do; and a share of the rows' places, so that
threads of the same columns share the work: each looks at all rows in order and takes those whose place falls to its
share. What an element meets therefore comes in one order, whatever the grid.

Buffers: the operands, the base first, then the result, which holds the base before the kernel begins.
"""

from __future__ import annotations

from autojit.codegen.cuda import scatter_sorted
from autojit.codegen.cuda.grid_expressions import GridExpressions
from autojit.codegen.cuda.grid_function import WARP, Grid
from autojit.codegen.cuda.lane_limits import vector_width
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.walk import Walk
from autojit.core.config import config
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, size_max, typical
from autojit.ir.graph import Node
from autojit.ir.index import Index
from autojit.schedule.loops import LoopProgram
from autojit.schedule.scatter_loops import scatter_program

MOST_THREADS = 128  # of a block
BUSY_THREADS = 128  # per processor: more threads would only look at the same rows
SPREADING = 0x9E3779B1
"""An odd number near 2^32 over the golden ratio: neighbouring places fall to different shares (Knuth, TAOCP 3, 6.4)."""


@record
class _Plan:
    """Who takes what: threads are numbered share after share, ``width`` neighbouring columns after the others."""

    columns: int
    width: int
    shares: int

    @property
    def vectors(self) -> int:
        return self.columns // self.width

    @property
    def threads(self) -> int:
        return min(MOST_THREADS, -(-typical(self.vectors) * self.shares // WARP) * WARP)

    @property
    def grid(self) -> Grid:
        return Grid(self.threads, (-(-self.vectors * self.shares // self.threads), 1, 1))


def print_scatter(node: Node, target: CudaTarget) -> GridText:
    """The kernel of a scatter; sums of halves were widened by the passes."""
    program = scatter_program(node)
    walk = Walk(program, program.rows, program.inner)
    row_place = _place_of_row(walk)
    is_open = is_symbolic(walk.row_count * walk.inner_count)  # whose memory would be so, too
    if row_place is not None and not is_open and scatter_sorted.takes(walk):
        return scatter_sorted.print_sorted_scatter(walk, row_place)
    shares, width = 1, vector_width(walk)
    columns = size_max(1, walk.inner_count)
    while columns % width != 0:  # of one row, which is a line, what is left behind the vectors is nobody's here
        width //= 2
    if row_place is not None:
        most = min(typical(walk.row_count), BUSY_THREADS * target.processors // typical(columns // width))
        while 2 * shares <= most:
            shares *= 2
    return _ScatterPrinter(program, walk, _Plan(columns, width, shares), row_place).print()


def _place_of_row(walk: Walk) -> Index | None:
    """The part of the written position that the row decides; None where no part is the row's alone."""
    index = walk.program.stores[0].index
    own: list[tuple[object, int]] = []
    for term, coefficient in index.terms:
        single = Index.of(term)
        if not walk.moves(single):
            own.append((term, coefficient))
        elif any(variable in set(single.walk()) for variable in walk.rows):
            return None
    return Index(tuple(pair for pair in index.terms if pair in own), index.offset)


class _ScatterPrinter(GridExpressions):
    """Prints one scatter."""

    def __init__(self, program: LoopProgram, walk: Walk, plan: _Plan, row_place: Index | None) -> None:
        super().__init__(plan.grid, walk, is_checked=config.check)
        self.plan, self.row_place = plan, row_place

    def print(self) -> GridText:
        program, plan = self.program, self.plan
        (store,) = program.stores
        self.pointers([v.type.size for v in (*program.loads, store.value)])
        number = self.offset(self.scaled(self.block_x, plan.threads), self.thread)
        share, vector = self.quotient(number, plan.vectors), self.remainder(number, plan.vectors)
        if self.walk.row_count:
            with self.loop(0, self.walk.row_count, stem="row") as row:
                self._row(row, share, vector)
        sizes = [v.type.dtype.size_bytes for v in program.loads]
        roles = [Buffer("updates" if k == 0 else "reads", size) for k, size in enumerate(sizes)]
        return self.finished([*roles, Buffer("updates", sizes[0])])

    def _row(self, row: str, share: str, vector: str) -> None:
        """One row: its look-ups, and the thread's columns of it if the row is of the thread's share."""
        self.row_memo = {}
        self.set_counters(self.walk.rows, row)
        for lookup in self.program.lookups.values():
            self.expr(lookup, self.row_memo, 0)
        if not self.walk.inner_count:
            return
        mine = self.test("eq", self._share_of_row(), share) if self.plan.shares > 1 else self.test("eq", share, 0)
        (store,) = self.program.stores
        width = self.plan.width
        with self.when(mine):
            points = self.vectors(self.scaled(vector, width), 0, 1, width, is_whole=True)
            self.compute(points, [store.expr], 0)
            ready = [(self.at_point(p, store.expr, 0), self.index(store.index, p.memo)) for p in points]
            for value, position in ready:
                self.write(len(self.program.loads), value, position)

    def _share_of_row(self) -> str:
        """The share that the row's place falls to."""
        assert self.row_place is not None
        place = self.index(self.row_place, self.row_memo, 0)
        spread = self.binary("lshr", self.binary("and", self.binary("mul", place, SPREADING), (1 << 32) - 1), 16)
        return self.binary("and", spread, self.plan.shares - 1)
