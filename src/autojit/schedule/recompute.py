"""Meeting a memory budget: values that are live over the peak are computed again, late, instead of being kept.

At the peak, what was computed before and is read behind it takes the memory: activations that the backward pass reads.
The time up to the peak is cut where little is live. What is between two cuts is computed again from what is live at
the first of them, just before it is needed (`ops.ordering.Later`). ``docs/design/memory_budget.md`` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from autojit.core.records import record
from autojit.core.sizes import typical
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.control_flow import HoldsGraphs
from autojit.ops.transfers import ToDevice
from autojit.schedule.kinds import Kind, is_opaque, kinds_of
from autojit.schedule.late_copies import LateCopies, Stretch
from autojit.schedule.lives import Lives

if TYPE_CHECKING:
    from autojit.schedule.schedule import Schedule

CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # parts of the time up to the peak that are tried
SMALL = 1000  # parts of what is live at the peak: less than one of them is kept, as leaving it out gains nothing
ROUNDS = 4  # peaks that are lowered one after the other
TRIES = 4  # choices per peak: what a choice will take is estimated
CLOSENESS = 0.97  # of the budget, for the first try


@record
class Choice:
    """What is computed again, and what that is estimated to cost and to leave."""

    stretches: tuple[Stretch, ...]
    work: float
    peak_bytes: int


def within_budget(
    graph: Graph, planned: Schedule, budget: int, plan: Callable[[Graph, bool], Schedule]
) -> tuple[Graph, Schedule]:
    """The graph with as much computed again as temporaries need to take at most ``budget`` bytes, and its schedule.

    Where that cannot be reached: the one that takes least. Op by op the results are the same to the bit.

    Args:
        planned: the schedule of ``graph``.
        plan: makes schedules of others; the second argument says whether readers compute values again (`again`).
    """
    best = _searched(graph, planned, budget, lambda made: plan(made, True))
    if _peak(best[1]) <= budget:
        return best
    # What readers compute again keeps what that starts from, which may be what a stretch was to free.
    other = _searched(graph, plan(graph, False), budget, lambda made: plan(made, False))
    return min((best, other), key=lambda found: _peak(found[1]))


def _searched(
    graph: Graph, planned: Schedule, budget: int, plan: Callable[[Graph], Schedule]
) -> tuple[Graph, Schedule]:
    """One peak after the other lowered, until the budget is met."""
    best = graph, planned
    for _ in range(ROUNDS):
        if _peak(best[1]) <= budget:
            break
        lowered = _lowered(*best, budget, plan)
        if lowered is None:
            break
        best = lowered
    return best


def _peak(planned: Schedule) -> int:
    return typical(planned.memory.peak_bytes)


def _lowered(
    graph: Graph, planned: Schedule, budget: int, plan: Callable[[Graph], Schedule]
) -> tuple[Graph, Schedule] | None:
    """With a lower peak, or None."""
    chooser = Chooser(graph, planned)
    choices = sorted(chooser.choices(), key=lambda choice: choice.work)
    target = budget * CLOSENESS - (_peak(planned) - chooser.lives.live_bytes.max(initial=0))
    best: tuple[Graph, Schedule] | None = None
    fitting = _fitting(choices, target)
    for _ in range(TRIES):
        if fitting is None:
            break
        made = LateCopies(graph, chooser.lives, fitting.stretches).graph()
        found = made, plan(made)
        if _peak(found[1]) <= budget:
            return found
        if _peak(found[1]) < _peak(planned if best is None else best[1]):
            best = found
            choices = [choice for choice in choices if choice.peak_bytes < fitting.peak_bytes]
            target = min(target, fitting.peak_bytes) - (_peak(found[1]) - budget)
            fitting = _fitting(choices, target)
        else:  # what is computed again for less traffic may keep what this was to free: little by little then
            choices.remove(fitting)
            fitting = max(choices, key=lambda choice: choice.peak_bytes, default=None)
    return best


def _fitting(choices: Sequence[Choice], target: float) -> Choice | None:
    """The first choice with a low enough peak, or the one with the lowest."""
    lowest = min(choices, key=lambda choice: choice.peak_bytes, default=None)
    return next((choice for choice in choices if choice.peak_bytes <= target), lowest)


class Chooser:
    """What may be computed again to lower the peak of a schedule."""

    def __init__(self, graph: Graph, planned: Schedule) -> None:
        self.lives = lives = Lives(planned)
        self.definitions = graph.definitions()
        self.kinds = kinds_of(graph, planned.machine)
        self.peak = peak = lives.peak
        over = [v for v, first in lives.first.items() if first <= peak < lives.last(v) and v in self.definitions]
        self.over = sorted(over, key=lambda v: lives.first[v])
        self.least_bytes = sum(map(lives.size, over)) // SMALL

    def choices(self) -> Iterator[Choice]:
        """Cheap loops alone; then more and more of the time up to the peak, in more and more parts."""
        if not self.over:
            return
        loops = list(self._loops())
        yield from self._choice(loops, ())
        for count in CUTS:
            cuts = self._cuts(count)
            parts = list(pairwise(cuts))[:count]  # what is behind the last cut is needed at once
            for taken in sorted({1, *(count * k // 4 for k in range(1, 5))} - {0}) if parts else ():
                kept = [loop for loop in loops if min(map(self.lives.first.__getitem__, loop.values)) > cuts[taken]]
                yield from self._choice(kept, parts[:taken])
                yield from self._choice((), parts[:taken])

    def _choice(self, loops: Sequence[Stretch], parts: Sequence[tuple[int, int]]) -> Iterator[Choice]:
        stretches = list(loops)
        kept = {v for loop in loops for v in loop.leaves}
        for begin, end in reversed(parts):
            stretch = self._stretch(begin, end, kept)
            if stretch.values:
                stretches.append(stretch)
                kept |= stretch.leaves
        if stretches:
            chosen = tuple(sorted(stretches, key=lambda s: s.needed))
            yield Choice(chosen, sum(s.work for s in chosen), self._estimate(chosen))

    # -- where the time up to the peak is cut

    def _cuts(self, count: int) -> list[int]:
        """Times that part what is live over the peak in about equal bytes, where little is live for what follows."""
        lives, peak = self.lives, self.peak
        frontier = lives.total([(f, lives.last_until(v, peak) - 1, lives.size(v))
                                for v, f in lives.first.items() if f < lives.last_until(v, peak)])  # fmt: skip
        done = np.cumsum(np.bincount([lives.first[v] for v in self.over], list(map(lives.size, self.over)), peak + 1))
        cuts = [-1]
        for k in range(1, count + 1):
            low, high = (int(np.searchsorted(done, done[-1] * (k + d) / (count + 1))) for d in (-0.4, 0.4))
            low = max(low, cuts[-1] + 1)
            window = frontier[low : min(high + 1, peak)]
            if not len(window):
                return []
            cuts.append(low + int(window.argmin()))
        return [*cuts, peak]

    # -- what is computed again between two times

    def _stretch(self, begin: int, end: int, kept: AbstractSet[Value]) -> Stretch:
        """Everything made between two times that is read behind the peak, but for what is ``kept``."""
        values = [v for v in self.over if begin < self.lives.first[v] <= end and v not in kept and self._is_worth(v)]
        return self._made_again(values, lambda v: v in kept or self.lives.made[v] <= begin)

    def _loops(self) -> Iterator[Stretch]:
        """Values that loops compute from what is kept anyway, each for itself."""
        kept = set(self.over)
        for value in self.over:
            if self.kinds[self.definitions[value]] is not Kind.POINTWISE or not self._is_worth(value):
                continue
            stretch = self._made_again([value], kept.__contains__)
            kinds = {self.kinds[self.definitions[v]] for v in stretch.again}
            if kinds <= {Kind.POINTWISE, Kind.INLINE} and all(map(partial(self._is_kept, kept), stretch.leaves)):
                kept.discard(value)
                yield stretch

    def _is_kept(self, kept: AbstractSet[Value], leaf: Value) -> bool:
        return leaf in kept or leaf not in self.lives.first or self.lives.size(leaf) < self.least_bytes

    def _is_worth(self, value: Value) -> bool:
        return self.lives.size(value) >= self.least_bytes and _may_run_again(self.definitions[value])

    def _made_again(self, values: Sequence[Value], is_there: Callable[[Value], bool]) -> Stretch:
        """The values' cones down to inputs, to what ``is_there``, and to what is small or runs once."""
        lives = self.lives
        again: dict[Value, None] = {}
        leaves: dict[Value, None] = {}
        waiting = list(reversed(values))
        wanted = set(values)
        while waiting:
            value = waiting.pop()
            if value in again or value in leaves:
                continue
            node = self.definitions.get(value)
            is_stored = value in lives.stored
            if node is None or (value not in wanted and is_stored and (is_there(value) or self._stays(value, node))):
                leaves[value] = None
                continue
            again[value] = None
            waiting.extend(node.inputs)
        needed = [time for v in values if (time := lives.next_read(v, self.peak)) is not None]
        work = sum(self._work(self.definitions[v]) for v in again if v is self.definitions[v].outputs[0])
        return Stretch(frozenset(values), frozenset(again), frozenset(leaves), min(needed, default=0), work)

    def _stays(self, value: Value, node: Node) -> bool:
        return (value in self.lives.first and self.lives.size(value) < self.least_bytes) or not _may_run_again(node)

    def _work(self, node: Node) -> float:
        """What a node costs, in elements of a loop."""
        elements = float(typical(prod(node.outputs[0].type.shape)))
        kind = self.kinds[node]
        if kind is Kind.PRODUCT:
            return elements * typical(node.inputs[0].type.shape[-1]) / 4
        if kind is Kind.INLINE:
            return 0.0
        read = float(max((typical(prod(v.type.shape)) for v in node.inputs), default=0))
        return max(elements, read) * (1 if kind in (Kind.POINTWISE, Kind.REDUCTION) else 16)

    # -- what it leaves

    def _estimate(self, stretches: Sequence[Stretch]) -> int:
        """The bytes that are live at once, if these are computed again."""
        lives = self.lives
        dropped: dict[Value, Stretch] = {v: s for s in stretches for v in s.values}
        until: dict[Value, int] = {}
        for stretch in stretches:
            for leaf in stretch.leaves & lives.first.keys():
                until[leaf] = max(until.get(leaf, 0), stretch.needed)
        ranges = []
        for value, first in lives.first.items():
            last, size_bytes = lives.last(value), lives.size(value)
            if value in dropped:
                ranges.append((first, lives.last_until(value, self.peak), size_bytes))
                ranges.append((dropped[value].needed, last, size_bytes))
            else:
                ranges.append((first, max(last, until.get(value, 0)), size_bytes))
        return int(lives.total(ranges).max(initial=0))


def _may_run_again(node: Node) -> bool:
    """Whether an op gives the same again, at a place that is known."""
    if node.is_kept or node.op.calls_out or isinstance(node.op, ToDevice | HoldsGraphs) or is_opaque(node):
        return False
    return all(v.type.dtype.kind != "complex" for v in (*node.inputs, *node.outputs))


__all__ = ["Choice", "Chooser", "within_budget"]
