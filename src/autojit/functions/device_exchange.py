"""Memory of devices lent to other libraries and borrowed from them, without copies.

Two protocols say where it is: DLPack, and ``__cuda_array_interface__``, version 3
(https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html). NumPy makes and reads the capsules of DLPack
here, too, although it knows the host's memory alone: it looks at no element, so it is given the layout of the memory
as if that were the host's, and the number of the device is put in its place. Either side works in queues of its own:
whoever borrows memory says in which it will, and that queue waits for what the lender has put in the other.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device import Device, space_at
from autojit.core.device_array import DeviceArray, Space, first_address, layout_in_memory
from autojit.core.dtypes import bfloat16, dtype_of_numpy
from autojit.core.errors import ArgumentError, UsageError
from autojit.history.recording import wants_grad
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPU_PLACE = (1, 0)
"""kDLCPU, and its only ordinal."""

_CUDA, _CUDA_MANAGED = 2, 13
_KINDS = {_CUDA: "cuda", _CUDA_MANAGED: "cuda"}
_BFLOAT, _UINT = 4, 1  # type codes of DLPack
_BRAIN_FLOAT = "<V2"  # what torch says of bfloat16 where NumPy's names are spoken
_LEGACY_STREAM = 1
"""The driver's own name of its default queue, which both protocols use; 0 could mean two queues and is refused."""


class _Place(ctypes.Structure):
    """Of a capsule's tensor: the device, the number of axes, the kind of numbers; one behind the other in DLPack."""

    _fields_ = (
        ("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
    )  # fmt: skip


_PLACE_OFFSETS = {"dltensor": 8, "dltensor_versioned": 40}  # by the name of the capsule


def place_in(capsule: object) -> _Place:
    """What a capsule of DLPack says of its memory, to be read and changed."""
    api = ctypes.pythonapi
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = name_of(capsule)
    offset = _PLACE_OFFSETS.get(name)
    if offset is None:
        raise ArgumentError(
            "from_dlpack: the capsule was used before or is none of DLPack's", {"capsule": capsule},
            "ask for a new one: tensor.__dlpack__()",
        )  # fmt: skip
    return _Place.from_address(pointer_of(capsule, name.encode()) + offset)


def name_of(capsule: object) -> str:
    """A capsule's name, which says what it holds and whether it was used."""
    found = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))(capsule)
    return (found or b"").decode()


class _Capsule:
    """A capsule as NumPy wants it: an object that hands it out."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: object) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_PLACE


# -- DLPack


def exported(layout: NDArray[Any], place: tuple[int, int], max_version: tuple[int, int] | None) -> Any:
    """A capsule of memory at a place that NumPy's array shows, and which it keeps alive."""
    is_brain_float = layout.dtype == bfloat16.numpy
    bare = layout.view(np.uint16) if is_brain_float else layout
    capsule = bare.__dlpack__(max_version=max_version)
    told = place_in(capsule)
    told.kind, told.ordinal = place
    if is_brain_float:
        told.code = _BFLOAT
    return capsule


def imported(capsule: object) -> NDArray[Any] | DeviceArray:
    """The array on a capsule's memory, which it keeps alive.

    Raises:
        BufferError: the memory is on a device that autojit does not know.
    """
    name, told = name_of(capsule), place_in(capsule)
    kind, ordinal, is_brain_float = told.kind, told.ordinal, told.code == _BFLOAT
    if kind not in (*_KINDS, 1, 3):
        raise BufferError(f"from_dlpack: the memory is on device {kind} of DLPack's numbering: neither CPU nor CUDA")
    told.kind = CPU_PLACE[0]
    if is_brain_float:
        told.code = _UINT
    try:
        array = np.from_dlpack(_Capsule(capsule))
    finally:
        told.kind = kind  # whose memory it is wants it back as it was
    array = array.view(bfloat16.numpy) if is_brain_float else array
    dtype_of_numpy(array.dtype)
    if any(step < 0 for step in array.strides):
        raise ArgumentError("from_dlpack: the array has a negative stride; copy the array first")
    if kind not in _KINDS:
        return array
    is_constant = name == "dltensor_versioned" and not array.flags.writeable  # before version 1 nothing says so
    told_by_numpy = {**array.__array_interface__, "data": (first_address(array), is_constant)}
    layout = np.asarray(_Borrowed(array, told_by_numpy)).view(array.dtype)  # the interface does not know bfloat16
    return DeviceArray(layout, space_at(Device(_KINDS[kind], ordinal)))


def space_for(place: tuple[int, int]) -> Space | None:
    """The memory at a place of DLPack's numbering; None: the host's.

    Raises:
        BufferError: autojit does not know it.
        DeviceError: there is no such device.
    """
    kind, ordinal = int(place[0]), int(place[1])
    if kind in (1, 3):
        return None
    if kind not in _KINDS:
        raise BufferError(f"from_dlpack: the memory is on device {kind} of DLPack's numbering: neither CPU nor CUDA")
    return space_at(Device(_KINDS[kind], ordinal))


def place_of(t: Tensor) -> tuple[int, int]:
    """Where a tensor's memory is, in DLPack's numbers.

    Raises:
        BufferError: other libraries do not know such memory.
    """
    device = type_of(t).device
    if device.type == "cpu":
        return CPU_PLACE
    if device.type != "cuda":
        raise BufferError(f"a tensor on {device} cannot be exported")
    return _CUDA, device.index or 0


def lent(t: Tensor, stream: object) -> DeviceArray:
    """A tensor's memory on a device for work in another library's queue, which waits for what was queued here.

    Args:
        stream: as DLPack numbers queues: None or 1 is the driver's default one, 2 that of the thread, -1 none: whoever
            asks waits by himself.

    Raises:
        BufferError: the stream is no such number.
        RuntimeError: within a step, whose values are nowhere yet.
    """
    array: Any = t._array
    if state.trace is not None or type(array) is not DeviceArray:
        raise UsageError(
            "memory on a device cannot be lent to another library within a compiled step", {"tensor": t},
            "lend a result of the step, after the call",
        )  # fmt: skip
    if stream is not None and type(stream) is not int:
        raise BufferError(f"the stream of {type_of(t).device} must be a number or None, got {stream!r}")
    if stream == 0:
        raise BufferError("stream 0 could mean two queues: pass 1 for the default one, 2 for that of the thread")
    if stream != -1:
        array.space.let_wait(_LEGACY_STREAM if stream is None else stream)
    return array


# -- __cuda_array_interface__


def interface_of(t: Tensor) -> dict[str, Any]:
    """A tensor's memory as version 3 of the protocol describes it; who uses it waits for the stream it names."""
    if type_of(t).device.type != "cuda":
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {t.type()} "
            "If CUDA data is required use tensor.cuda() to copy tensor to device memory."
        )
    if wants_grad(t):
        raise UsageError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use "
            "var.detach() to get Variable that doesn't require grad."
        )
    array = lent(t, -1)
    layout = layout_in_memory(array)
    return {
        "shape": tuple(layout.shape),
        "typestr": _BRAIN_FLOAT if layout.dtype == bfloat16.numpy else layout.dtype.str,
        "data": (first_address(array) if layout.size else 0, not layout.flags.writeable),
        "strides": None if layout.flags.c_contiguous else tuple(layout.strides),
        "stream": array.space.stream or _LEGACY_STREAM,
        "version": 3,
    }


class _Borrowed:
    """Memory of another library's object, as NumPy is told of it: the array's base, which keeps the object."""

    def __init__(self, owner: object, told: dict[str, Any]) -> None:
        self.owner = owner
        address, is_constant = told["data"]
        self.__array_interface__ = {
            "version": 3, "shape": tuple(told["shape"]), "typestr": told["typestr"], "strides": told.get("strides"),
            "data": (address or 1, is_constant),  # of nothing: NumPy would make memory of its own
        }  # fmt: skip


def has_interface(data: object) -> bool:
    """Whether an object describes memory of a CUDA device."""
    return hasattr(type(data), "__cuda_array_interface__")


def borrowed(data: Any) -> Tensor:
    """A tensor on the memory that an object describes by ``__cuda_array_interface__``; it keeps the object alive.

    Raises:
        TypeError: the elements have another form than tensors', or a mask.
        DeviceError: there is no CUDA device.
    """
    told = data.__cuda_array_interface__
    if told.get("mask") is not None:
        raise TypeError("an array with a mask has no counterpart among tensors; fill its gaps first")
    space = space_at(Device("cuda", getattr(getattr(data, "device", None), "id", 0) or 0))
    stream = told.get("stream")
    if stream == 0:
        raise ArgumentError("__cuda_array_interface__ names stream 0, which could mean two queues", {"object": data})
    layout = np.asarray(_Borrowed(data, told))
    layout = layout.view(bfloat16.numpy) if told["typestr"] == _BRAIN_FLOAT else layout
    dtype_of_numpy(layout.dtype)
    if any(step < 0 for step in layout.strides):
        raise ArgumentError("the array has a negative stride; copy the array first")
    if stream is not None:
        space.wait_for(stream)
    array: Any = DeviceArray(layout, space)
    return wrap(array)
