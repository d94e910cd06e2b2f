"""What the launches of a run must wait for, from the memory they touch.

An access is known by its place. Memory of the executable and of its state is at fixed addresses, so accesses to it
conflict where their bytes overlap. Arguments are elsewhere in every call, and two of them, or one and the state, may be
the same memory: they conflict with each other and with the state where one of them writes. Results have memory of their
own, whatever the call.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from autojit.core.records import record

Place = Literal["own", "state", "argument", "result"]
"""Of memory: the executable's; tensors that live on, at fixed addresses; what calls bring; what calls get."""

Effect = Literal["reads", "writes"]
"""What a launch does there."""


@record
class Access:
    """Memory that a launch touches.

    Args:
        place: whose it is.
        effect: what is done with it; a report of an error is a write, so that the first error is the program's first.
        start: the first address, where it is fixed.
        end: behind the last one.
        name: of an argument or result: equal where the memory is.
    """

    place: Place
    effect: Effect
    start: int = 0
    end: int = 0
    name: Hashable = None

    @property
    def is_fixed(self) -> bool:
        """Whether its addresses are the same in every call."""
        return self.place in ("own", "state")


def conflict(a: Access, b: Access) -> bool:
    """Whether one has to wait for the other."""
    if a.effect == b.effect == "reads":
        return False
    if a.is_fixed and b.is_fixed:
        return a.start < b.end and b.start < a.end
    places = {a.place, b.place}
    if "own" in places:
        return False
    if "result" in places:
        return a.name == b.name or places == {"result", "argument"}
    return True


def predecessors(accesses: Sequence[Sequence[Access]]) -> list[tuple[int, ...]]:
    """Of launches in an order that is right: those that each has to wait for, without those that these wait for."""
    before: list[int] = []  # as bits, of each launch: all that come before it
    found: list[tuple[int, ...]] = []
    for number, mine in enumerate(accesses):
        after: list[int] = []
        known = 0
        for earlier in range(number - 1, -1, -1):
            if not known >> earlier & 1 and _conflict(mine, accesses[earlier]):
                after.append(earlier)
                known |= before[earlier] | 1 << earlier
        before.append(known)
        found.append(tuple(reversed(after)))
    return found


def _conflict(some: Sequence[Access], others: Sequence[Access]) -> bool:
    return any(conflict(a, b) for a in some for b in others)
