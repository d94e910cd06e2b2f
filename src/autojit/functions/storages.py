"""The memory that tensors look at, as torch shows it: bytes, or elements of one dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import META
from autojit.core.device_array import first_address, host_copy, layout_in_memory
from autojit.core.dtypes import uint8
from autojit.core.top_level import top_level
from autojit.functions.buffers import from_file
from autojit.functions.memory import without_memory
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, storage_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


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

    def nbytes(self) -> int:
        """The number of bytes, those between elements included."""
        self._ask("the size of the storage")
        layout = layout_in_memory(self._array)
        if not layout.size:
            return 0
        steps = zip(layout.shape, layout.strides, strict=True)
        return int(layout.itemsize + sum((n - 1) * abs(step) for n, step in steps))

    size = __len__ = nbytes

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

    def __getitem__(self, place: int) -> Any:
        return self.tolist()[place]


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory the tensor looks at."""
    return UntypedStorage(self)


def storage(self: Tensor) -> TypedStorage:
    """The memory the tensor looks at, as elements of its dtype."""
    return TypedStorage(self)


METHODS: dict[str, Any] = {method.__name__: method for method in (untyped_storage, storage)}
