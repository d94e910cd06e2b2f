"""Flat programs whose loads walk another loop than their stores: tiles of both loops pass through shared memory.

A block takes 32 x 32 points. What moves by one element with the other loop is read along that one, left in shared
memory and read there along the last loop, so that both sides of a transposition touch whole lines of the cache. A row
of a tile has 33 places, so that lanes which read a column find their elements in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from autojit.codegen.cuda.grid_expressions import Point
from autojit.codegen.cuda.grid_folds import GridFolds
from autojit.codegen.cuda.lane_folds import shared_dtype
from autojit.codegen.cuda.transposition import SIDE, TILE_THREADS, Transposition
from autojit.codegen.scalar import memory_type
from autojit.ir.index import LoopVariable


class TransposingTiles(GridFolds):
    """A kernel whose blocks transpose tiles."""

    def tile_points(self, what: Transposition) -> list[Point]:
        """The points of a block's tile along the last loop, with what was read across of them."""
        walk, last = self.walk, self.walk.inner[-1]
        down, along = -(-what.across.extent // SIDE), -(-last.extent // SIDE)
        outer, place = self.quotient(self.block_x, down * along), self.remainder(self.block_x, down * along)
        first_across = self.scaled(self.quotient(place, along), SIDE)
        first_last = self.scaled(self.remainder(place, along), SIDE)
        self.set_counters(what.others(walk), outer)
        self.width, self.has_line = what.vector, False
        arrays = [self.shared(memory_type(shared_dtype(e.dtype)), SIDE * (SIDE + 1)) for e in what.loads]
        self.along = what.across
        for line, segment, points in self._passes(what, first_across, first_last, what.across, last):
            for array, load in zip(arrays, what.loads, strict=True):
                values = [self.at_point(point, load, load.phase) for point in points]
                for k, value in enumerate(values):
                    self.put_shared(array, self._in_tile(line, self.offset(segment, k)), value)
        self.along = last
        self.barrier()
        found: list[Point] = []
        for line, segment, points in self._passes(what, first_last, first_across, last, what.across):
            for array, load in zip(arrays, what.loads, strict=True):
                for k, point in enumerate(points):
                    place = self._in_tile(self.offset(segment, k), line)
                    point.memo[load] = self.get_shared(array, place, load.dtype)
            found += points
        return found

    def _in_tile(self, line: str, column: str) -> str:
        return self.offset(self.scaled(line, SIDE + 1), column)

    def _passes(
        self, what: Transposition, first: str, first_line: str, along: LoopVariable, lines: LoopVariable
    ) -> list[tuple[str, str, Sequence[Point]]]:
        """Of each turn over a tile: the thread's line, where its vector begins in it, and the vector's points.

        Args:
            first: where the tile begins in the loop ``along`` which vectors go.
            first_line: where it begins in the other loop.
        """
        lanes = SIDE // what.vector
        segment = self.scaled(self.remainder(self.thread, lanes), what.vector)
        start = self.quotient(self.thread, lanes)
        outer = {v: self.variables[v] for v in what.others(self.walk)}
        found: list[tuple[str, str, Sequence[Point]]] = []
        for turn in range(SIDE * lanes // TILE_THREADS):
            line = self.offset(start, turn * (TILE_THREADS // lanes))
            position, inside = self._within(self.offset(first, segment), along.extent, what.vector)
            at_line, line_inside = self._within(self.offset(first_line, line), lines.extent, 1)
            present = self.all_of(inside, line_inside)
            vector = [
                Point(turn, {**outer, along: self.offset(position, k), lines: at_line}, position, present, {})
                for k in range(what.vector)
            ]
            for k, point in enumerate(vector[1:], start=1):
                point.base, point.shift, point.first, point.place = vector[0], k, vector[0], k
            found.append((line, segment, vector))
        return found

    def _within(self, position: str, extent: int, width: int) -> tuple[str, str | None]:
        """A position, or the last one of a loop that is not cut into whole tiles; and whether it is in the loop."""
        if extent % SIDE == 0:
            return position, None
        return self.at_most(position, extent - width), self.test("ult", position, extent)
