"""Arrays of the host in memory that a device reaches directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.runtime.gpu.devices import cuda_device
from autojit.runtime.gpu.memory import PinnedMemory
from autojit.runtime.memory import array_at

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pinned_copy(array: NDArray[Any], device: int) -> NDArray[Any]:
    """A copy of an array, in row-major order, in pinned memory of a device's driver.

    Raises:
        OutOfMemoryError: the driver has no more.
    """
    memory = PinnedMemory(cuda_device(device).driver, device, max(array.nbytes, 1))
    made = array_at(memory.address, array.shape, array.dtype, memory)
    made[...] = array
    return made


def is_pinned(array: NDArray[Any]) -> bool:
    """Whether an array is in pinned memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(getattr(owner, "owner", None), PinnedMemory)
