"""What the launches of a run must wait for, from the memory they touch.

An access is known by its place. Memory of the executable and of its state is at fixed addresses, so accesses to it
conflict where their bytes overlap. Arguments are elsewhere in every call, and two of them, or one and the state, may be
the same memory: they conflict with each other and with the state where one of them writes. Results have memory of their
own, whatever the call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import Literal

from autojit.core.records import record

Place = Literal["own", "state", "argument", "result"]
"""Of memory: the executable's; tensors that live on, at fixed addresses; what calls bring; what calls get."""

Effect = Literal["reads", "writes"]
"""What a launch does there."""


Edges = list[tuple[int, ...]]
"""Of each launch, those that it has to wait for, without those that these wait for."""


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


@record
class Touched:
    """The memory of a launch.

    Args:
        accesses: all that it touches.
        early: of these, what it only reads where every call finds it, with the parameter that is the address.
    """

    accesses: tuple[Access, ...]
    early: tuple[tuple[int, Access], ...] = ()


class Order:
    """What launches wait for, in an order of them that is right.

    Args:
        accesses: the memory that each touches.
    """

    def __init__(self, accesses: Sequence[Sequence[Access]]) -> None:
        self._touched = _Pieces(accesses)
        reads, self._writes = ([self._touched.of(one, effect) for one in accesses] for effect in ("reads", "writes"))
        self.after: Edges = _after(reads, self._writes)

    def settled(self, number: int, accesses: Iterable[Access]) -> list[bool]:
        """Of some accesses of a launch: whether none of the launches right before it writes there."""
        changed = reduce(or_, (self._writes[k] for k in self.after[number]), 0)
        return [not self._touched.of([access], access.effect) & changed for access in accesses]


def _after(reads: Sequence[int], writes: Sequence[int]) -> Edges:
    """By the pieces of memory that each launch reads and writes, as bits."""
    before: list[int] = []  # as bits, of each launch: all that come before it
    found: Edges = []
    for number, (mine, changed) in enumerate(zip(reads, writes, strict=True)):
        after: list[int] = []
        known, left = 0, (1 << number) - 1  # those that are not known to come before, as bits
        while left:
            earlier = left.bit_length() - 1  # the last of them; in a chain it is the only one that is looked at
            if changed & (reads[earlier] | writes[earlier]) or mine & writes[earlier]:
                after.append(earlier)
                known |= before[earlier] | 1 << earlier
                left &= ~known
            else:
                left ^= 1 << earlier
        before.append(known)
        found.append(tuple(reversed(after)))
    return found


class _Pieces:
    """Memory cut where accesses begin and end, a bit for each piece; then a bit for each result, one for arguments."""

    def __init__(self, accesses: Sequence[Sequence[Access]]) -> None:
        flat = list(chain.from_iterable(accesses))
        fixed = [access for access in flat if access.is_fixed]
        bounds = sorted({bound for access in fixed for bound in (access.start, access.end)})
        self._behind = {bound: 1 << k for k, bound in enumerate(bounds)}  # the bit of the piece that begins there
        names = dict.fromkeys(access.name for access in flat if access.place == "result")
        self._results = {name: 1 << (len(bounds) + k) for k, name in enumerate(names)}
        state = [self._between(access) for access in fixed if access.place == "state"]
        arguments = 1 << (len(bounds) + len(names))
        self._arguments = reduce(or_, (*state, *self._results.values()), arguments)

    def _between(self, access: Access) -> int:
        return self._behind[access.end] - self._behind[access.start]

    def of(self, accesses: Iterable[Access], effect: str) -> int:
        """The bits of what is touched in one way."""
        found = 0
        for access in accesses:
            if access.effect == effect:
                found |= self._bits(access)
        return found

    def _bits(self, access: Access) -> int:
        if access.is_fixed:
            return self._between(access)
        return self._arguments if access.place == "argument" else self._results[access.name]
