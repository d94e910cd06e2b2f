"""A pickle as torch writes it: tensors become views of storages under torch's names, the rest is Python's pickling."""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any, ClassVar, NoReturn

import numpy as np

import autojit as aj
from autojit.core.device import Device
from autojit.core.device_array import Array, DeviceArray, first_address, host_copy
from autojit.core.dtypes import DType, uint8
from autojit.core.errors import UsageError
from autojit.core.layout import Layout
from autojit.core.user_warnings import warn
from autojit.functions.conversion import array_of
from autojit.functions.copying import attributes_of, warn_of_hooks
from autojit.functions.storages import AnyStorage, TypedStorage
from autojit.history.recording import wants_grad
from autojit.io.file_options import skips_data
from autojit.io.torch_names import STORAGE_NAMES, UNTYPED
from autojit.tensor import Tensor
from autojit.tensor.size import Size
from autojit.tensor.tensor import storage_of


class Name:
    """A module's function or class, written by name without importing it."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self, *arguments: Any) -> NoReturn:
        raise UsageError(f"{self.module}.{self.name} stands in a file only")


_NAMES: dict[tuple[str, str], Name] = {}


def name_of(module: str, name: str) -> Name:
    """The one ``Name`` of a name, so that a pickle writes it once."""
    return _NAMES.setdefault((module, name), Name(module, name))


class StorageReference:
    """Stands in the pickle for a storage, whose bytes are elsewhere in the file."""

    def __init__(self, kind: Name, key: str, count: int, location: str, dtype: DType) -> None:
        self.persistent: tuple[Any, ...] = ("storage", kind, key, location, count)
        self.dtype = dtype


_Pickler: Any = pickle._Pickler  # the one written in Python, whose instructions can be chosen


class PickleWriter(_Pickler):  # type: ignore[misc]
    """Pickles one object; ``storages`` is afterwards what its tensors look at, under ``"0"``, ``"1"``, ..."""

    dispatch: ClassVar[dict[type, Any]] = dict(_Pickler.dispatch)

    def __init__(self, file: io.BytesIO, protocol: int = 2, is_legacy: bool = False) -> None:
        super().__init__(file, protocol=protocol)
        self._file = file
        self._is_legacy = is_legacy  # references of older files say of which storage one is a part: None
        self.storages: dict[str, np.ndarray[Any, Any]] = {}
        self.counts: dict[str, int] = {}  # of elements
        self._references: dict[tuple[int, int, str], StorageReference] = {}  # by address, bytes, device
        self._kept: list[Any] = []  # arrays whose addresses are keys

    @classmethod
    def into_memory(cls, protocol: int = 2, *, is_legacy: bool = False) -> PickleWriter:
        """A writer whose pickle is its ``text`` afterwards."""
        return cls(io.BytesIO(), protocol, is_legacy)

    def text(self) -> bytes:
        """What was written."""
        return self._file.getvalue()

    def save_name(self, obj: Name) -> None:
        """One GLOBAL instruction."""
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[Name] = save_name

    def persistent_id(self, obj: Any) -> Any:
        """What stands for an object in the pickle, if something else does."""
        if isinstance(obj, AnyStorage):
            obj = self._whole(obj)
        if not isinstance(obj, StorageReference):
            return None
        return (*obj.persistent, None) if self._is_legacy else obj.persistent

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Pickle an object; a dtype is a name of torch's."""
        if isinstance(obj, DType):
            obj = name_of("torch", obj.name)
        super().save(obj, save_persistent_id)

    def reducer_override(self, obj: Any) -> Any:
        """How tensors and their attributes are put together again."""
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, Size):
            return name_of("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Device):
            return name_of("torch", "device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, Layout):
            return name_of("torch.serialization", "_get_layout"), (f"torch.{obj.name}",)
        if isinstance(obj, collections.OrderedDict) and type(obj).__module__.startswith("autojit."):
            return collections.OrderedDict, (), obj.__dict__ or None, None, iter(obj.items())
        return NotImplemented

    def _tensor(self, t: Tensor) -> tuple[Any, ...]:
        warn_of_hooks(t)
        if t.layout is not aj.strided:
            return self._sparse(t)
        if isinstance(t, aj.nn.parameter.UninitializedTensorMixin):
            return name_of("torch.nn.parameter", type(t).__name__), (t.requires_grad, t.device, t.dtype)
        if isinstance(t, aj.nn.Parameter):
            made: tuple[Any, ...] = (t.detach(), t.requires_grad, collections.OrderedDict())
            if not t.__dict__:
                return name_of("torch._utils", "_rebuild_parameter"), made
            return name_of("torch._utils", "_rebuild_parameter_with_state"), (*made, dict(t.__dict__))
        plain, attributes = self._plain_tensor(t), attributes_of(t)
        is_own = not type(t).__module__.startswith("autojit.")
        if not is_own and not attributes:
            return plain
        kind = type(t) if is_own else name_of("torch", "Tensor")
        return name_of("torch._tensor", "_rebuild_from_type_v2"), (plain[0], kind, plain[1], attributes or {})

    def _plain_tensor(self, t: Tensor) -> tuple[Any, ...]:
        """A dense tensor, without attributes of its own."""
        dtype = t.dtype
        if t.is_meta:
            if skips_data():
                warn("Serializing tensors on the meta device under skip_data context manager is a no-op")
            form = dtype, tuple(t.shape), t.stride(), t.requires_grad
            return name_of("torch._utils", "_rebuild_meta_tensor_no_storage"), form
        found, start, strides = self._storage(t)
        view: tuple[Any, ...] = (found, start, tuple(t.shape), strides, wants_grad(t), collections.OrderedDict())
        if dtype in STORAGE_NAMES:
            return name_of("torch._utils", "_rebuild_tensor_v2"), view
        return name_of("torch._utils", "_rebuild_tensor_v3"), (*view, dtype)

    def _sparse(self, t: Any) -> tuple[Any, ...]:
        if t.layout is aj.sparse_coo:
            data: tuple[Any, ...] = (t._indices(), t._values(), t.shape, t.is_coalesced())
        elif t.layout in (aj.sparse_csr, aj.sparse_bsr):
            data = (t.crow_indices(), t.col_indices(), t.values(), t.shape)
        else:
            data = (t.ccol_indices(), t.row_indices(), t.values(), t.shape)
        return name_of("torch._utils", "_rebuild_sparse_tensor"), (t.layout, data)

    def _storage(self, t: Tensor) -> tuple[StorageReference, int, tuple[int, ...]]:
        """The storage a tensor looks at, where it begins there, and its strides in elements."""
        array: Any = t._array if type(t._array) is DeviceArray else array_of(t)
        root: Any = storage_of(t).array if t._array is not None else None
        if root is not None and root.dtype != array.dtype and _is_dense(root) and type(root) is not DeviceArray:
            root = _memory(root).view(array.dtype)
        if root is None or root.dtype != array.dtype or not _is_dense(root) or not _lies_in(array, root):
            root = array = array.copy(order="C") if type(array) is DeviceArray else np.ascontiguousarray(array)
        each = array.itemsize
        start = (first_address(array) - first_address(root)) // each if array.size else 0
        strides = tuple(s // each for s in array.strides) if array.size else t.stride()
        return self._reference(root, t.dtype, str(t.device)), start, strides

    def _whole(self, memory: AnyStorage) -> StorageReference:
        """A storage that is saved for itself."""
        dtype = memory.dtype if isinstance(memory, TypedStorage) else None
        return self._reference(memory.elements(dtype or uint8)._array, dtype, str(memory.device))

    def _reference(self, root: Any, dtype: DType | None, location: str) -> StorageReference:
        """What stands for memory; no dtype: bytes.

        Raises:
            UsageError: it was saved as elements of another dtype before, and a file has each memory once.
        """
        each = dtype if dtype in STORAGE_NAMES else uint8
        key = (first_address(root), root.nbytes, location)
        known = self._references.get(key) if root.size else None
        if known is not None:
            if known.dtype is not each:
                raise UsageError(
                    "save: Cannot save multiple tensors or storages that view the same data as different types",
                    {"saved before as": known.dtype, "now as": each},
                    "save one of them, and make the other from it after load; or a clone() of it",
                )
            return known
        name = str(len(self.storages))
        self.storages[name] = np.zeros(root.nbytes, np.uint8) if skips_data() else _memory(host_copy(root))
        kind = name_of("torch", STORAGE_NAMES[each]) if dtype is each else name_of("torch.storage", UNTYPED)
        self.counts[name] = root.nbytes // each.size_bytes
        made = StorageReference(kind, name, self.counts[name], location, each)
        self._references[key] = made
        self._kept.append(root)
        return made


def _is_dense(root: Array) -> bool:
    """Whether the elements fill their memory without gaps, in any order of axes."""
    order = [int(axis) for axis in np.argsort([-s for s in root.strides], kind="stable")]
    return bool(root.transpose(order).flags.c_contiguous)


def _lies_in(array: Array, root: Array) -> bool:
    if any(s < 0 for s in array.strides):
        return False
    first, end = first_address(root), first_address(root) + root.nbytes
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize
    return not array.size or (first <= first_address(array) and first_address(array) + reach <= end)


def _memory(root: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of a dense array in the order of memory."""
    order = np.argsort([-s for s in root.strides], kind="stable")
    return root.transpose(order).reshape(-1).view(uint8.numpy)
