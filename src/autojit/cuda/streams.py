"""Queues of work on a CUDA device, and marks in them.

Work is put in the thread's present stream of the device: one of autojit's own, or what ``with stream(s)`` says in it.
Streams come from a pool per device and are never given back, as in torch: memory is kept per stream.
"""

from __future__ import annotations

from typing import Any

from autojit.core.device import Device
from autojit.cuda.devices import gpu_of
from autojit.runtime.gpu.devices import CudaDevice

__all__ = [
    "Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip

POOL = 32
"""Streams of a device that ``Stream()`` gives in turn; torch's number."""


class _Pool:
    """The streams of one device that have been made."""

    def __init__(self, gpu: CudaDevice) -> None:
        self.default = gpu.home_stream
        self.others: list[int] = []
        self.given = 0

    def take(self, gpu: CudaDevice) -> int:
        """The next one."""
        place = self.given % POOL
        self.given += 1
        if place == len(self.others):
            gpu.use()
            self.others.append(gpu.driver.make_stream())
        return self.others[place]


_pools: dict[CudaDevice, _Pool] = {}


def _pool_of(gpu: CudaDevice) -> _Pool:
    found = _pools.get(gpu)
    return _pools.setdefault(gpu, _Pool(gpu)) if found is None else found


class Stream:
    """A queue of work on a device; work of one queue is done in order.

    Args:
        device: a CUDA device; None: the current one.
        priority: accepted; all queues have the same.

    Raises:
        NoCudaError: there is no device.
    """

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.gpu = gpu_of(device, "Stream")
        pool = _pool_of(self.gpu)
        number = options.pop("_number", None)
        self.cuda_stream: int = pool.take(self.gpu) if number is None else number
        self.priority = priority
        self._before: list[int] = []

    @property
    def device(self) -> Device:
        """Where the queue is."""
        return Device("cuda", self.gpu.number)

    @property
    def device_index(self) -> int:
        """The ordinal of the device."""
        return self.gpu.number

    stream_id = property(lambda self: self.cuda_stream, doc="A number that tells queues apart.")

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.gpu.use()
        self.gpu.driver.synchronize(self.cuda_stream)

    def query(self) -> bool:
        """Whether the queue is empty."""
        self.gpu.use()
        return self.gpu.driver.is_idle(self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        """Let what is queued from now on wait for a mark."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is queued from now on wait for all that another queue holds now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Put a mark in the queue; returns it."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def __enter__(self) -> Stream:
        self._before.append(self.gpu.set_stream(self.cuda_stream))
        return self

    def __exit__(self, *error: object) -> None:
        self.gpu.set_stream(self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.gpu, self.cuda_stream) == (other.gpu, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.gpu.number, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<autojit.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A queue that another library has made, by its handle."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(device, _number=stream_ptr)


class Event:
    """A mark that can be put in queues.

    Args:
        enable_timing: the time between two such marks can be asked for; an emulated device refuses to tell.
        blocking, interprocess: accepted; waiting is the same, and other processes do not see the mark.

    Raises:
        NoCudaError: there is no device.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._gpu = gpu_of(None, "Event")
        self._gpu.use()
        self.cuda_event: int = self._gpu.driver.make_event(enable_timing)
        self._is_timed = enable_timing
        self._is_recorded = False

    @property
    def device(self) -> Device:
        """Where it can be put in queues."""
        return Device("cuda", self._gpu.number)

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark in a queue, the present one by default."""
        self._gpu.use()
        self._gpu.driver.record(self.cuda_event, self._gpu.stream if stream is None else stream.cuda_stream)
        self._is_recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is queued from now on, in the present queue by default, wait for the mark."""
        self._gpu.use()
        if self._is_recorded:
            queue = self._gpu.stream if stream is None else stream.cuda_stream
            self._gpu.driver.wait_for_event(queue, self.cuda_event)

    def query(self) -> bool:
        """Whether the mark is reached."""
        self._gpu.use()
        return not self._is_recorded or self._gpu.driver.is_reached(self.cuda_event)

    def synchronize(self) -> None:
        """Wait until the mark is reached."""
        self._gpu.use()
        if self._is_recorded:
            self._gpu.driver.synchronize_event(self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another.

        Raises:
            ValueError: one of them takes no times, or is in no queue.
            DeviceError: the device is emulated.
        """
        if not (self._is_timed and end_event._is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._is_recorded and end_event._is_recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        self._gpu.use()
        return self._gpu.driver.elapsed_ms(self.cuda_event, end_event.cuda_event)

    def __del__(self) -> None:
        if hasattr(self, "cuda_event"):
            self._gpu.use()
            self._gpu.driver.destroy_event(self.cuda_event)


def current_stream(device: Any = None) -> Stream:
    """The queue that work is put in.

    Raises:
        NoCudaError: there is no device.
    """
    gpu = gpu_of(device, "current_stream")
    return Stream(gpu.number, _number=gpu.stream)


def default_stream(device: Any = None) -> Stream:
    """The queue that work is put in where nobody says otherwise: autojit's own of the device.

    Raises:
        NoCudaError: there is no device.
    """
    gpu = gpu_of(device, "default_stream")
    return Stream(gpu.number, _number=_pool_of(gpu).default)


def set_stream(stream: Stream | None) -> None:
    """Put work in another queue from now on; None changes nothing."""
    if stream is not None:
        stream.gpu.set_stream(stream.cuda_stream)


class StreamContext:
    """A block in which work is put in another queue; None changes nothing.

    Args:
        stream: the queue.
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


def stream(stream: Stream | None) -> StreamContext:
    """A block in which work is put in another queue; None changes nothing.

    Example:
        >>> import autojit as aj
        >>> with aj.cuda.stream(aj.cuda.Stream() if aj.cuda.is_available() else None):
        ...     pass
    """
    return StreamContext(stream)
