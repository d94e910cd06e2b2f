"""The memory that tensors look at, as torch shows it: bytes, or elements of one dtype."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autojit.core.device import CPU, META, Device, DeviceLike
from autojit.core.device_array import first_address, layout_in_memory, on_layout
from autojit.core.dtypes import DType, default_dtype, uint8
from autojit.core.errors import UsageError
from autojit.core.package_name import full_name
from autojit.core.top_level import top_level
from autojit.functions.buffers import from_file
from autojit.functions.factories import tensor, zeros
from autojit.functions.memory import without_memory
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, storage_of, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Content: TypeAlias = int | Sequence[complex]
"""What a storage is made of: a number of elements, or the elements."""


class AnyStorage:
    """The memory that a tensor, its views and its aliases share."""

    @classmethod
    def of(cls, owner: Tensor) -> Self:
        """The memory that a tensor looks at."""
        made = cls.__new__(cls)
        made._look_at(owner)
        return made

    def _look_at(self, owner: Tensor) -> None:
        if owner._array is None and state.trace is None:
            raise without_memory(owner)
        storage = storage_of(owner)
        array = storage.array
        if array is None:
            assert state.trace is not None
            array = state.trace.memory_of(storage)
        self._array: NDArray[Any] = array
        self.device: Device = owner.device
        self._owner: Tensor = owner

    @property
    def filename(self) -> str | None:
        """The file that changes of the memory go into; None of other memory."""
        found: Any = self._array
        while isinstance(found, np.ndarray) and not isinstance(found, np.memmap):
            found = found.base
        return str(found.filename) if isinstance(found, np.memmap) and found.mode == "r+" else None

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is a CUDA device's."""
        return self.device.type == "cuda"

    @property
    def _cdata(self) -> int:
        """A number of the memory, the same for all that look at it, by which programs of torch's know it again."""
        return id(storage_of(self._owner).memory)

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

    def elements(self, dtype: DType) -> Tensor:
        """The memory itself as a vector of a dtype; bytes at the end that are no whole element are left out."""
        if self.device != CPU:
            flat = on_layout(self._array, layout_in_memory(self._array).reshape(-1))
            return wrap(flat).view(dtype)
        found = self._bytes()
        return wrap(found[: found.size // dtype.size_bytes * dtype.size_bytes].view(dtype.numpy))

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

    def _elements(self) -> Tensor:
        """The memory as a vector: of bytes, where no dtype is told."""
        return self.elements(uint8)

    def fill_(self, value: complex) -> Self:
        """Set all elements."""
        self._elements().fill_(value)
        return self

    def copy_(self, source: AnyStorage, non_blocking: bool = False) -> Self:
        """Take the elements of another storage over, converted."""
        self._elements().copy_(source._elements(), non_blocking)
        return self

    def clone(self) -> Self:
        """The elements in memory of their own."""
        return type(self).of(self._elements().clone())

    __copy__ = clone

    def is_shared(self) -> bool:
        """Whether other processes see the memory: after ``share_memory_``."""
        return self._owner.is_shared()

    def share_memory_(self) -> Self:
        """Move the memory to where other processes see it; returns the storage."""
        self._look_at(self._owner.share_memory_())
        return self

    def cpu(self) -> Self:
        """On the CPU: itself, or a copy."""
        return self if self.device == CPU else type(self).of(self._elements().cpu())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Of a copy of the tensors' memory, which copies of the tensors share."""
        return type(self).of(copy.deepcopy(self._owner.detach(), memo))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return self.data_ptr()


def _again(kind: type[AnyStorage], owner: Tensor) -> AnyStorage:
    """A storage of a copy."""
    return kind.of(owner)


@top_level
class UntypedStorage(AnyStorage):
    """Memory as bytes: of so many, which are 0, of the bytes that are given, or what a tensor looks at.

    Example:
        >>> import autojit as aj
        >>> aj.UntypedStorage([1, 2]).tolist(), aj.zeros(3).untyped_storage().nbytes()
        ([1, 2], 12)
    """

    def __init__(self, *content: Content, device: DeviceLike = None) -> None:
        self._look_at(_memory_of(content, uint8, device))

    @staticmethod
    def from_file(filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """A file's bytes; with ``shared`` changes go into the file, which grows to fit.

        Raises:
            RuntimeError: the file is smaller and is not shared, or cannot be opened.
        """
        return UntypedStorage.of(from_file(filename, shared, nbytes, dtype=uint8))

    def untyped(self) -> UntypedStorage:
        """The same: it has no dtype."""
        return self

    size = __len__ = AnyStorage.nbytes

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._bytes(), dtype, copy=copy)

    def __getitem__(self, place: int | slice) -> Any:
        """A byte; of a slice, the storage of that part of the memory."""
        if not isinstance(place, slice):
            return int(self._bytes()[place])
        if place.step not in (None, 1):
            raise UsageError(f"Trying to slice with a step of {place.step}, but only a step of 1 is supported")
        return UntypedStorage.of(wrap(self._bytes()[place]))

    def __setitem__(self, place: int | slice, value: int | NDArray[np.uint8]) -> None:
        self._bytes()[place] = value

    def tolist(self) -> list[Any]:
        """The bytes as Python numbers."""
        return [int(byte) for byte in self._bytes()]

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.elements(uint8))

    def __repr__(self) -> str:
        return _shown(self.tolist(), full_name(f"storage.UntypedStorage(device={self.device})"))


def _memory_of(content: Sequence[Content], dtype: DType, device: DeviceLike) -> Tensor:
    """What is given to a constructor: nothing, a number of elements, or the elements."""
    if len(content) > 1:
        raise TypeError(f"a storage is made of a size or of one sequence, not of {len(content)} values")
    given = content[0] if content else 0
    if isinstance(given, int):
        return zeros(given, dtype=dtype, device=device)
    return tensor(list(given), dtype=dtype, device=device)


def _shown(values: Sequence[object], kind: str) -> str:
    lines = "".join(f" {value}\n" for value in values)
    return f"{lines}[{kind} of size {len(values)}]"


@top_level
class TypedStorage(AnyStorage):
    """Memory as elements of a dtype: of so many, which are 0, of the elements that are given, or of another storage.

    Args:
        wrap_storage: the storage whose memory this is, too.
        dtype: the default dtype if it is left out.

    Example:
        >>> import autojit as aj
        >>> aj.TypedStorage([1, 2], dtype=aj.int16).nbytes(), aj.ones(2).storage().tolist()
        (4, [1.0, 1.0])
    """

    def __init__(
        self, *content: Content, wrap_storage: AnyStorage | None = None, dtype: DType | None = None,
        device: DeviceLike = None,
    ) -> None:  # fmt: skip
        chosen = default_dtype() if dtype is None else dtype
        if wrap_storage is None:
            self._look_at(_memory_of(content, chosen, device))
        elif content or device is not None or dtype is None:
            raise TypeError("TypedStorage: beside wrap_storage there is dtype, and nothing else")
        else:
            self._look_at(wrap_storage.elements(chosen))

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return type_of(self._owner).dtype

    def _elements(self) -> Tensor:
        return self.elements(self.dtype)

    def element_size(self) -> int:
        """The bytes of an element."""
        return self.dtype.size_bytes

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.dtype.size_bytes

    __len__ = size

    def untyped(self) -> UntypedStorage:
        """The same memory without a dtype."""
        return UntypedStorage.of(self._owner)

    _untyped_storage = property(untyped)

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        self._ask("the elements of the storage", always=True)
        found: list[Any] = self._elements().tolist()
        return found

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._elements().numpy(), dtype, copy=copy)

    def __getitem__(self, place: int | slice) -> Any:
        """An element.

        Raises:
            RuntimeError: for a slice, which only a storage of bytes can be.
        """
        if isinstance(place, slice):
            raise UsageError("slices are only supported in UntypedStorage.__getitem__", fix="storage.untyped()[...]")
        return self._elements()[place].item()

    def __setitem__(self, place: int | slice, value: complex) -> None:
        self._elements()[place] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (TypedStorage, self._elements())

    def __repr__(self) -> str:
        kind = full_name(f"storage.TypedStorage(dtype={self.dtype}, device={self.device})")
        return _shown(self.tolist(), kind)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory the tensor looks at."""
    return UntypedStorage.of(self)


def storage(self: Tensor) -> TypedStorage:
    """The memory the tensor looks at, as elements of its dtype."""
    return TypedStorage.of(self)


METHODS: dict[str, Any] = {method.__name__: method for method in (untyped_storage, storage)}
