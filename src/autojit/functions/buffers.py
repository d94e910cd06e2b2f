"""Tensors on memory that others made, and memory in an order of axes of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.device import DeviceLike
from autojit.core.dtypes import DType, default_dtype
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import declared
from autojit.functions.factories import finish, zeros
from autojit.functions.shape import permute
from autojit.tensor import Tensor
from autojit.tensor.of_arrays import on_memory_of
from autojit.tensor.tensor import wrap


@declared(method=False)
def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector on the memory of an object with Python's buffer protocol, which it shares.

    Args:
        count: the number of elements; all that are there by default.
        offset: the bytes to skip.

    Raises:
        ValueError: the object has no buffer, or the wished part does not fit in it.

    Example:
        >>> import autojit as aj
        >>> aj.frombuffer(bytearray(b"abc"), dtype=aj.uint8, offset=1)
        tensor([98, 99], dtype=autojit.uint8)
    """
    try:
        memory = memoryview(buffer)
    except TypeError:
        raise ArgumentError("object does not implement Python buffer protocol.", {"buffer": type(buffer)}) from None
    size, item = memory.nbytes, dtype.size_bytes
    if size == 0 or count == 0:
        raise ArgumentError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ArgumentError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1"
        )
    if count < 0 and (size - offset) % item:
        raise ArgumentError(
            f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({item})"
        )
    wanted = (size - offset) // item if count < 0 else count
    if offset + wanted * item > size:
        raise ArgumentError(
            f"requested buffer length ({wanted} * {item} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({size} bytes)"
        )
    if memory.readonly:
        warn(
            "The given buffer is not writable: writing to the tensor fails. Copy it (clone()) to write to it.",
            UserWarning,
        )
    array = np.frombuffer(memory.cast("B"), dtype.numpy, wanted, offset)
    return finish(on_memory_of(array), requires_grad)


@declared(method=False, factory=True)
def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A vector of ``size`` elements on a file's bytes; with ``shared`` changes go into the file, which grows to fit.

    Raises:
        RuntimeError: the file is smaller than the elements and is not shared, or cannot be opened.
    """
    kind = dtype or default_dtype()
    count = size or 0
    try:
        if shared:
            with open(filename, "ab") as file:
                if file.tell() < count * kind.size_bytes:
                    file.truncate(count * kind.size_bytes)
        mode: Any = "r+" if shared else "c"
        array = np.asarray(np.memmap(filename, kind.numpy, mode, 0, (count,))) if count else np.empty(0, kind.numpy)
    except (OSError, ValueError) as error:
        raise UsageError(f"unable to map file <{filename}>: {error}", {"size": count, "dtype": kind}) from None
    return finish(wrap(array), requires_grad, device)


@declared(method=False, factory=True)
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Unspecified elements, kept in memory in the order ``physical_layout`` of the axes (outermost first).

    Raises:
        RuntimeError: ``physical_layout`` is not an order of the axes.

    Example:
        >>> import autojit as aj
        >>> aj.empty_permuted((2, 3, 4), (2, 0, 1)).stride()
        (3, 1, 6)
    """
    order = [int(axis) for axis in physical_layout]
    if len(order) != len(size):
        raise ShapeError(
            "Number of dimensions in the tensor input does not match the length of the physical layout; i.e. "
            f"len(size) = {len(size)} is not equal to len(physical_layout) = {len(order)}"
        )
    if sorted(order) != list(range(len(size))):
        raise UsageError(f"physical_layout {tuple(order)} is no order of the axes 0 to {len(size) - 1}")
    made = zeros([size[axis] for axis in order], dtype=dtype, device=device)
    places = [order.index(axis) for axis in range(len(size))]
    return finish(permute(made, places).detach(), requires_grad)
