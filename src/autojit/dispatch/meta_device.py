"""The device ``meta``: tensors with shape, dtype, strides and history, but without elements and without memory.

What an op would give there, its type rule says, and how it would be laid out, the rule of `tensor.memory_orders`. So a
model of any size is made, moved, differentiated and counted for nothing, until somebody asks for an element.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from autojit.core.device import Device, register_device
from autojit.core.device_array import Array, DeviceArray, layout_in_memory
from autojit.core.errors import UnsupportedError
from autojit.core.locks import new_lock
from autojit.ir.op import Op
from autojit.ops.loop_orders import in_order_of
from autojit.ops.views import ViewUpdate
from autojit.runtime.memory import array_at
from autojit.tensor.memory_orders import outermost_first
from autojit.tensor.state import meet_devices
from autojit.tensor.tensor import array_type

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_REGION_BYTES = 1 << 40  # of address space: a process has 128 TiB
_ALIGNMENT = 64


class _Region:
    """A part of the address space that nothing is behind, from which arrays have their addresses.

    It can be read, where there are zeros: a debugger or a test's report that shows an array must not end the process.
    Arrays hold the mapping, so it goes with the last of them.
    """

    def __init__(self, size_bytes: int) -> None:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.mapping = mmap.mmap(-1, max(size_bytes, _REGION_BYTES), flags=private, prot=mmap.PROT_READ)
        self._next = int(np.frombuffer(self.mapping, np.uint8).__array_interface__["data"][0])
        self._end = self._next + len(self.mapping)

    def take(self, size_bytes: int) -> int | None:
        """The address of so many bytes that nobody else has; None: there are not so many left."""
        begin = self._next
        if begin + size_bytes > self._end:
            return None
        self._next += -(-max(size_bytes, 1) // _ALIGNMENT) * _ALIGNMENT
        return begin


class MetaSpace:
    """Memory that is not there: each array has addresses of its own, so that overlaps and versions are as elsewhere."""

    copies_for_numpy = False
    is_of_host = False
    stream = 0

    def __init__(self, device: Device) -> None:
        self.device = device
        self._region: _Region | None = None
        self._lock = new_lock()

    def let_wait(self, stream: int) -> None:
        """See `Space`."""

    def wait_for(self, stream: int) -> None:
        """See `Space`."""

    def holding(self, layout: NDArray[Any]) -> DeviceArray:
        """See `Space`."""
        return DeviceArray(layout, self)

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike, order: Sequence[int] | None = None) -> DeviceArray:
        """See `Space`."""
        size_bytes = math.prod(map(int, shape)) * np.dtype(dtype).itemsize
        with self._lock:
            region = self._region
            address = None if region is None else region.take(size_bytes)
            if region is None or address is None:
                region = self._region = _Region(size_bytes)
                address = region.take(size_bytes)
        assert address is not None
        return DeviceArray(array_at(address, shape, dtype, region.mapping, order), self)

    def arena(self, size_bytes: int) -> NoReturn:
        """See `Space`; no step runs here."""
        raise _no_elements()

    def copied_in(self, array: NDArray[Any]) -> DeviceArray:
        """See `Space`."""
        return self.allocate(array.shape, array.dtype, None if array.flags.c_contiguous else outermost_first(array))

    def copied_out(self, array: DeviceArray) -> NoReturn:
        """See `Space`; there is nothing to copy."""
        raise _no_elements()

    def write(self, target: DeviceArray, source: Array) -> None:
        """See `Space`."""

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        """See `Space`."""

    def apply(self, op: Op, arrays: Sequence[Array]) -> list[DeviceArray]:
        """See `Space`."""
        if op.needs_elements:
            raise _no_elements()
        found = op.result_type(*map(array_type, arrays))
        layouts = [layout_in_memory(array) for array in (arrays[:1] if type(op) is ViewUpdate else arrays)]
        made = []
        for kind in found if isinstance(found, tuple) else (found,):
            order = None
            if op.keeps_order and not all(layout.flags.c_contiguous for layout in layouts):
                order = outermost_first(in_order_of(layouts, kind.dtype.numpy))
            made.append(self.allocate(tuple(map(int, kind.shape)), kind.dtype.numpy, order))
        return made


def _no_elements() -> UnsupportedError:
    return UnsupportedError(
        "Cannot copy out of meta tensor; no data!",
        fix="make the tensors elsewhere: aj.empty_like(x, device='cpu'), or module.to_empty(device='cpu') for a module",
    )


def find() -> None:
    """Let the device ``meta`` exist."""
    register_device("meta", MetaSpace)
    meet_devices()
