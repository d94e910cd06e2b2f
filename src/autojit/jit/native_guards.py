"""What a native entry compares of what a capture has read: by itself where it can tell, else Python does before.

The entry of a step has such guards, and so has that of each decision before it (``decided_calls.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autojit.jit.guards import Guard, stand_ins
from autojit.runtime.entry_spec import CellGuard, DictGuard, SlotGuard, WordGuard
from autojit.runtime.executable import data_address
from autojit.tensor.state import guard_epoch, no_epoch

if TYPE_CHECKING:
    from autojit.jit.segment import Segment
    from autojit.jit.step import Capture
    from autojit.runtime.entry import Entry

EPOCH = 0  # the number of the guard that compares the guard epoch, which is the first one


class CaptureGuards:
    """The guards of a capture for one native entry, which runs ``segment``.

    ``listed``: those that Python reads before every call.
    """

    def __init__(self, capture: Capture, segment: Segment, epoch: int) -> None:
        self.capture, self.segment = capture, segment
        self.epoch = epoch  # the guard epoch before the guards were last verified
        self.asks_epoch = any(guard.by_epoch for guard in capture.guards)  # else nothing that it counts is of interest
        self.listed = [g for g in capture.guards if not (g.by_epoch or g.is_native)]
        self._always_listed = len(self.listed)  # the others are of places that hold stand-ins
        self.listed += stand_ins(capture.guards)
        self._places: dict[int, int] = {}  # of the entry's guards -> number of the capture's
        self._word_places: dict[int, tuple[int, int]] = {}  # place -> guard, which of its words

    @property
    def made_for(self) -> tuple[int, int]:
        """How often the segment was bound to memory, and how often the capture has followed other tensors, by now."""
        return int(self.segment.bindings[0]), int(self.capture.following.count[0])

    def of_memory(self) -> list[Any]:
        """The first of an entry's guards: the guard epoch, the segment's present memory, tensors that it follows."""
        bindings, count = self.made_for
        guards: list[Any] = [
            WordGuard(guard_epoch, self.epoch) if self.asks_epoch else WordGuard(no_epoch, 0),
            WordGuard(self.segment.bindings, bindings),
            WordGuard(self.capture.following.count, count),
        ]
        following = self.capture.following
        owners = [entry.owner for entry in self.segment.entries if entry.owner is not None]
        guards += [SlotGuard(t, name, getattr(t, name)) for t in owners for name in ("_array", "_requires_grad")]
        bound = set(map(id, owners))
        guards += [SlotGuard(leaf, "_requires_grad", flag) for leaf, flag in following.flags if id(leaf) not in bound]
        guards += [SlotGuard(t, "_array", array) for t, array, _ in following.forms if id(t) not in bound]
        return guards

    def add_reads(self, guards: list[Any]) -> None:
        """Add, to the guards of an entry, those of what the capture has read."""
        known: set[int] = set()  # words that stand for several reads
        for number, guard in enumerate(self.capture.guards):
            if isinstance(guard.native, CellGuard | DictGuard):
                self._places[len(guards)] = number
                guards.append(guard.native._replace(expected=self._expected(guard)))
            elif guard.has_words:
                for k, word in enumerate(self._words(number)):
                    address = data_address(word.counter)
                    if address not in known:
                        known.add(address)
                        self._word_places[len(guards)] = number, k
                        guards.append(word)

    def refresh(self, entry: Entry, epoch: int, are_listed: bool) -> None:
        """Python has verified every guard since the guard epoch was ``epoch``: the native ones get present values.

        Another thread may have changed something after it was verified, so what is read here is looked at again.
        ``are_listed``: whether Python reads ``listed`` before every call.
        """
        self._expect_epoch(entry, epoch)
        words = {place: self._words(number)[k].expected for place, (number, k) in self._word_places.items()}
        if are_listed:
            self.listed[self._always_listed :] = stand_ins(self.capture.guards)
        for place, number in self._places.items():
            entry.set_expected(place, self._expected(self.capture.guards[number]))
        if all(guard.holds() for guard in self.capture.guards if guard.has_words):
            for place, word in words.items():
                entry.set_expected(place, word)

    def expect_change(self, entry: Entry, epoch: int) -> None:
        """The guard epoch has counted one change up to here, of nothing that the capture has read."""
        if self.epoch == epoch - 1:  # else something was changed before that, which may be
            self._expect_epoch(entry, epoch)

    def _expect_epoch(self, entry: Entry, epoch: int) -> None:
        self.epoch = epoch
        if self.asks_epoch:
            entry.set_expected(EPOCH, epoch)

    def _expected(self, guard: Guard) -> Any:
        """What the entry point finds in a place: what the capture found, or what Python takes for it by now."""
        value = guard.read()
        is_taken = guard.takes(value) and (not guard.is_stand_in(value) or guard in self.listed)
        return value if is_taken else guard.expected

    def _words(self, number: int) -> list[WordGuard]:
        native = self.capture.guards[number].native
        assert native is not None and not isinstance(native, CellGuard | DictGuard)
        return native.words()
