"""The standard's dtypes and how they are promoted: by kind and width alone, whatever the number of axes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit.core.dtypes import DType, default_dtype, dtype_of_numpy
from autojit.core.errors import DTypeError
from autojit.interop.registry import FUNCTIONS
from autojit.tensor import Tensor

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

DTYPES: dict[str, DType] = {
    name: getattr(aj, name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
                 "complex64", "complex128")
}  # fmt: skip
_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}


class finfo_object(NamedTuple):
    """What ``finfo`` tells of a floating dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class iinfo_object(NamedTuple):
    """What ``iinfo`` tells of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> finfo_object:
    """Limits of a floating dtype, or of an array's; of a complex one those of its parts."""
    dtype = (type.dtype if isinstance(type, Tensor) else type).to_real()
    found = aj.finfo(dtype)
    return finfo_object(found.bits, found.eps, found.max, found.min, found.smallest_normal, dtype)


def iinfo(type: Any, /) -> iinfo_object:
    """Limits of an integer dtype, or of an array's."""
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = aj.iinfo(dtype)
    return iinfo_object(found.bits, found.max, found.min, dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether a dtype is of a kind (``"integral"``, ``"numeric"``, ...), is a dtype, or one of several.

    Raises:
        ValueError: there is no such kind.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in _KINDS:
        raise ValueError(f"isdtype: unknown kind {kind!r}; there are {', '.join(_KINDS)}")
    return dtype.kind in _KINDS[kind]


def promoted(a: DType, b: DType) -> DType:
    """The dtype of two arrays together.

    Raises:
        RuntimeError: the standard leaves it open and no dtype holds both (int64 with uint64).
    """
    if a is b:
        return a
    if a.category == 1 and b.category == 1:
        found = np.promote_types(a.numpy, b.numpy)
        if found.kind == "f":
            raise DTypeError(f"promotion of {a} and {b} is not defined", fix="astype() one of the arrays")
        return dtype_of_numpy(found)
    return aj.promote_types(a, b)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and Python numbers have together; numbers only raise the kind.

    Raises:
        ValueError: neither an array nor a dtype is among them.
    """
    numbers = [v for v in arrays_and_dtypes if not isinstance(v, Tensor | DType)]
    dtypes = [v.dtype if isinstance(v, Tensor) else v for v in arrays_and_dtypes if isinstance(v, Tensor | DType)]
    if not dtypes:
        raise ValueError("result_type: at least one array or dtype is needed")
    found = reduce(promoted, dtypes)
    for value in numbers:
        found = with_number(found, value)
    return found


def with_number(dtype: DType, value: Any) -> DType:
    """The dtype of an array together with a Python number."""
    category = 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 3 if isinstance(value, complex) else 2
    if category <= dtype.category:
        return dtype
    if category == 3:
        return dtype.to_complex() if dtype.category == 2 else default_dtype().to_complex()
    return default_dtype() if category == 2 else aj.int64


def computed(function: Any, *arguments: Any, **options: Any) -> Tensor:
    """What the form of a NumPy function for tensors gives."""
    found: Tensor = FUNCTIONS[function](*arguments, **options)
    return found


def together(*values: Any) -> list[Tensor]:
    """Operands as arrays of their common dtype; numbers go to where the first array is."""
    dtype = result_type(*values)
    place = next((v.device for v in values if isinstance(v, Tensor)), None)
    return [v.to(dtype) if isinstance(v, Tensor) else aj.tensor(v, dtype=dtype, device=place) for v in values]


def can_cast(from_: Any, to: DType, /) -> bool:
    """Whether promotion leads from a dtype (or an array's) to another."""
    start = from_.dtype if isinstance(from_, Tensor) else from_
    try:
        return promoted(start, to) is to
    except RuntimeError:
        return False


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The elements in another dtype; ``x`` itself if nothing changes and no copy is asked for.

    Raises:
        TypeError: from complex numbers to real ones.
    """
    if x.dtype.is_complex and dtype.category in (1, 2):
        raise TypeError(f"astype: complex numbers are no {dtype}; take real(x), imag(x) or abs(x)")
    found = x if device is None else x.to(device)
    if found.dtype is dtype:
        return found.clone() if copy else found
    return found.to(dtype)


def sequence_of(shape: Any) -> tuple[int, ...]:
    """A shape or axes given as one number or several."""
    return tuple(int(n) for n in shape) if isinstance(shape, Iterable) else (int(shape),)
