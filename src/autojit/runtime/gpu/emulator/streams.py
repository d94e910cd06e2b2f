"""Streams of the emulated device: work that no event and no wait of the host orders must not meet in memory.

Every call does its work at once, so nothing goes wrong here that would on hardware. But of each stream it is known how
much of the others' work comes before what is put in it next (a vector clock: Mattern, Virtual Time and Global States of
Distributed Systems, 1989), and of the last works what they touched: two that are not ordered, one of which writes what
the other touches, are a wait that the program has forgotten. As long as there is one stream nothing is written down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from autojit.core.errors import ArgumentError
from autojit.core.records import record
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.emulator.graphs import Footprint

Clock = dict[int, int]
"""Of each stream, how many of its works come before."""

FIRST_OWN = 16
"""Numbers of streams and all else begin here: the driver's default streams are 0 (or 1), and 2 that of the thread."""

_MOST_WORKS = 64
"""That are compared with new ones; released memory rests for 4,096 blocks, so no address means two things here."""


@record
class _Work:
    """What one call did: the stream, its number there, its name, and what it touched."""

    stream: int
    number: int
    name: str
    touched: Sequence[Footprint]


class StreamOrder:
    """Which streams and events there are, and what comes before what."""

    def __init__(self) -> None:
        self._known = {0, 2}
        self._clocks: dict[int, Clock] = {}  # of those that were made or used since everything was forgotten
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}  # what the host has waited for
        self._works: deque[_Work] = deque(maxlen=_MOST_WORKS)

    @property
    def is_watching(self) -> bool:
        """Whether there is more than one stream, so that work has to be written down."""
        return len(self._clocks) > 1

    # -- streams

    def make(self, stream: int) -> None:
        """A stream that waits for no other."""
        self._known.add(stream)
        self._clocks[stream] = {}

    def destroy(self, stream: int) -> None:
        """Forget a stream."""
        self._known.remove(stream)
        self._clocks.pop(stream, None)

    def clock(self, stream: int) -> Clock:
        """Of what is put in a stream next; the default ones are there when they are first used."""
        number = 0 if stream == 1 else stream
        found = self._clocks.get(number)
        if found is None:
            if number not in self._known:
                raise ArgumentError("there is no such stream", facts={"stream": stream})
            found = self._clocks[number] = dict(self._host)
        return found

    def forget(self) -> None:
        """Take all that was done for ordered, and all streams for unused."""
        self.host_waited_for_all()
        self._clocks.clear()

    # -- order

    def host_waited(self, stream: int) -> None:
        """The host knows that a stream is empty."""
        _join(self._host, self.clock(stream))
        self._forget_what_is_done()

    def host_waited_for_all(self) -> None:
        """The host knows that the device does nothing."""
        for clock in self._clocks.values():
            _join(self._host, clock)
        self._works.clear()

    def make_event(self, event: int) -> None:
        """A mark that is in no stream."""
        self._events[event] = {}

    def destroy_event(self, event: int) -> None:
        """Forget a mark."""
        self._mark(event)
        del self._events[event]

    def record(self, event: int, stream: int) -> None:
        """A mark behind all that a stream holds."""
        self._mark(event)
        self._events[event] = dict(self.clock(stream))

    def wait(self, stream: int, event: int) -> None:
        """A stream goes on behind a mark."""
        _join(self.clock(stream), self._mark(event))

    def host_reached(self, event: int) -> None:
        """The host knows that a mark is reached."""
        _join(self._host, self._mark(event))
        self._forget_what_is_done()

    def _mark(self, event: int) -> Clock:
        if event not in self._events:
            raise ArgumentError("there is no such event", facts={"event": event})
        return self._events[event]

    # -- work

    def did(self, stream: int, name: str, touched: Sequence[Footprint]) -> None:
        """A call has done its work in a stream.

        Raises:
            EmulatedFault: it met work in another stream that it does not come after.
        """
        clock, number = self.clock(stream), 0 if stream == 1 else stream
        _join(clock, self._host)
        clock[number] = clock.get(number, 0) + 1
        for earlier in self._works:
            if earlier.number > clock.get(earlier.stream, 0):
                self._compare(earlier, _Work(number, clock[number], name, touched))
        if self.is_watching:
            self._works.append(_Work(number, clock[number], name, touched))

    def _compare(self, earlier: _Work, work: _Work) -> None:
        for mine in work.touched:
            for theirs in earlier.touched:
                address = mine.shared_with(theirs)
                if address is not None:
                    raise EmulatedFault(
                        "missing wait",
                        f"{earlier.name} in stream {earlier.stream} and {work.name} in stream {work.stream} touch the "
                        "same bytes, one writes them, and nothing orders the two",
                        kernel=work.name,
                        address=address,
                    )

    def _forget_what_is_done(self) -> None:
        left = [work for work in self._works if work.number > self._host.get(work.stream, 0)]
        self._works = deque(left, _MOST_WORKS)


def _join(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        if count > clock.get(stream, 0):
            clock[stream] = count
