"""Scalars of the emitted LLVM IR: their text, their dtype, their type in registers and in memory.

A dtype has two LLVM types. In memory it is what NumPy stores. In a register it is what arithmetic wants: ``bool`` is
``i1`` (``i8`` in memory); ``float16`` and ``bfloat16`` are a ``float`` whose value the narrow format can hold exactly,
so a chain of half-precision ops is widened once at the load and narrowed once at the store, and rounds between. A
complex number is a pair of floats, which are loaded and stored one by one: arithmetic is on the parts (`passes`).
"""

from __future__ import annotations

import struct
from ctypes import c_float
from typing import NamedTuple

import ml_dtypes
import numpy as np

from autojit.core.dtypes import DType, bfloat16, bool_, float16, float32, float64

Number = bool | int | float | complex


class Scalar(NamedTuple):
    """One value in a register: an SSA name (``%v3``) or a literal, as text, and its dtype."""

    text: str
    dtype: DType

    @property
    def is_literal(self) -> bool:
        return not self.text.startswith("%")


def is_half(dtype: DType) -> bool:
    """Whether arithmetic on the dtype is done in float32 and rounded after every op."""
    return dtype is float16 or dtype is bfloat16


def register_type(dtype: DType) -> str:
    """LLVM type of a value of the dtype in a register."""
    if dtype is bool_:
        return "i1"
    if dtype.kind == "float":
        return "double" if dtype is float64 else "float"
    if dtype.kind in ("int", "uint"):
        return f"i{8 * dtype.size_bytes}"
    if dtype.is_complex:
        part = register_type(dtype.to_real())
        return f"{{ {part}, {part} }}"
    raise TypeError(f"the scalar emitter has no type for {dtype}")


def memory_type(dtype: DType) -> str:
    """LLVM type of an element of an array of the dtype."""
    if dtype is bool_:
        return "i8"
    if dtype is float16:
        return "half"
    if dtype is bfloat16:
        return "i16"
    return register_type(dtype)


def suffix(dtype: DType) -> str:
    """How LLVM's overloaded intrinsics spell the register type: ``f32``, ``f64``, ``i8``..."""
    kind = register_type(dtype)
    return {"float": "f32", "double": "f64"}.get(kind, kind)


def literal(value: Number, dtype: DType) -> str:
    """The exact literal of a Python number in the dtype's register type; integers wrap, halves are rounded."""
    if dtype is bool_:
        return "true" if value else "false"
    if dtype.is_complex:
        part = dtype.to_real()
        value = complex(value)
        re, im = (f"{register_type(part)} {literal(x, part)}" for x in (value.real, value.imag))
        return f"{{ {re}, {im} }}"
    assert not isinstance(value, complex), f"a complex literal of {dtype}"
    if dtype.kind == "float":
        return _float_literal(float(value), dtype)
    bits = 8 * dtype.size_bytes
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _float_literal(value: float, dtype: DType) -> str:
    if value != value:
        return "0x7FF8000000000000"
    # LLVM writes a float literal as the bits of the double of the same value.
    if dtype is float32:
        value = c_float(value).value  # a twentieth of NumPy's time
    elif dtype is not float64:
        with np.errstate(over="ignore"):
            narrow = np.float16(value) if dtype is float16 else np.float32(value).astype(ml_dtypes.bfloat16)
        value = float(narrow)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
