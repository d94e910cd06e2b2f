"""The memory that tensors look at, as torch shows it: bytes, or elements of one dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autojit.core.device import CPU, META
from autojit.core.device_array import first_address, host_copy, layout_in_memory
from autojit.core.dtypes import uint8
from autojit.core.errors import UsageError
from autojit.core.top_level import top_level
from autojit.functions.buffers import from_file
from autojit.functions.memory import without_memory
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, storage_of, wrap

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


@top_level
class UntypedStorage:
    """The memory that a tensor, its views and its aliases share, as bytes."""

    def __init__(self, owner: Tensor) -> None:
        if owner._array is None and state.trace is None:
            raise without_memory(owner)
        storage = storage_of(owner)
        array = storage.array
        if array is None:
            assert state.trace is not None
            array = state.trace.memory_of(storage)
        self._array: NDArray[Any] = array
        self.device = owner.device
        self._owner = owner

    @staticmethod
    def from_file(filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """A file's bytes; with ``shared`` changes go into the file, which grows to fit.

        Raises:
            RuntimeError: the file is smaller and is not shared, or cannot be opened.
        """
        return UntypedStorage(from_file(filename, shared, nbytes, dtype=uint8))

    @property
    def filename(self) -> str | None:
        """The file that changes of the memory go into; None of other memory."""
        found: Any = self._array
        while isinstance(found, np.ndarray) and not isinstance(found, np.memmap):
            found = found.base
        return str(found.filename) if isinstance(found, np.memmap) and found.mode == "r+" else None

    def _ask(self, what: str, always: bool = False) -> None:
        if state.trace is not None:
            state.trace.asked_memory(self._owner, what, always)

    def data_ptr(self) -> int:
        """The address of the first byte; 0 on ``meta``."""
        return 0 if self.device == META else first_address(self._array)

    def untyped(self) -> UntypedStorage:
        """The same: it has no dtype."""
        return self

    def nbytes(self) -> int:
        """The number of bytes, those between elements included."""
        self._ask("the size of the storage")
        layout = layout_in_memory(self._array)
        if not layout.size:
            return 0
        steps = zip(layout.shape, layout.strides, strict=True)
        return int(layout.itemsize + sum((n - 1) * abs(step) for n, step in steps))

    size = __len__ = nbytes

    def _bytes(self) -> NDArray[np.uint8]:
        """The memory itself, as bytes.

        Raises:
            UsageError: it is on a device, which Python does not look into.
        """
        self._ask("the bytes of the storage", always=True)
        if self.device != CPU:
            raise UsageError(
                "storage: the bytes are on a device", {"device": self.device}, "tensor.cpu().untyped_storage()"
            )
        from_lowest = self._array[tuple(slice(None, None, -1 if step < 0 else 1) for step in self._array.strides)]
        size, itemsize = self.nbytes(), self._array.itemsize
        return as_strided(from_lowest, (size // itemsize,), (itemsize,)).view(np.uint8)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._bytes(), dtype, copy=copy)

    def __getitem__(self, place: int | slice) -> Any:
        """A byte; of a slice, the storage of that part of the memory."""
        if not isinstance(place, slice):
            return int(self._bytes()[place])
        if place.step not in (None, 1):
            raise UsageError(f"Trying to slice with a step of {place.step}, but only a step of 1 is supported")
        return UntypedStorage(wrap(self._bytes()[place]))

    def __setitem__(self, place: int | slice, value: int | NDArray[np.uint8]) -> None:
        self._bytes()[place] = value

    def tolist(self) -> list[Any]:
        """The bytes as Python numbers."""
        return [int(byte) for byte in self._bytes()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return self.data_ptr()


class TypedStorage(UntypedStorage):
    """The same memory as elements of the tensor's dtype."""

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // int(self._array.itemsize)

    __len__ = size

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        self._ask("the elements of the storage", always=True)
        return host_copy(self._array).reshape(-1).tolist()

    def __getitem__(self, place: int | slice) -> Any:
        return self.tolist()[place]


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory the tensor looks at."""
    return UntypedStorage(self)


def storage(self: Tensor) -> TypedStorage:
    """The memory the tensor looks at, as elements of its dtype."""
    return TypedStorage(self)


METHODS: dict[str, Any] = {method.__name__: method for method in (untyped_storage, storage)}
