"""Tensors among other libraries' arrays: DLPack both ways, NumPy's protocols, the array API's methods.

What NumPy's functions do with tensors is in ``interop``, imported when it is first asked. DLPack hands over memory
without a copy: NumPy makes and reads its capsules; only their dtype is looked at here, as NumPy has no bfloat16.
Source: https://dmlc.github.io/dlpack/latest/c_api.html (the layout of a capsule).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU, Device, DeviceLike
from autojit.core.dtypes import DType, bfloat16, dtype_of_numpy
from autojit.core.errors import ArgumentError, UsageError
from autojit.core.ports import ports
from autojit.dispatch.on_device import moved
from autojit.dispatch.promotion import Operand, cast
from autojit.functions.conversion import memory_of
from autojit.functions.elementwise import clone
from autojit.history.recording import wants_grad
from autojit.tensor.of_arrays import on_memory_of
from autojit.tensor.tensor import Tensor, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_CPU = (1, 0)  # kDLCPU, its only ordinal
_BFLOAT, _UINT = 4, 1  # type codes of DLPack
_CODE_OFFSETS = {"dltensor": 20, "dltensor_versioned": 52}  # of the type code, by the name of the capsule


def __array_ufunc__(self: Tensor, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
    return ports.numpy.ufunc(ufunc, method, inputs, options)


def __array_function__(
    self: Tensor, func: Callable[..., Any], types: Collection[type], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return ports.numpy.function(func, types, args, kwargs)


def __dlpack__(
    self: Tensor,
    *,
    stream: object = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    if wants_grad(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if type_of(self).device != CPU or (dl_device is not None and tuple(dl_device) != _CPU):
        raise BufferError(f"a tensor on {type_of(self).device} cannot be exported to the device {dl_device or _CPU}")
    if stream not in (None, -1):
        raise BufferError(f"a tensor on the CPU is exported without a stream, got {stream!r}")
    array = memory_of(self)
    bare = array if type_of(self).dtype is not bfloat16 else array.view(np.uint16)
    if any(step < 0 for step in bare.strides):  # a flipped tensor: some libraries abort on negative strides
        if copy is False:
            raise BufferError("a tensor that lies backwards in memory can be exported as a copy only; pass copy=None")
        copy = True
    bare = bare.copy(order="C") if copy else bare
    found = bare.__dlpack__(max_version=max_version)
    if bare.dtype is not array.dtype:
        _type_code(found).value = _BFLOAT
    return found


def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    if type_of(self).device != CPU:
        raise BufferError(f"a tensor on {type_of(self).device} cannot be exported")
    return _CPU


def _type_code(capsule: object) -> ctypes.c_uint8:
    """The byte of a DLPack capsule that says which kind of numbers it holds."""
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = name_of(capsule)
    offset = _CODE_OFFSETS.get((name or b"").decode())
    if offset is None:
        raise ArgumentError(
            "from_dlpack: the capsule was used before or is none of DLPack's", {"capsule": capsule},
            "ask for a new one: tensor.__dlpack__()",
        )  # fmt: skip
    return ctypes.c_uint8.from_address(pointer_of(capsule, name) + offset)


class _Capsule:
    """A DLPack capsule as NumPy wants it: an object that hands it out."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: object) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def from_dlpack(ext_tensor: object, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array (or of a DLPack capsule), without a copy unless asked for.

    Writes are seen on both sides; memory that the other library lends read-only (JAX) must not be written.

    Raises:
        TypeError: the object does not speak DLPack.
        BufferError: its memory is not the CPU's, or it requires gradients.

    Example:
        >>> import autojit as aj
        >>> import numpy as np
        >>> array = np.zeros(2)
        >>> aj.from_dlpack(array).fill_(3.0)
        tensor([3., 3.], dtype=autojit.float64)
        >>> array
        array([3., 3.])
    """
    if type(ext_tensor).__name__ == "PyCapsule":
        capsule = ext_tensor
    elif not hasattr(type(ext_tensor), "__dlpack__"):
        raise TypeError(f"from_dlpack: expected an array with __dlpack__ or a capsule, got {type(ext_tensor).__name__}")
    else:
        capsule = _exported(ext_tensor, copy)
    code = _type_code(capsule)
    is_brain_float = code.value == _BFLOAT
    if is_brain_float:
        code.value = _UINT
    array = np.from_dlpack(_Capsule(capsule))
    array = array.view(bfloat16.numpy) if is_brain_float else array
    dtype_of_numpy(array.dtype)
    if any(step < 0 for step in array.strides):
        raise ArgumentError("from_dlpack: the array lies backwards in memory (a negative stride); copy the array first")
    if isinstance(ext_tensor, np.ndarray) and not copy:
        made = on_memory_of(ext_tensor)
    else:
        made = wrap(array.copy() if copy and capsule is ext_tensor else array)
    return made if device is None else moved(made, device)


def may_share(array: NDArray[Any], data: object) -> bool:
    """Whether an array may be memory of the object that it was made of."""
    return np.may_share_memory(array, data) if isinstance(data, np.ndarray) else is_foreign_array(data)


def _exported(source: Any, copy: bool | None) -> Any:
    kind, _ = source.__dlpack_device__()
    if int(kind) != _CPU[0]:
        raise BufferError(f"from_dlpack: the memory is on device {int(kind)} of DLPack's numbering, not the CPU")
    try:
        return source.__dlpack__(max_version=(1, 0), copy=copy)
    except TypeError:  # written for DLPack before version 1
        return source.__dlpack__()


def is_foreign_array(data: object) -> bool:
    """Whether an object is an array of another library: it offers its memory, or converts itself to NumPy's."""
    kind = type(data)  # not the object, which may answer every name
    return any(hasattr(kind, name) for name in ("__dlpack__", "__array_interface__", "__array__"))


_OF_NUMBERS = ("__len__", "__getitem__", "__iter__", "__float__", "__int__", "__index__", "__complex__")
"""What has one of these is a number, or holds some."""


def require_numbers(data: object) -> None:
    """UsageError for what is not a number and holds none: NumPy would ask the object, which may answer every name."""
    if not any(hasattr(type(data), name) for name in _OF_NUMBERS):
        raise UsageError(f"Could not infer dtype of {type(data).__name__}")


def require_numbers_inside(data: object) -> None:
    """``require_numbers`` of everything in nested lists."""
    for part in data if isinstance(data, list | tuple) else ():
        require_numbers_inside(part)
    require_numbers(data)


def array_of_numbers(data: Any) -> np.ndarray[Any, Any]:
    """The NumPy array of a number or of nested lists of numbers."""
    require_numbers(data)
    try:
        plain = np.asarray(data)
    except ValueError as error:
        raise ArgumentError(f"expected sequence of equal length: {error}") from None
    except Exception:
        require_numbers_inside(data)
        raise
    if plain.dtype.kind == "O":
        require_numbers_inside(data)
    return plain


def array_of_foreign(data: Any) -> np.ndarray[Any, Any]:
    """The NumPy array on another library's memory, with its dtype."""
    if hasattr(type(data), "__dlpack__"):
        found: np.ndarray[Any, Any] = from_dlpack(data)._array
        return found
    return np.asarray(data)


def astype(self: Tensor, dtype: DType | DTypeLike, copy: bool = True) -> Tensor:
    """In another dtype, one of autojit's or NumPy's, as NumPy code asks for it.

    Example:
        >>> import autojit as aj
        >>> aj.tensor([1.5]).astype(int)
        tensor([1])
    """
    wanted = dtype if isinstance(dtype, DType) else dtype_of_numpy(np.dtype(dtype))
    return clone(self) if copy and wanted is type_of(self).dtype else cast(self, wanted)


def copied(self: Tensor, order: str = "C") -> Tensor:
    """A differentiable copy, as NumPy code asks for it; ``clone`` is torch's name."""
    return clone(self)


def fill(self: Tensor, value: Operand) -> None:
    """Every element becomes ``value``, as NumPy code asks for it; ``fill_`` is torch's name."""
    self.fill_(value)


def to_device(self: Tensor, device: Device | str | int, /, *, stream: object = None) -> Tensor:
    """On a device, as the array API standard names it.

    Raises:
        ValueError: a stream is given; the CPU has none.
    """
    if stream is not None:
        raise ArgumentError("to_device: streams exist on devices other than the CPU only", {"stream": stream})
    return moved(self, device)


def _repr_html_(self: Tensor) -> str:
    from autojit.functions.printing import to_html

    return to_html(self)


_PLAIN = (__array_ufunc__, __array_function__, __dlpack__, __dlpack_device__, astype, fill, to_device, _repr_html_)
METHODS: dict[str, Any] = {method.__name__: method for method in _PLAIN} | {"copy": copied}
