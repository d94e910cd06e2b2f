"""Tensors among other libraries' arrays: DLPack both ways, NumPy's protocols, the array API's methods.

What NumPy's functions do with tensors is in ``interop``, imported when it is first asked. DLPack hands over memory
without a copy: NumPy makes and reads its capsules; only their dtype, as NumPy has no bfloat16, and their device are
looked at here (`device_exchange`).
Source: https://dmlc.github.io/dlpack/latest/c_api.html (the layout of a capsule).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import CPU, Device, DeviceLike
from autojit.core.device_array import layout_in_memory
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.core.errors import ArgumentError, ArgumentKindError, UsageError
from autojit.core.ports import ports
from autojit.dispatch.on_device import moved
from autojit.dispatch.promotion import Operand, cast
from autojit.functions.conversion import memory_of
from autojit.functions.device_exchange import (
    CPU_PLACE,
    borrowed,
    exported,
    has_interface,
    imported,
    interface_of,
    lent,
    place_of,
    space_for,
)
from autojit.functions.elementwise import clone
from autojit.history.recording import wants_grad
from autojit.tensor.of_arrays import on_memory_of
from autojit.tensor.tensor import Tensor, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


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
    wanted = place_of(self) if dl_device is None else tuple(map(int, dl_device))
    if wanted != place_of(self):
        if wanted != CPU_PLACE or copy is False:
            raise BufferError(f"a tensor on {type_of(self).device} cannot be exported to the device {wanted}")
        return __dlpack__(moved(self, CPU), max_version=max_version)
    if wanted != CPU_PLACE:
        array: Any = lent(clone(self) if copy else self, stream)
        return exported(layout_in_memory(array), wanted, max_version)
    if stream not in (None, -1):
        raise BufferError(f"a tensor on the CPU is exported without a stream, got {stream!r}")
    bare = memory_of(self)
    if any(step < 0 for step in bare.strides):  # a flipped tensor: some libraries abort on negative strides
        if copy is False:
            raise BufferError("a tensor with a negative stride can be exported as a copy only; pass copy=None")
        copy = True
    return exported(bare.copy(order="C") if copy else bare, CPU_PLACE, max_version)


def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    return place_of(self)


def from_dlpack(ext_tensor: object, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array (or of a DLPack capsule), without a copy unless asked for.

    Writes are seen on both sides; memory that the other library lends read-only (JAX) must not be written.

    Raises:
        TypeError: the object does not speak DLPack.
        BufferError: its memory is neither the CPU's nor a CUDA device's, or it requires gradients.
        DeviceError: the device is not there.

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
    array: Any = imported(capsule)
    if isinstance(ext_tensor, np.ndarray) and not copy:
        made = on_memory_of(ext_tensor)
    else:
        made = wrap(array.copy() if copy and capsule is ext_tensor else array)
    return made if device is None else moved(made, device)


def may_share(array: NDArray[Any], data: object) -> bool:
    """Whether an array may be memory of the object that it was made of."""
    return np.may_share_memory(array, data) if isinstance(data, np.ndarray) else is_foreign_array(data)


def _exported(source: Any, copy: bool | None) -> Any:
    """A capsule of another library's array; its work in queues of its own comes before ours."""
    space = space_for(source.__dlpack_device__())
    queue = {} if space is None else {"stream": space.stream or 1}
    try:
        return source.__dlpack__(**queue, max_version=(1, 0), copy=copy)
    except TypeError:  # written for DLPack before version 1
        return source.__dlpack__(**queue)


NUMBERS = frozenset((bool, int, float, complex, list, tuple))
"""Kinds of numbers and of nests of them, which need not be asked what they are."""
_OF_FOREIGN_ARRAYS = ("__dlpack__", "__cuda_array_interface__", "__array_interface__", "__array__")


def is_foreign_array(data: object) -> bool:
    """Whether an object is an array of another library: it offers its memory, or converts itself to NumPy's."""
    kind = type(data)  # not the object, which may answer every name
    return kind not in NUMBERS and any(hasattr(kind, name) for name in _OF_FOREIGN_ARRAYS)


def is_number(data: Any) -> bool:
    """Whether an entry of a list is a number: a tensor of one element is one, as in torch."""
    if isinstance(data, Tensor):
        return type_of(data).size == 1 and type_of(data).ndim < 2
    return not isinstance(data, list | tuple) and not is_foreign_array(data)


def holds_tensors(data: object) -> bool:
    """Whether there is a tensor, or a number of a step, in nested lists."""
    while isinstance(data, list | tuple):
        if not data:
            return False
        if any(isinstance(d, Tensor) or hasattr(type(d), "as_operand") for d in data):
            return True
        data = data[0]
    return False


def is_on_device(data: object) -> bool:
    """Whether an object is another library's array in memory of a device."""
    kind = type(data)
    if kind in NUMBERS or issubclass(kind, Tensor | np.ndarray):
        return False
    if hasattr(kind, "__dlpack_device__"):
        return space_for(data.__dlpack_device__()) is not None  # type: ignore[attr-defined]
    return has_interface(data)


_OF_NUMBERS = ("__len__", "__getitem__", "__iter__", "__float__", "__int__", "__index__", "__complex__")
"""What has one of these is a number, or holds some."""


def require_numbers(data: object) -> None:
    """UsageError for what is not a number and holds none: NumPy would ask the object, which may answer every name."""
    if type(data) not in NUMBERS and not any(hasattr(type(data), name) for name in _OF_NUMBERS):
        raise UsageError(f"Could not infer dtype of {type(data).__name__}")


def require_same_memory(data: object, made: Tensor) -> None:
    """What ``copy=False`` asks: the tensor shows the memory of the object.

    Raises:
        RuntimeError: a NumPy scalar.
        ValueError: numbers in lists, or another dtype.
    """
    if isinstance(data, np.generic):
        raise UsageError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray.")
    if isinstance(data, int | float | complex | list | tuple):
        raise ArgumentError("can't alias arbitrary sequence into a tensor.", {}, "pass copy=None")
    given = type_of(data).dtype if isinstance(data, Tensor) else getattr(data, "dtype", None)
    given = dtype_of_numpy(given) if isinstance(given, np.dtype) else given
    if isinstance(given, DType) and given is not type_of(made).dtype:
        raise ArgumentError(
            f"can't alias tensor with dtype '{given.name}' into dtype '{type_of(made).dtype.name}'.", {},
            "pass copy=None",
        )  # fmt: skip


def require_numbers_inside(data: object, *outer: object) -> None:
    """``require_numbers`` of everything in nested lists, none of which is inside itself."""
    if any(data is one for one in outer):
        raise ArgumentKindError("new(): self-referential lists are incompatible with tensors")
    for part in data if isinstance(data, list | tuple) else ():
        require_numbers_inside(part, data, *outer)
    require_numbers(data)


def array_of_numbers(data: Any) -> np.ndarray[Any, Any]:
    """The NumPy array of a number or of nested lists of numbers."""
    require_numbers(data)
    try:
        plain = np.asarray(data)
    except ValueError as error:
        require_numbers_inside(data)
        raise ArgumentError(f"expected sequence of equal length: {error}") from None
    except Exception:
        require_numbers_inside(data)
        raise
    if plain.dtype.kind == "O":
        require_numbers_inside(data)
    return plain


def array_of_foreign(data: Any) -> Any:
    """What is on another library's memory, with its dtype: a NumPy array on the host, a tensor on a device."""
    if hasattr(type(data), "__dlpack__"):
        found = from_dlpack(data)
        return found._array if type_of(found).device == CPU else found
    return borrowed(data) if has_interface(data) else np.asarray(data)


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
        ValueError: a stream is given; copies are made in the present one, and the CPU has none.
    """
    if stream is not None:
        raise ArgumentError(
            "to_device: copies are made in the present stream",
            {"stream": stream},
            "with cuda.stream(s): x.to_device(d)",
        )
    return moved(self, device)


def _repr_html_(self: Tensor) -> str:
    from autojit.functions.printing import to_html

    return to_html(self)


_PLAIN = (__array_ufunc__, __array_function__, __dlpack__, __dlpack_device__, astype, fill, to_device, _repr_html_)
METHODS: dict[str, Any] = {method.__name__: method for method in _PLAIN} | {
    "copy": copied,
    "__cuda_array_interface__": property(interface_of),
}
