"""Which flat programs transpose: loads that walk another loop than their stores (`transposing` prints them)."""

from __future__ import annotations

from math import prod

from autojit.codegen.cuda.lane_limits import VECTOR_BYTES, access_sizes
from autojit.codegen.walk import Walk
from autojit.core.records import record
from autojit.ir.index import Index, LoopVariable
from autojit.schedule.expressions import Load

SIDE = 32  # of a tile: a line of the cache has as many elements of 4 bytes
TILE_THREADS = 256
LEAST_SIDE = 16  # of both loops: tiles are half full at least
LEAST_POINTS = 4096  # below, all is in the cache of one processor however it is read
MOST_LOADS = 6  # through shared memory: 25 KiB in float32, so that two blocks are on a processor of any kind


@record
class Transposition:
    """What passes through shared memory: loads that walk ``across`` where stores walk the last loop."""

    across: LoopVariable
    loads: tuple[Load, ...]
    vector: int

    def blocks(self, walk: Walk) -> int:
        """Tiles of all outer loops."""
        down, last = -(-self.across.extent // SIDE), -(-walk.inner[-1].extent // SIDE)
        return down * last * prod(v.extent for v in self.others(walk))

    def others(self, walk: Walk) -> list[LoopVariable]:
        """The loops around tiles."""
        return [v for v in walk.inner[:-1] if v != self.across]


def transposition(walk: Walk) -> Transposition | None:
    """What a flat program transposes; None: nothing, or it does more than a tile can take."""
    program = walk.program
    is_plain = not (program.accumulators or program.in_place or program.lookups or any(e.guards for e in program.exprs))
    if not is_plain or len(walk.inner) < 2 or walk.inner_count < LEAST_POINTS or walk.inner[-1].extent < LEAST_SIDE:
        return None
    last = walk.inner[-1]
    loads = [e for e in program.exprs if isinstance(e, Load) and _step(e.positions[0], last) not in (0, 1)]
    found = {_walked(load.positions[0], walk) for load in loads}
    across = found.pop() if len(found) == 1 else None
    if across is None or len(loads) > MOST_LOADS or not any(_step(s.index, last) == 1 for s in program.stores):
        return None
    vector = VECTOR_BYTES // max([4, *access_sizes(walk)])
    while across.extent % vector or last.extent % vector:
        vector //= 2
    return Transposition(across, tuple(loads), vector)


def _step(index: Index, variable: LoopVariable) -> int | None:
    """How far a position moves with a loop; None: it is divided, or something looked up."""
    if variable in index.divided_variables():
        return None
    return dict(index.terms).get(variable, 0)


def _walked(index: Index, walk: Walk) -> LoopVariable | None:
    """The loop that moves a position by one, if it is long enough and the last one is not divided."""
    if _step(index, walk.inner[-1]) is None:
        return None
    walked = [v for v in walk.inner[:-1] if _step(index, v) == 1 and v.extent >= LEAST_SIDE]
    return walked[0] if walked else None
