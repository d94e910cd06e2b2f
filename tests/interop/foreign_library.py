"""A library that shares memory of the emulated device: arrays, DLPack's structures and queues of its own.

It is written from the protocols' texts and takes nothing of autojit's but the driver.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from autojit.runtime.gpu.emulator.driver import EmulatedDriver

KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
CODES = {kind: code for code, kind in KINDS.items()}


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER))


class ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
        ("flags", ctypes.c_uint64), ("tensor", Tensor),
    )  # fmt: skip


def _api(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_name = _api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)

OLD, NEW = b"dltensor", b"dltensor_versioned"
USED = {OLD: b"used_dltensor", NEW: b"used_dltensor_versioned"}


_lent: dict[int, tuple[Any, ...]] = {}  # what is kept alive for others, by the address of its description


@DELETER
def _delete(address: int) -> None:
    array, *_ = _lent.pop(address)
    array.library.deleted += 1


class Library:
    """One process's use of it: a queue, and what it was told."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self.driver = driver
        self.stream = driver.make_stream()
        self.asked: list[dict[str, Any]] = []
        self.deleted = 0

    def array(self, values: np.ndarray[Any, Any]) -> Array:
        """An array on the device, written by its own queue."""
        address = self.driver.allocate(max(values.nbytes, 1))
        host = np.ascontiguousarray(values)
        self.driver.copy_in(address, host.ctypes.data, host.nbytes, self.stream)
        return Array(self, address, values.shape, values.dtype, None)

    def read(self, capsule: Any) -> tuple[np.ndarray[Any, Any], int]:
        """What a capsule shows, read by its own queue; and its address. The capsule is used up."""
        name = _name(capsule)
        managed = ctypes.cast(_pointer(capsule, name), ctypes.POINTER(Managed if name == OLD else ManagedVersioned))
        tensor = managed.contents.tensor
        assert (tensor.kind, tensor.lanes) == (2, 1)
        dtype = np.dtype(f"{KINDS[tensor.code]}{tensor.bits // 8}")
        shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
        strides = tuple(tensor.strides[k] * dtype.itemsize for k in range(tensor.ndim)) if tensor.strides else None
        address = tensor.data + tensor.offset
        found = self.strided(address, shape, dtype, strides)
        _rename(capsule, USED[name])
        managed.contents.deleter(ctypes.addressof(managed.contents))
        return found, address

    def strided(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None
    ) -> np.ndarray[Any, Any]:
        """Elements of the device's memory, copied by its own queue."""
        if 0 in shape:
            return np.empty(shape, dtype)
        steps = strides if strides is not None else np.empty(shape, dtype).strides
        size = sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True)) + dtype.itemsize
        host = np.empty(size, np.uint8)
        self.driver.copy_out(host.ctypes.data, address, size, self.stream)
        self.driver.synchronize(self.stream)
        return np.lib.stride_tricks.as_strided(host[: dtype.itemsize].view(dtype), shape, steps).copy()


class Array:
    """An array of the library: it speaks DLPack, as of a version."""

    version = (1, 0)

    def __init__(
        self, library: Library, address: int, shape: tuple[int, ...], dtype: np.dtype[Any],
        strides: tuple[int, ...] | None, is_constant: bool = False,
    ) -> None:  # fmt: skip
        self.library, self.address, self.shape, self.dtype = library, address, shape, dtype
        self.strides, self.is_constant = strides, is_constant

    def transposed(self) -> Array:
        steps = np.empty(self.shape, self.dtype).strides
        return type(self)(self.library, self.address, self.shape[::-1], self.dtype, steps[::-1], self.is_constant)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, copy: bool | None = None) -> Any:
        self.library.asked.append({"stream": stream, "max_version": max_version, "copy": copy})
        self.wait(1 if stream is None else stream)
        return self.capsule(is_new=max_version is not None and max_version[0] >= 1)

    def wait(self, stream: int) -> None:
        """The queue of whoever asked waits for the library's."""
        driver = self.library.driver
        mark = driver.make_event(False)
        driver.record(mark, self.library.stream)
        driver.wait_for_event(stream, mark)
        driver.destroy_event(mark)

    def capsule(self, is_new: bool) -> Any:
        ndim = len(self.shape)
        managed: Any = ManagedVersioned() if is_new else Managed()
        shape = (ctypes.c_int64 * ndim)(*self.shape)
        tensor = managed.tensor
        tensor.data, tensor.kind, tensor.ordinal, tensor.ndim = self.address, 2, 0, ndim
        tensor.code, tensor.bits, tensor.lanes = CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1
        tensor.shape = shape
        if self.strides is not None:
            tensor.strides = (ctypes.c_int64 * ndim)(*(step // self.dtype.itemsize for step in self.strides))
        if is_new:
            managed.major, managed.minor, managed.flags = 1, 0, int(self.is_constant)

        managed.deleter = _delete
        _lent[ctypes.addressof(managed)] = (self, managed, shape, tensor.strides)
        return _new(ctypes.addressof(managed), NEW if is_new else OLD, None)


class OldArray(Array):
    """As before version 1 of DLPack."""

    def __dlpack__(self, *, stream: int | None = None) -> Any:  # type: ignore[override]
        return super().__dlpack__(stream=stream)


class HastyArray(Array):
    """It forgets that somebody else's queue has to wait."""

    def wait(self, stream: int) -> None:
        pass


class InterfaceArray:
    """It speaks ``__cuda_array_interface__``, as Numba's arrays do."""

    def __init__(self, array: Array, **told: Any) -> None:
        self.array, self.told = array, told

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        a = self.array
        return {
            "shape": a.shape, "typestr": a.dtype.str, "data": (a.address if 0 not in a.shape else 0, a.is_constant),
            "strides": a.strides, "stream": a.library.stream, "version": 3, **self.told,
        }  # fmt: skip
