"""Element types and torch's promotion rules.

``DType`` objects are singletons compared by identity. ``promote_types`` is torch's lattice for two tensors of equal
rank class; ``result_type`` adds torch's priority of dimensioned tensors over zero-dimensional ones over Python numbers.
Source: https://pytorch.org/docs/stable/tensor_attributes.html (type promotion).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from autojit.core.epoch import note_switch
from autojit.core.errors import ArgumentKindError, UsageError
from autojit.core.package_name import full_name
from autojit.core.source import relay

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_SCALAR_TYPES = {
    "bool": "Bool", "uint8": "Byte", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "int8": "Char",
    "int16": "Short", "int32": "Int", "int64": "Long", "float16": "Half", "bfloat16": "BFloat16", "float32": "Float",
    "float64": "Double", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
_KIND_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2, "float8": 2, "complex": 3}


class DType:
    """One element type: torch's name, a short name for IR text, the NumPy dtype and its size."""

    __slots__ = (
        "category", "is_complex", "is_differentiable", "is_floating_point", "is_signed", "itemsize", "kind", "name",
        "numpy", "scalar_type", "short", "size_bytes",
    )  # fmt: skip

    def __init__(self, name: str, short: str, numpy: DTypeLike, kind: str) -> None:
        self.name = name
        self.scalar_type = _SCALAR_TYPES.get(name, name)  # what torch's messages call it
        self.short = short
        self.numpy: np.dtype = np.dtype(numpy)
        self.kind = kind
        self.size_bytes = self.itemsize = int(self.numpy.itemsize)
        self.category = _KIND_ORDER[kind]
        self.is_floating_point = kind in ("float", "float8")
        self.is_complex = kind == "complex"
        self.is_signed = kind in ("int", "float", "float8", "complex")
        self.is_differentiable = self.category >= 2

    def to_real(self) -> DType:
        """The dtype of the real part."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_complex(self) -> DType:
        """The complex dtype with parts of this dtype."""
        return {"float32": complex64, "float64": complex128, "float16": complex64, "bfloat16": complex64}.get(
            self.name, self
        )

    def __repr__(self) -> str:
        return full_name(self.name)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return dtype_of_name, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


bool_ = DType("bool", "bool", np.bool_, "bool")
uint8 = DType("uint8", "u8", np.uint8, "uint")
uint16 = DType("uint16", "u16", np.uint16, "uint")
uint32 = DType("uint32", "u32", np.uint32, "uint")
uint64 = DType("uint64", "u64", np.uint64, "uint")
int8 = DType("int8", "i8", np.int8, "int")
int16 = DType("int16", "i16", np.int16, "int")
int32 = DType("int32", "i32", np.int32, "int")
int64 = DType("int64", "i64", np.int64, "int")
float16 = DType("float16", "f16", np.float16, "float")
bfloat16 = DType("bfloat16", "bf16", ml_dtypes.bfloat16, "float")
HALVES = (float16, bfloat16)
float32 = DType("float32", "f32", np.float32, "float")
float64 = DType("float64", "f64", np.float64, "float")
complex64 = DType("complex64", "c64", np.complex64, "complex")
complex128 = DType("complex128", "c128", np.complex128, "complex")

float8_e4m3fn = DType("float8_e4m3fn", "f8e4m3fn", ml_dtypes.float8_e4m3fn, "float8")
float8_e4m3fnuz = DType("float8_e4m3fnuz", "f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "float8")
float8_e5m2 = DType("float8_e5m2", "f8e5m2", ml_dtypes.float8_e5m2, "float8")
float8_e5m2fnuz = DType("float8_e5m2fnuz", "f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "float8")
float8_e8m0fnu = DType("float8_e8m0fnu", "f8e8m0fnu", ml_dtypes.float8_e8m0fnu, "float8")

STORED_DTYPES = (float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu)
"""Kept, moved, compared and converted, but not computed with."""
ALL_DTYPES = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
BY_NAME = {dtype.name: dtype for dtype in (*ALL_DTYPES, *STORED_DTYPES)}
BY_SHORT = {dtype.short: dtype for dtype in (*ALL_DTYPES, *STORED_DTYPES)}
_BY_NUMPY = {dtype.numpy: dtype for dtype in (*ALL_DTYPES, *STORED_DTYPES)}


def dtype_of_name(name: str) -> DType:
    """The dtype called ``name`` in torch's spelling."""
    return BY_NAME[name]


def dtype_of_numpy(numpy_dtype: np.dtype) -> DType:
    """The dtype of a NumPy array; TypeError when there is none (strings, objects, structured, ...)."""
    try:
        return _BY_NUMPY[numpy_dtype]
    except KeyError:
        native = numpy_dtype.newbyteorder("=")
        if native in _BY_NUMPY:
            return _BY_NUMPY[native]
        raise TypeError(f"no autojit dtype for NumPy dtype {numpy_dtype}") from None


def _promote_integers(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return a if a.size_bytes >= b.size_bytes else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if unsigned is uint8:
        return signed if signed is not int8 else int16
    raise TypeError(f"promotion of {a} and {b} is not defined")


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if "float8" in (a.kind, b.kind):
        raise UsageError(
            f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}", fix="convert: x.float()"
        )
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high.kind == "complex" and low is float64:
            return complex128
        return high
    if a.category == 1:
        return _promote_integers(a, b)
    if a.category == 2:
        if a.size_bytes == b.size_bytes:
            return float32  # float16 with bfloat16
        return a if a.size_bytes > b.size_bytes else b
    return complex128


_PROMOTED: dict[tuple[DType, DType], DType] = {}


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest dtype both ``type1`` and ``type2`` convert to, as torch.promote_types.

    >>> promote_types(int64, float16)
    autojit.float16
    """
    found = _PROMOTED.get((type1, type2))
    if found is None:
        found = _PROMOTED[type1, type2] = _promote(some_dtype(type1), some_dtype(type2))
    return found


class _Default:
    """torch.set_default_dtype's value."""

    dtype: DType = float32


def default_dtype() -> DType:
    """The dtype of floating-point literals (torch.get_default_dtype)."""
    return _Default.dtype


def set_default_dtype(d: DType) -> None:
    """Set the dtype of floating-point literals; only floating dtypes are allowed (TypeError)."""
    d = some_dtype(d)
    if not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, not {d}")
    before, _Default.dtype = _Default.dtype, d
    note_switch("default dtype", d, before, set_default_dtype)


def dtype_of_number(value: object) -> DType:
    """The dtype a Python number has by itself: bool, int64, the default float, its complex.

    >>> dtype_of_number(2.5)
    autojit.float32
    """
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return int64
    if isinstance(value, float | np.floating):
        return _Default.dtype
    if isinstance(value, complex | np.complexfloating):
        return _Default.dtype.to_complex()
    raise TypeError(f"not a number: {value!r}")


DTYPES_OF_TYPES: dict[Any, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}
"""Python's types of numbers as dtypes, which torch takes them for."""


def dtype_of(given: object) -> Any:
    """The dtype that a type of Python's numbers stands for as an argument; anything else as it is.

    >>> dtype_of(float), dtype_of(float32)
    (autojit.float64, autojit.float32)
    """
    return DTYPES_OF_TYPES.get(given, given) if isinstance(given, type) else given


def as_dtype(given: object) -> DType | None:
    """The dtype that an argument asks for; None asks for none.

    Raises:
        TypeError: it is no dtype.

    >>> as_dtype(int)
    autojit.int64
    """
    return None if given is None else some_dtype(given)


def some_dtype(given: object) -> DType:
    """The dtype that an argument asks for.

    Raises:
        TypeError: it is no dtype, or None.
    """
    found = dtype_of(given)
    if not isinstance(found, DType):
        raise ArgumentKindError(
            f"argument 'dtype' must be DType, not {type(given).__name__}",
            {"dtype": given},
            "pass one such as autojit.float32",
            op="autojit",
        )
    return found


relay(as_dtype)  # errors name the function that was given it
relay(some_dtype)


def promote_with_number(dtype: DType, value: object) -> DType:
    """Promotion of a tensor dtype with a Python number: only a higher category changes the dtype.

    >>> promote_with_number(float16, 3)
    autojit.float16
    """
    number = dtype_of_number(value)
    if number.category <= dtype.category:
        return dtype
    if number.kind == "complex":
        return dtype.to_complex() if dtype.kind == "float" else number
    return number


def result_type(operands: list[tuple[DType, int]]) -> DType:
    """torch's result type for (dtype, rank) pairs; rank 0 gives way to rank > 0 of the same or a higher category."""
    dimensioned: DType | None = None
    scalar: DType | None = None
    for dtype, rank in operands:
        if rank > 0:
            dimensioned = dtype if dimensioned is None else promote_types(dimensioned, dtype)
        else:
            scalar = dtype if scalar is None else promote_types(scalar, dtype)
    if dimensioned is None or scalar is None:
        found = dimensioned if scalar is None else scalar
        assert found is not None
        return found
    if scalar.category > dimensioned.category:
        if scalar.kind == "complex" and dimensioned.kind == "float":
            return dimensioned.to_complex()
        return scalar
    return dimensioned
