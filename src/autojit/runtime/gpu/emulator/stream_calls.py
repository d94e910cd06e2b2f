"""The driver's calls that are about streams and events, for an emulated device: nothing is ever waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autojit.core.errors import DeviceError
from autojit.runtime.gpu.emulator.streams import StreamOrder


class StreamCalls:
    """A part of the driver; `StreamOrder` keeps account of what these calls order."""

    counts: Counter[str]
    streams: StreamOrder
    _numbers: Iterator[int]

    def make_stream(self) -> int:
        """A number; work is done at once."""
        number = next(self._numbers)
        self.streams.make(number)
        return number

    def destroy_stream(self, stream: int) -> None:
        """Forget a stream."""
        self.streams.destroy(stream)

    def synchronize(self, stream: int) -> None:
        """All is done already."""
        self.counts["waits"] += 1
        self.streams.host_waited(stream)

    def synchronize_all(self) -> None:
        """All is done already."""
        self.counts["waits"] += 1
        self.streams.host_waited_for_all()

    def is_idle(self, stream: int) -> bool:
        """Always."""
        self.streams.host_waited(stream)
        return True

    def make_event(self, is_timed: bool) -> int:
        """A number."""
        number = next(self._numbers)
        self.streams.make_event(number)
        return number

    def destroy_event(self, event: int) -> None:
        """Forget an event."""
        self.streams.destroy_event(event)

    def record(self, event: int, stream: int) -> None:
        """Reached at once."""
        self.streams.record(event, stream)

    def wait_for_event(self, stream: int, event: int) -> None:
        """Nothing to wait for; the two are ordered from now on."""
        self.streams.wait(stream, event)

    def synchronize_event(self, event: int) -> None:
        """Nothing to wait for."""
        self.counts["waits"] += 1
        self.streams.host_reached(event)

    def is_reached(self, event: int) -> bool:
        """Always."""
        self.streams.host_reached(event)
        return True

    def elapsed_ms(self, start: int, end: int) -> float:
        """Refused.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(
            "an emulated device has no times: the host computes what it does",
            fix="measure on a GPU; count launches and bytes under emulation",
        )
