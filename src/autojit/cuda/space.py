"""Memory of a CUDA device: tensors are layouts over its addresses, which kernels and the driver's copies reach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import Device
from autojit.core.device_array import Array, DeviceArray, first_address, share_memory
from autojit.core.errors import OutOfMemoryError
from autojit.core.user_warnings import warn
from autojit.dispatch.device_kernels import DeviceKernels, are_alike
from autojit.dispatch.operand_memory import is_packed
from autojit.ir.op import Op
from autojit.runtime.gpu.devices import cuda_device
from autojit.runtime.memory import array_at
from autojit.tensor.memory_orders import order_of, outermost_first, places_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from autojit.runtime.gpu.memory import Held

_warned: set[str] = set()  # of which devices it was said that they are emulated


class CudaSpace:
    """The memory of one device, in the order of whatever stream is its present one.

    Args:
        device: a CUDA device with its ordinal.

    Raises:
        DeviceError: it is not there, or too old.
    """

    copies_for_numpy = False

    is_of_host = False

    def __init__(self, device: Device) -> None:
        self.device = device
        self.gpu = cuda_device(device.index or 0)
        self._kernels = DeviceKernels(self)
        if self.gpu.driver.is_emulated and str(device) not in _warned:
            _warned.add(str(device))
            warn(
                f"{device} is emulated (AUTOJIT_CUDA=emulate): this machine's CPU computes every kernel and checks "
                "every access, so how long something takes says nothing of a GPU",
                is_once=True,
            )

    @property
    def stream(self) -> int:
        """See `Space`."""
        return self.gpu.stream

    def let_wait(self, stream: int) -> None:
        """See `Space`."""
        self._order(self.gpu.stream, stream)

    def wait_for(self, stream: int) -> None:
        """See `Space`."""
        self._order(stream, self.gpu.stream)

    def _order(self, first: int, second: int) -> None:
        """What is put in one queue from now on comes after what is in another now."""
        if first == second:
            return
        self.gpu.use()
        mark = self.gpu.driver.make_event(False)
        self.gpu.driver.record(mark, first)
        self.gpu.driver.wait_for_event(second, mark)
        self.gpu.driver.destroy_event(mark)

    def holding(self, layout: NDArray[Any]) -> DeviceArray:
        """See `Space`."""
        return DeviceArray(layout, self)

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike, order: Sequence[int] | None = None) -> DeviceArray:
        """See `Space`.

        Raises:
            OutOfMemoryError: the device has no more.
        """
        memory = self.gpu.memory.hold(math.prod(map(int, shape)) * np.dtype(dtype).itemsize, self.gpu.stream)
        return DeviceArray(array_at(memory.address, shape, dtype, memory, order), self)

    def arena(self, size_bytes: int) -> Held:
        """See `Space`.

        Raises:
            OutOfMemoryError: the device has no more; it says that this is what a step was to have.
        """
        try:
            return self.gpu.memory.hold(size_bytes, self.gpu.stream)
        except OutOfMemoryError as error:
            told = f"the temporaries of a compiled step, one block of {size_bytes:,} bytes (see its memory())"
            raise error.with_facts({"wanted for": told}) from None

    def copied_in(self, array: NDArray[Any]) -> DeviceArray:
        """See `Space`. The array may be changed as soon as this returns."""
        packed, order = _packed(array)
        made = self.allocate(array.shape, array.dtype, order)
        if array.size:
            self.gpu.use()
            self.gpu.driver.copy_in(first_address(made), first_address(packed), array.nbytes, self.gpu.stream)
        return made

    def copied_out(self, array: DeviceArray) -> NDArray[Any]:
        """See `Space`. Waits for what was queued before."""
        order = order_of(array.layout)
        if order is not None and order[:1] == ("strides",):
            array = array.copy("K")
            order = order_of(array.layout)
        axes = range(array.ndim) if order is None else order
        made = np.empty([array.shape[axis] for axis in axes], array.dtype)
        if array.size:
            self.gpu.use()
            self.gpu.driver.copy_out(first_address(made), first_address(array), array.nbytes, self.gpu.stream)
            self.gpu.synchronize()
        return made.transpose(places_of(axes))

    def write(self, target: DeviceArray, source: Array) -> None:
        """See `Space`. Copies without a kernel where bytes stay as they are."""
        if not target.size:
            return
        byte = _repeated_byte(target, source)
        self.gpu.use()
        if byte is not None and is_packed(target.layout):
            self.gpu.driver.fill(first_address(target), byte, target.nbytes, self.gpu.stream)
        elif are_alike(target, source) and not share_memory(target, source):
            copy = self.gpu.driver.copy_within if type(source) is DeviceArray else self.gpu.driver.copy_in
            copy(first_address(target), first_address(source), target.nbytes, self.gpu.stream)
        else:
            self._kernels.write(target, source)

    def add(self, total: DeviceArray, part: DeviceArray) -> None:
        """See `Space`."""
        self._kernels.add(total, part)

    def apply(self, op: Op, arrays: Sequence[Array]) -> list[DeviceArray]:
        """See `Space`."""
        self.gpu.use()
        return self._kernels.compute(op, arrays)


def _packed(array: NDArray[Any]) -> tuple[NDArray[Any], Sequence[int] | None]:
    """An array on the host whose elements fill their memory, and the order of its axes there; None: row-major."""
    if not (is_packed(array) and array.flags.aligned and array.dtype.isnative):
        array = array.astype(array.dtype.newbyteorder("="), order="K")
    return array, None if array.flags.c_contiguous else outermost_first(array)


def _repeated_byte(target: DeviceArray, source: Array) -> int | None:
    """The byte that a number on the host makes all bytes of a target."""
    if type(source) is DeviceArray or source.ndim:
        return None
    with np.errstate(all="ignore"):
        found = set(source.astype(target.dtype).tobytes())
    return found.pop() if len(found) == 1 else None
