"""A LoopProgram as one grid.

How to read: ``print_grid`` -> ``GridPrinter.print`` -> ``_flat_turns`` or ``_row_turns`` -> ``_row`` -> ``_phase`` ->
``_tile``. Who computes what is in `grid_plan`, expressions at points in `grid_expressions`, folds in `grid_folds`, the
kernel that makes results of partial results in `combine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby

from autojit.codegen.cuda.combine import print_combine
from autojit.codegen.cuda.grid_expressions import Point
from autojit.codegen.cuda.grid_function import MOST_REGISTERS
from autojit.codegen.cuda.grid_plan import plan_grid
from autojit.codegen.cuda.lane_folds import State
from autojit.codegen.cuda.lane_limits import REGISTERS, accesses, is_vector
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.transposing import TransposingTiles
from autojit.codegen.folding import rounded_to
from autojit.codegen.function_text import Operand
from autojit.codegen.grid_text import Buffer, GridText
from autojit.codegen.phases import Phase, phases_of, row_results
from autojit.codegen.scalar import Scalar
from autojit.core.config import config
from autojit.core.sizes import is_symbolic, surely_less
from autojit.schedule.expressions import Expr, Load
from autojit.schedule.loops import Accumulator, LoopProgram, Store

MANY_ACCESSES = 96  # of a lane at once, above which it is told how many registers it may have for them
TURNS_AT_ONCE = 4  # where they only read and fold: their reads do not wait for each other
LIGHT = 32  # expressions, up to which that many copies are had


class GridPrinter(TransposingTiles):
    """Prints one kernel."""

    def __init__(self, program: LoopProgram, target: CudaTarget) -> None:
        walk, plan = plan_grid(program, target)
        super().__init__(plan, walk, is_checked=config.check)
        self.phases = [phase for phase in phases_of(walk) if phase.roots()]
        self.row_stores, self.row_sums = row_results(walk)
        self.alive: str | None = None  # whether the row is one that the group has to walk; None: it is
        self.first = "0"  # where the group's tile begins
        if accesses(walk) * plan.slots * plan.vector > MANY_ACCESSES and plan.threads * MOST_REGISTERS <= REGISTERS:
            self.most_registers = MOST_REGISTERS

    def print(self) -> GridText:
        program, plan = self.program, self.plan
        values = [*program.loads, *(s.value for s in program.stores), *(a.value for a in program.accumulators)]
        self.pointers([v.type.size for v in values])
        self.open_totals()
        if plan.transposes is not None:
            self._hoist_all()
            points = self.tile_points(plan.transposes)
            for phase in self.phases:
                self._tile(phase, points)
        elif plan.is_flat:
            with self._where_points_are(walk_all=bool(self.totals)):
                self._flat_turns()
        elif plan.teams:
            self._row_turns()
        self.close_totals()
        combine = print_combine(self, self.buffer_roles()) if self.partial_results else None
        return self.finished(self.buffer_roles(), partial_bytes=self.partial_bytes, combine=combine)

    @contextmanager
    def _where_points_are(self, *, walk_all: bool = True) -> Iterator[None]:
        """What is written inside runs unless an open size leaves no points: surplus lanes would read one all the same.

        Args:
            walk_all: there are surplus lanes; else each asks whether its point is one.
        """
        count = self.walk.row_count * self.walk.inner_count
        if not walk_all or not is_symbolic(count) or surely_less(0, count):
            yield
            return
        with self.when(self.test("ne", count, 0)), self._inside():
            yield

    def _most_read(self, buffer: int) -> int | None:
        """How many elements of a buffer are read at most: one at each point by each expression."""
        points = self.walk.row_count * self.walk.inner_count
        reads = sum(isinstance(expr, Load) and expr.buffer == buffer for expr in self.program.exprs)
        return None if is_symbolic(points) else points * reads

    def buffer_roles(self) -> list[Buffer]:
        """What is done with each buffer."""
        program = self.program
        overwritten = set(program.in_place.values())
        apart = {e.buffer for e in program.exprs if isinstance(e, Load) and not self._is_read_in_vectors(e)}
        loads = [
            Buffer(
                "updates" if k in overwritten else "reads", v.type.dtype.size_bytes, k not in apart, self._most_read(k)
            )
            for k, v in enumerate(program.loads)
        ]
        stores = [
            Buffer(
                "updates" if s.value in program.in_place else "writes",
                s.value.type.dtype.size_bytes,
                program.in_place.get(s.value) not in apart,
            )
            for s in program.stores
        ]
        totals = [  # what is left to combine is written by the kernel that does
            Buffer("takes" if k in self.partial_results else "writes", a.value.type.dtype.size_bytes, True)
            for k, a in enumerate(program.accumulators)
        ]
        return [*loads, *stores, *totals]

    def _is_read_in_vectors(self, load: Load) -> bool:
        """Whether lanes read whole vectors of neighbours, and single elements behind the last one.

        Not where a guard lets a part of a vector read, nor where all is so short that LLVM sees what all lanes read.
        """
        vector = self.plan.vector
        is_short = surely_less(self.walk.inner_count, 2 * vector)
        return vector > 1 and not (is_short or self.has_guards) and is_vector(self.walk, load.positions[0], vector)

    def presence(self) -> str | None:
        """The condition that the current point is one that this lane is for: surplus rows are others' rows."""
        return self.all_of(super().presence(), self.alive)

    # -- flat programs

    def _flat_turns(self) -> None:
        """Tiles of the line of all points, one for a block, or as many as it takes where something is folded."""
        plan = self.plan
        if not self.walk.inner_count:
            return
        self._hoist_all()
        if plan.blocks == plan.tiles:
            self._flat_tile(self.block_x)
        else:
            with self.light_loop(self.block_x, plan.tiles, plan.blocks) as tile, self._inside():
                self._flat_tile(tile)
        self._flat_rest()

    def _hoist_all(self) -> None:
        for phase in self.phases:
            self._hoist(phase)

    def _flat_tile(self, tile: str) -> None:
        plan, count = self.plan, self.walk.inner_count // self.plan.vector * self.plan.vector
        first = self.offset(self.scaled(tile, plan.tile), self.scaled(self.thread, plan.vector))
        is_whole = count % plan.tile == 0
        if is_whole or self.totals:
            points = self._points(first, is_whole=is_whole)
            for phase in self.phases:
                self._tile(phase, points)
            return
        assert plan.slots == 1, "one condition serves all points"
        with self.when(self.test("ult", first, count)), self._inside():
            points = self._points(first, is_whole=True)
            for phase in self.phases:
                self._tile(phase, points)

    def _flat_rest(self) -> None:
        """What is left behind the last vector, an element for each of the last block's first lanes."""
        plan, count = self.plan, self.walk.inner_count
        rest = count % plan.vector
        if not rest:
            return
        is_mine = self.both(self.test("eq", self.block_x, plan.blocks - 1), self.test("ult", self.thread, rest))
        with self.when(is_mine), self._inside():
            points = self.vectors(self.offset(self.thread, count - rest), 0, 1, 1, is_whole=True)
            for phase in self.phases:
                self._tile(phase, points)

    def _points(self, first: str, *, is_whole: bool) -> list[Point]:
        plan = self.plan
        return self.vectors(first, plan.group * plan.vector, plan.slots, plan.vector, is_whole=is_whole)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """What is computed in a branch or a loop is not known outside."""
        known = self.row_memo
        self.row_memo = dict(known)
        yield
        self.row_memo = known

    # -- rows

    def _row_turns(self) -> None:
        """The rows of this group: of its team's share those that are its own."""
        plan, walk = self.plan, self.walk
        self.lane = self.remainder(self.thread, plan.group)
        group = self.quotient(self.thread, plan.group)
        team, member = self.quotient(group, plan.team), self.remainder(group, plan.team)
        block = self.block_x
        if plan.tiles != 1 and not plan.is_long:
            block = self.quotient(self.block_x, plan.tiles)
            self.first = self.scaled(self.remainder(self.block_x, plan.tiles), plan.tile)
        teams = plan.groups // plan.team
        team = self.offset(self.scaled(block, teams), team)
        is_exact = plan.teams % teams == 0
        present = None if is_exact else self.test("ult", team, plan.teams)
        team = team if is_exact else self.at_most(team, plan.teams - 1)
        kept, share = self.quotient(team, plan.shares), self.remainder(team, plan.shares)
        columns = self.scaled(kept, walk.inner_count)
        self._open_columns(share, columns, present)
        folded = walk.row_count // plan.kept
        start, low = self.scaled(kept, folded), self.scaled(share, plan.rows)
        if plan.turns:
            with self._where_points_are():
                self._turns(start, low, member, present)
        self._close_columns(share, columns, self.all_of(present, self.test("eq", member, 0)))

    def _open_columns(self, share: str, columns: str, present: str | None) -> None:
        if not self.plan.is_long:
            self.open_columns(len(self._tile_points(None)))
        elif self.has_columns:
            self.long_columns = share, columns
            with self.loop(0, self.plan.tiles, stem="tile") as tile:
                for point in self._tile_points(tile):
                    self.clear_columns(point, share, columns, present)

    def _close_columns(self, share: str, columns: str, first: str | None) -> None:
        if self.has_columns and not self.plan.is_long:
            self.close_columns(self._tile_points(None), share, columns, first)

    def _turns(self, start: str, low: str, member: str, present: str | None) -> None:
        """Every group makes the same number of turns, so that all lanes meet at shuffles and barriers."""
        plan = self.plan
        folded = self.walk.row_count // plan.kept
        is_exact = folded % plan.rows == 0 and plan.rows % plan.team == 0
        high = self.offset(low, plan.rows)
        if folded % plan.rows:
            high = self.at_most(high, folded)

        def turn(number: str | int) -> None:
            row = self.offset(self.offset(low, self.scaled(number, plan.team) if number else 0), member)
            alive = None if is_exact else self.test("ult", row, high)
            row = row if is_exact else self.at_most(row, self.sub(high, 1))
            self.alive = self.all_of(alive, present)
            self._row(self.offset(start, row))

        if plan.turns == 1:
            turn(0)
            return
        with self.light_loop(0, plan.turns, 1) as number:
            turn(number)

    def light_loop(self, start: Operand, stop: int, step: int) -> AbstractContextManager[str]:
        """A loop whose turns wait for what they read; several go at once where they only read and fold."""
        program = self.program
        is_light = not (program.reductions or program.stores or self.reports) and len(program.exprs) <= LIGHT
        hint = self.loop_hint(f'!"llvm.loop.unroll.count", i32 {TURNS_AT_ONCE}') if is_light else None
        return self.loop(start, stop, step, stem="turn", attachment=hint)

    def _row(self, row: str) -> None:
        """One row: its phases, then what is stored and accumulated once a row."""
        plan = self.plan
        self.row_memo = {}
        self.set_counters(self.walk.rows, row)
        points = [] if plan.is_long else self._tile_points(None)
        for phase in self.phases:
            self._phase(phase, points)
        self._row_results()

    def _tile_points(self, tile: str | None) -> list[Point]:
        """The lane's points of a tile of a long row, or of the tile that its group has."""
        plan, count = self.plan, self.walk.inner_count
        if not count:
            return []
        lane = self.scaled(self.lane, plan.vector)
        first = self.first if tile is None else self.scaled(tile, plan.tile)
        return self._points(lane if first == "0" else self.offset(first, lane), is_whole=count % plan.tile == 0)

    # -- one phase

    def _hoist(self, phase: Phase) -> None:
        """Compute once what is the same throughout the row."""
        seen: set[Expr] = set()
        for root in (*phase.roots(), *self.walk.lookups_of(store.index for _, store in phase.stores)):
            self.hoist(root, phase.number, seen)

    def _phase(self, phase: Phase, points: Sequence[Point]) -> None:
        if self.walk.inner_count:
            self._hoist(phase)
            self.pick_addresses(phase.roots(), phase.number)
        if self.plan.is_long:
            states = self._tile_by_tile(phase)
        else:
            states = self._tile(phase, points)
        bits = self.plan.group.bit_length() - 1
        found = self.over_lanes(states, [self.joining(r) for r in phase.reductions], 0, bits)
        for reduction, state in zip(phase.reductions, found, strict=True):
            dtype = reduction.value.type.dtype
            value = rounded_to(self.emit, state[0], dtype) if len(state) == 1 else self.emit.cast(state[1], dtype)
            self.row_memo["row", reduction.number] = value

    def _tile_by_tile(self, phase: Phase) -> list[State]:
        """Walk a long row; what its reductions have folded at the end."""
        plan = self.plan
        empty = [self.wide(r, self.fold_points(r, ())) for r in phase.reductions]
        kept = [[self.slot(value.dtype) for value in state] for state in empty]
        for slots, state in zip(kept, empty, strict=True):
            self._put_all(slots, state)
        with self.loop(0, plan.tiles, stem="tile") as tile, self._inside():
            points = self._tile_points(tile)
            states = self._tile(phase, points)
            for reduction, slots, before, state in zip(phase.reductions, kept, empty, states, strict=True):
                total = tuple(self.get(slot, value.dtype) for slot, value in zip(slots, before, strict=True))
                self._put_all(slots, self.joining(reduction)(total, self.wide(reduction, state)))
        return [
            tuple(self.get(slot, value.dtype) for slot, value in zip(slots, state, strict=True))
            for slots, state in zip(kept, empty, strict=True)
        ]

    def _put_all(self, slots: Sequence[str], state: State) -> None:
        for slot, value in zip(slots, state, strict=True):
            self.put(slot, value)

    def _tile(self, phase: Phase, points: Sequence[Point]) -> list[State]:
        """The points of a tile: everything is computed, then folded, then stored."""
        self.compute(points, phase.roots(), phase.number)
        states = [self.fold_points(reduction, points) for reduction in phase.reductions]
        for number, accumulator in phase.accumulators:
            self._accumulate(number, accumulator, points)
        self._store(phase.stores, points)
        return states

    def _accumulate(self, number: int, accumulator: Accumulator, points: Sequence[Point]) -> None:
        expr = accumulator.expr
        values = [(self.at_point(point, expr, expr.phase), self.all_of(point.inside, self.alive)) for point in points]
        if accumulator.kind == "all":
            self.add_to_total(number, self.folded(accumulator.op, values, expr.dtype))
        else:
            self.add_to_columns(number, values, points)

    def _store(self, stores: Sequence[tuple[int, Store]], points: Sequence[Point]) -> None:
        """Write what is stored at every point, a vector after the other."""
        if not stores:
            return
        for _, vector in groupby(points, lambda point: point.slot):
            together = list(vector)
            ready = [self._ready(slot, store, point) for slot, store in stores for point in together]
            with self.perhaps(self.all_of(together[0].inside, self.alive)):
                for argument, value, position in ready:
                    self.write(argument, value, position)

    def _ready(self, slot: int, store: Store, point: Point) -> tuple[int, Scalar, str]:
        """The argument, the value and the position of a store."""
        phase = store.expr.phase
        value = self.at_point(point, store.expr, phase)
        self.read_overwritten(store, point.memo)
        return len(self.program.loads) + slot, value, self.index(store.index, point.memo, phase)

    def _row_results(self) -> None:
        """Row-level stores and accumulators, after the last phase: once for all lanes and tiles of a row."""
        if not (self.row_stores or self.row_sums):
            return
        is_first = self.test("eq", self.lane, 0)
        if self.first != "0":
            is_first = self.both(is_first, self.test("eq", self.first, 0))
        condition = self.all_of(is_first, self.alive)
        here = Point(0, {}, "0", None, self.row_memo)
        ready = [self._ready(slot, store, here) for slot, store in self.row_stores]
        for number, accumulator in self.row_sums:
            value = self.at_point(here, accumulator.expr, accumulator.expr.phase)
            self.add_to_total(number, self.folded(accumulator.op, [(value, condition)], accumulator.expr.dtype))
        if any(store.value in self.program.in_place for _, store in self.row_stores):
            self.barrier()  # the row's other lanes have read what is overwritten now
        if ready:
            with self.perhaps(condition):
                for argument, value, position in ready:
                    self.write(argument, value, position)


def print_grid(program: LoopProgram, target: CudaTarget) -> GridText:
    """The kernel of a program whose loops are settled."""
    return GridPrinter(program, target).print()
