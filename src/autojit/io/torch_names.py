"""What the names of a torch file stand for here: dtypes, storages, containers, and how tensors are put together again.

A storage is a flat array of bytes or elements; a tensor is a view of it. NumPy itself checks that a view stays inside.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np

import autojit as aj
from autojit.core.device import CPU, Device, DeviceLike
from autojit.core.dtypes import BY_NAME, DType, dtype_of_numpy
from autojit.core.layout import Layout
from autojit.dispatch.on_device import placed, where_to
from autojit.functions.copying import give_attributes
from autojit.functions.storages import TypedStorage
from autojit.io.load_errors import LoadError, refuse
from autojit.tensor import Tensor
from autojit.tensor.size import Size
from autojit.tensor.tensor import wrap

STORAGES: dict[str, DType] = {
    "FloatStorage": aj.float32, "DoubleStorage": aj.float64, "HalfStorage": aj.float16,
    "BFloat16Storage": aj.bfloat16, "LongStorage": aj.int64, "IntStorage": aj.int32, "ShortStorage": aj.int16,
    "CharStorage": aj.int8, "ByteStorage": aj.uint8, "BoolStorage": aj.bool,
    "ComplexFloatStorage": aj.complex64, "ComplexDoubleStorage": aj.complex128,
}  # fmt: skip
STORAGE_NAMES = {dtype: name for name, dtype in STORAGES.items()}
UNTYPED = "UntypedStorage"
_MOST_BYTES = 1 << 60  # of a tensor that repeats few elements: far above any memory, below what overflows


class StorageKind(NamedTuple):
    """A class of storages, named by a file: its dtype, uint8 for untyped ones."""

    dtype: DType


class LoadedStorage(TypedStorage):
    """The memory of a storage of a file, which its tensors share, and the device on which they will be."""

    def __init__(self, array: Any, place: Device = CPU) -> None:
        self.array = array
        self.device = self.place = place
        self.roots: dict[DType, Tensor] = {}  # the first tensor of a dtype; others are views of it

    def __getattr__(self, name: str) -> Any:
        """The tensor whose memory this is, made when the storage itself is used, as one that was saved is."""
        if name not in ("_array", "_owner"):
            raise AttributeError(f"a storage has no attribute {name!r}")
        self._look_at(self.root(dtype_of_numpy(self.array.dtype)))
        return vars(self)[name]

    def root(self, dtype: DType) -> Tensor:
        """A tensor of the whole memory."""
        if dtype not in self.roots:
            self.roots[dtype] = placed(wrap(self.flat(dtype)), self.place)
        return self.roots[dtype]

    def to(self, device: DeviceLike) -> LoadedStorage:
        """The same memory for tensors on a device, which must be there."""
        return LoadedStorage(self.array, where_to(device))

    def cpu(self) -> Self:
        """For tensors on the CPU."""
        return type(self)(self.array)

    def cuda(self, device: DeviceLike = None) -> LoadedStorage:
        """For tensors on a CUDA device."""
        return self.to("cuda" if device is None else device)

    def flat(self, dtype: DType) -> Any:
        """The memory as elements of a dtype."""
        if self.array.dtype == dtype.numpy:
            return self.array
        if self.array.nbytes % dtype.size_bytes:
            raise LoadError(f"load: a storage of {self.array.nbytes} bytes cannot hold elements of {dtype}")
        return self.array.view(dtype.numpy)


def _numbers(what: str, values: Any, count: int | None = None) -> tuple[int, ...]:
    if not isinstance(values, tuple) or (count is not None and len(values) != count) or len(values) > 64:
        raise LoadError(f"load: {what} of a tensor is {str(values)[:80]}")
    for value in values:
        if type(value) is not int or not 0 <= value < 1 << 60:
            raise LoadError(f"load: {what} of a tensor holds {str(value)[:40]}")
    return values


def tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    """torch's ``_rebuild_tensor_v2``: a view of a storage."""
    refuse(not isinstance(storage, LoadedStorage), "a tensor without a storage")
    return tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype_of_numpy(storage.array.dtype), metadata)


def tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None, dtype: Any = None,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    """torch's ``_rebuild_tensor_v3``: the same for dtypes without a storage class."""
    if not isinstance(storage, LoadedStorage) or not isinstance(dtype, DType):
        raise LoadError("load: a tensor without a storage or a dtype")
    return _finished(_view(storage, dtype, offset, size, stride), requires_grad, metadata)


def _view(storage: LoadedStorage, dtype: DType, offset: Any, size: Any, stride: Any) -> Tensor:
    (start,) = _numbers("the offset", (offset,))
    shape = _numbers("the shape", size)
    steps = _numbers("the strides", stride, len(shape))
    flat = storage.flat(dtype)
    if 0 in shape:
        return placed(wrap(np.empty(shape, dtype.numpy)), storage.place)
    last = start + sum((n - 1) * step for n, step in zip(shape, steps))
    if last >= flat.size or prod(shape) * flat.itemsize >= _MOST_BYTES:
        raise LoadError(
            f"load: a tensor of shape {list(shape)} and strides {list(steps)} at {start} reaches beyond its storage of "
            f"{flat.size} elements"
        )
    try:
        return _shared(storage, dtype, shape, steps, start)
    except ValueError as error:
        raise LoadError(f"load: a tensor of shape {list(shape)} is impossible: {error}") from None


def _shared(storage: LoadedStorage, dtype: DType, shape: tuple[int, ...], steps: tuple[int, ...], start: int) -> Tensor:
    root = storage.roots.get(dtype)
    if root is None:
        flat = storage.flat(dtype)
        is_all = start == 0 and prod(shape) == flat.size
        whole = flat.reshape(shape) if is_all else flat
        if is_all and tuple(step * flat.itemsize for step in steps) != whole.strides:
            whole = flat
        root = storage.roots[dtype] = placed(wrap(whole), storage.place)
    with aj.no_grad():
        seen = root if (tuple(root.shape), root.stride(), start) == (shape, steps, 0) else None
        return (aj.as_strided(root, shape, steps, start) if seen is None else seen).detach()


def _finished(t: Tensor, requires_grad: Any, metadata: Any) -> Tensor:
    if isinstance(metadata, dict) and (metadata.get("conj") or metadata.get("neg")):
        refuse(0 in t.stride(), "a repeated tensor marked as conjugate or negative")
        t = aj.conj(t) if metadata.get("conj") else t
        t = aj.neg(t) if metadata.get("neg") else t
    if requires_grad is True:
        refuse(not t.dtype.is_differentiable, f"a tensor of {t.dtype} cannot require gradients")
        t.requires_grad = True
    return t


def parameter(data: Any, requires_grad: Any, hooks: Any = None, state: Any = None) -> Any:
    """torch's ``_rebuild_parameter``, and ``_rebuild_parameter_with_state``: with attributes of its own."""
    refuse(not isinstance(data, Tensor), "a parameter without a tensor")
    return _with_attributes(aj.nn.Parameter(data, requires_grad is True), state)


def _with_attributes(made: Tensor, state: Any) -> Tensor:
    if isinstance(state, dict):
        made.__dict__.update({name: value for name, value in state.items() if type(name) is str})
    return made


def uninitialized(kind: type[Any]) -> Callable[..., Any]:
    """A parameter or buffer of a lazy module that has not met a batch yet."""

    def make(requires_grad: Any, device: Any, dtype: Any) -> Any:
        is_made = isinstance(device, Device) and isinstance(dtype, DType) and isinstance(requires_grad, bool)
        refuse(not is_made, "an uninitialized parameter is malformed")
        return kind(requires_grad, device, dtype)

    return make


_COMPRESSED = (aj.sparse_csr, aj.sparse_csc, aj.sparse_bsr, aj.sparse_bsc)


def sparse(layout: Any, data: Any) -> Tensor:
    """torch's ``_rebuild_sparse_tensor``; the places are checked."""
    try:
        if layout is aj.sparse_coo and len(data) in (3, 4):
            indices, values, size = data[:3]
            return aj.sparse_coo_tensor(indices, values, _numbers("the shape", tuple(size)))
        if layout in _COMPRESSED and len(data) == 4:
            starts, places, values, size = data
            extents = _numbers("the shape", tuple(size))
            return aj.sparse_compressed_tensor(starts, places, values, extents, layout=layout)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise LoadError(f"load: a sparse tensor is malformed: {error}") from None
    raise LoadError(f"load: sparse tensors of layout {str(layout)[:40]} are not known")


def meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    """torch's ``_rebuild_meta_tensor_no_storage``: a tensor without memory."""
    refuse(not isinstance(dtype, DType), "a tensor without a dtype")
    shape = _numbers("the shape", size)
    steps = _numbers("the strides", stride, len(shape))
    refuse(prod(shape) >= _MOST_BYTES, "a tensor of more elements than any memory has")
    return _finished(aj.empty_strided(shape, steps, dtype=dtype, device="meta"), requires_grad, None)


def tensor_of_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """torch's ``_rebuild_from_type_v2``: a tensor with attributes of its own, of a class that the user allowed.

    That class's ``__setstate__`` gets the attributes; else they are put back if they are a dict, or one of the
    dictionary and one of slots.
    """
    is_known = any(function is known for known in (tensor_v2, tensor_v3, parameter, meta_tensor))
    refuse(not is_known or not isinstance(arguments, tuple), "a tensor is rebuilt by an unknown function")
    made = function(*arguments)
    if not isinstance(kind, Usable):
        refuse(kind is not Tensor and not isinstance(kind, str), f"a tensor is made a {str(kind)[:60]}")
        return _with_attributes(made, state)
    is_class = isinstance(kind.found, type) and issubclass(kind.found, Tensor)
    refuse(not is_class, f"a tensor is made a {kind.name[:60]}")
    of_class = made.as_subclass(kind.found)
    if hasattr(kind.found, "__setstate__"):
        return give_attributes(of_class, state)
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state, {})
    refuse(not all(_are_attributes(part) for part in parts), "the attributes of a tensor are malformed")
    return give_attributes(of_class, parts)


def _are_attributes(part: Any) -> bool:
    return part is None or (isinstance(part, dict) and all(type(name) is str for name in part))


class Usable:
    """A class or function that may be used beyond those here, as the file names it."""

    def __init__(self, name: str, found: Any) -> None:
        self.name = name
        self.found = found


def layout_of(name: Any) -> Layout:
    """torch's ``_get_layout``."""
    found = getattr(aj, str(name).removeprefix("torch."), None)
    if not isinstance(found, Layout):
        raise LoadError(f"load: unknown layout {str(name)[:40]}")
    return found


def size_of(values: Any = ()) -> Size:
    """torch's ``Size``."""
    return Size(_numbers("the extents", tuple(values)))


def encoded(text: Any, encoding: Any) -> bytes:
    """Bytes, as pickle's protocol 2 writes them."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise LoadError("load: bytes are encoded in an unknown way")
    return text.encode("latin1")


class PendingArray:
    """A NumPy array whose contents come with the next instruction."""

    def __init__(self, *ignored: Any) -> None:
        self.array: Any = None

    def set_state(self, state: Any) -> Any:
        """The array of ``(version, shape, dtype, is_fortran, bytes)``."""
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[4], bytes):
            raise LoadError("load: a NumPy array is malformed")
        _, shape, dtype, is_fortran, content = state
        extents = _numbers("the shape", shape)
        flat = np.frombuffer(content, _numpy_dtype(dtype))
        if flat.size != int(np.prod(extents, dtype=object)):
            raise LoadError("load: a NumPy array has another number of elements than its shape")
        return flat.reshape(extents, order="F" if is_fortran else "C").copy()


_NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16)|\?")


class PendingDType:
    """A NumPy dtype whose byte order comes with the next instruction."""

    def __init__(self, name: Any, *ignored: Any) -> None:
        if not isinstance(name, str) or not _NUMBERS.fullmatch(name):  # NumPy evaluates parts of other names
            raise LoadError(f"load: a NumPy dtype {str(name)[:20]!r} is not one of numbers")
        self.dtype = np.dtype(name)

    def set_state(self, state: Any) -> PendingDType:
        """The byte order."""
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.dtype = self.dtype.newbyteorder(state[1])
        return self


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, PendingDType):
        raise LoadError("load: a NumPy value without a dtype")
    return dtype.dtype


def numpy_scalar(dtype: Any, content: Any = b"") -> Any:
    """A NumPy number."""
    found = _numpy_dtype(dtype)
    refuse(not isinstance(content, bytes) or len(content) != found.itemsize, "a NumPy number is malformed")
    return np.frombuffer(content, found)[0]


_REBUILD = "torch._utils."
FUNCTIONS: dict[str, Callable[..., Any]] = {
    _REBUILD + "_rebuild_tensor": tensor_v2,
    _REBUILD + "_rebuild_tensor_v2": tensor_v2,
    _REBUILD + "_rebuild_tensor_v3": tensor_v3,
    _REBUILD + "_rebuild_parameter": parameter,
    _REBUILD + "_rebuild_parameter_with_state": parameter,
    _REBUILD + "_rebuild_sparse_tensor": sparse,
    _REBUILD + "_rebuild_meta_tensor_no_storage": meta_tensor,
    "torch.nn.parameter.UninitializedParameter": uninitialized(aj.nn.UninitializedParameter),
    "torch.nn.parameter.UninitializedBuffer": uninitialized(aj.nn.UninitializedBuffer),
    "torch._tensor._rebuild_from_type_v2": tensor_of_type,
    "torch.serialization._get_layout": layout_of,
    "torch.Size": size_of,
    "torch.device": aj.device,
    "_codecs.encode": encoded,
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.complex": complex,
    "builtins.bytearray": lambda content=b"": bytearray(content) if isinstance(content, bytes) else bytearray(),
    "numpy.dtype": PendingDType,
    **{
        f"{module}.{name}": function
        for module in ("numpy._core.multiarray", "numpy.core.multiarray")
        for name, function in (("_reconstruct", PendingArray), ("scalar", numpy_scalar))
    },
}
"""What a file may call."""

VALUES: dict[str, Any] = {
    **{f"torch.{name}": dtype for name, dtype in BY_NAME.items()},
    **{f"torch.{name}": StorageKind(dtype) for name, dtype in STORAGES.items()},
    **{f"torch.cuda.{name}": StorageKind(dtype) for name, dtype in STORAGES.items()},
    f"torch.storage.{UNTYPED}": StorageKind(aj.uint8),
    f"torch.{UNTYPED}": StorageKind(aj.uint8),
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": "Parameter",
    "numpy.ndarray": np.ndarray,
}
"""What a file may name."""
