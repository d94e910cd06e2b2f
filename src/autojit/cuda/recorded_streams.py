"""Memory of a device that work in several streams uses: it is given back when the last of them is done with it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from autojit.core.device_array import DeviceArray, layout_in_memory
from autojit.core.errors import UsageError
from autojit.cuda.streams import Stream
from autojit.runtime.gpu.devices import CudaDevice
from autojit.tensor.tensor import Tensor, storage_of, type_of


class _Waiting:
    """Memory that is given back when marks in queues are reached."""

    def __init__(self) -> None:
        # Whose mark, the mark, the memory. Finalisers and other threads add to it at any instant.
        self.entries: deque[tuple[CudaDevice, int, object]] = deque()

    def add(self, gpu: CudaDevice, stream: int, memory: object) -> None:
        """Nobody refers to memory any more but work that is in a queue now."""
        gpu.use()
        event = gpu.driver.make_event(False)
        gpu.driver.record(event, stream)
        self.entries.append((gpu, event, memory))
        self.release()

    def release(self) -> None:
        """Give back what no queue needs any more."""
        for _ in range(len(self.entries)):
            try:
                gpu, event, memory = self.entries.popleft()
            except IndexError:  # somebody else looks at the last one
                return
            gpu.use()
            if gpu.driver.is_reached(event):
                gpu.driver.destroy_event(event)
            else:
                self.entries.append((gpu, event, memory))


_waiting = _Waiting()


def record_stream(x: Tensor, stream: Stream) -> None:
    """Let a tensor's memory not be used again before what a stream holds, when the tensor goes, is done.

    Raises:
        RuntimeError: the tensor is on no CUDA device.
    """
    root: Any = storage_of(x).array
    if type(root) is not DeviceArray:
        raise UsageError("record_stream: the tensor is on no CUDA device", {"tensor": type_of(x)})
    layout = layout_in_memory(root)
    while isinstance(layout.base, np.ndarray):
        layout = layout.base
    owner: Any = layout.base
    weakref.finalize(layout, _waiting.add, stream.gpu, stream.cuda_stream, owner.owner)
    _waiting.release()
