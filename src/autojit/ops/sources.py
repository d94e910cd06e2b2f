"""Sources: ops without operands (constants, index ramps), and literals in the company of an operand.

A source has nobody to say whether it computes or records, nor where: its functions take an operand ``like`` that does.
"""

from __future__ import annotations

from math import copysign
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from autojit.core.device import CPU, Device
from autojit.core.dtypes import DType, float64, int64
from autojit.core.errors import ArgumentError
from autojit.core.records import record
from autojit.core.sizes import hint_of
from autojit.core.structure import structure
from autojit.core.types import Shape, TensorType
from autojit.ir.op import Ndarray, O, Op
from autojit.ops.base import Constants, Source, Structured
from autojit.ops.samples import Samples

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Constant", "Full", "Iota", "SizeValue", "arange", "constant", "full", "full_like", "iota", "is_one", "literal",
    "ones", "ones_like", "pair", "zeros", "zeros_like",
]  # fmt: skip


def filled_array(shape: tuple[int, ...], value: Any, dtype: np.dtype[Any]) -> Ndarray:
    """Every element is ``value``. The system gives zeros: memory that nobody writes to afterwards is not touched."""
    is_zero = type(value) in (bool, int, float) and not value and (type(value) is not float or copysign(1, value) > 0)
    return np.zeros(shape, dtype) if is_zero else np.full(shape, value, dtype)


Number = bool | int | float | complex
NUMBERS = (bool, int, float, complex, np.generic)


@record(eq=False)
class Full(Source):
    """Every element is ``value``. Equal when the printed value is: -0.0 is not 0.0, NaN is NaN."""

    value: Number
    dtype: DType
    shape: Shape
    device: Device = CPU

    def __eq__(self, other: object) -> bool:
        return type(other) is Full and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return repr(self.value), self.dtype.short, structure(self.shape), self.device

    def result_type(self) -> TensorType:
        return TensorType(self.shape, self.dtype, self.device)

    def eager(self) -> Ndarray:
        return filled_array(self.shape, self.value, self.dtype.numpy)

    def lower(self, emit: Emitter[S], index: tuple[Any, ...]) -> S:
        return emit.constant(self.value, self.dtype)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        value = True if dtype.kind == "bool" else 2 if dtype.kind in ("int", "uint") else 1.5
        return [(Full(value, dtype, shape), ()) for shape in ((), (2, 3), (0, 3))]


@record
class SizeValue(Source):
    """An extent of the step as a number: how a size that is left open (a mean's count) enters arithmetic."""

    size: int
    dtype: DType
    device: Device = CPU

    def result_type(self) -> TensorType:
        return TensorType((), self.dtype, self.device)

    def eager(self) -> Ndarray:
        return np.asarray(hint_of(self.size)).astype(self.dtype.numpy)

    def lower(self, emit: Emitter[S], index: tuple[Any, ...]) -> S:
        return emit.size(self.size, self.dtype)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [] if dtype.kind == "bool" else [(SizeValue(7, dtype), ())]


@record
class Iota(Source):
    """The position along ``axis``: 0, 1, 2, ..., the same along every other axis."""

    shape: Shape
    axis: int
    dtype: DType
    device: Device = CPU

    def result_type(self) -> TensorType:
        if not 0 <= self.axis < len(self.shape):
            raise ArgumentError("iota: the axis is out of range", {"shape": self.shape, "axis": self.axis})
        return TensorType(self.shape, self.dtype, self.device)

    def eager(self) -> Ndarray:
        ramp = np.arange(self.shape[self.axis]).astype(self.dtype.numpy)
        column = ramp.reshape((-1, *(1,) * (len(self.shape) - self.axis - 1)))
        return np.ascontiguousarray(np.broadcast_to(column, self.shape))

    def lower(self, emit: Emitter[S], index: tuple[Any, ...]) -> S:
        return emit.cast(index[self.axis], self.dtype)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.kind == "bool":
            return []
        return [(Iota((4,), 0, dtype), ()), (Iota((2, 3), 1, dtype), ()), (Iota((2, 0), 0, dtype), ())]


@record
class Constant(Constants, Structured):
    """A small table known when the graph is built; ``data`` is the hexadecimal text of its little-endian bytes."""

    data: str
    dtype: DType
    shape: Shape
    device: Device = CPU

    def result_type(self) -> TensorType:
        return TensorType(self.shape, self.dtype, self.device)

    def eager(self) -> Ndarray:
        flat = np.frombuffer(bytes.fromhex(self.data), self.dtype.numpy)
        return flat.reshape(self.shape).copy()

    @staticmethod
    def samples(dtype: DType) -> Samples:
        table = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype.numpy)
        return [(Constant(table.tobytes().hex(), dtype, (2, 3)), ())]


def full(like: O, value: object, shape: Shape, dtype: DType | None = None) -> O:
    """A value repeated in a shape, of ``like``'s dtype and device unless a dtype is given."""
    return like._literal(value, TensorType(shape, dtype or like.spec.dtype, like.spec.device))


def zeros(like: O, shape: Shape, dtype: DType | None = None) -> O:
    """Zeros of a shape, with ``like``'s dtype unless one is given."""
    return full(like, 0, shape, dtype)


def ones(like: O, shape: Shape, dtype: DType | None = None) -> O:
    """Ones of a shape, with ``like``'s dtype unless one is given."""
    return full(like, 1, shape, dtype)


def full_like(x: O, value: object) -> O:
    """A value repeated in ``x``'s shape and dtype."""
    return x._literal(value, x.spec)


def zeros_like(x: O) -> O:
    """Zeros of ``x``'s type."""
    return x._literal(0, x.spec)


def ones_like(x: O) -> O:
    """Ones of ``x``'s type."""
    return x._literal(1, x.spec)


def source_at(op: Source, device: Device) -> Op:
    """A source of the same values on a device."""
    return type(op)(*[device if name == "device" else getattr(op, name) for name in op.__match_args__])


def made_like(like: O, op: Op) -> O:
    """What an op without operands makes, computed or recorded where ``like`` is."""
    found: O = like._bind(op, ())
    return found


def iota(like: O, shape: Shape, axis: int = 0, dtype: DType = int64) -> O:
    """Positions along an axis."""
    return made_like(like, Iota(shape, axis, dtype, like.spec.device))


def arange(like: O, length: int, dtype: DType = int64) -> O:
    """0, 1, ..., length - 1."""
    return made_like(like, Iota((length,), 0, dtype, like.spec.device))


def constant(like: O, values: Ndarray, dtype: DType = float64) -> O:
    """A small table as a constant of the graph; large arrays should be operands instead."""
    table = np.ascontiguousarray(values, dtype=dtype.numpy)
    return made_like(like, Constant(table.tobytes().hex(), dtype, table.shape, like.spec.device))


_SCALAR_TYPES: dict[tuple[DType, Device], TensorType] = {}


def literal(like: O, value: object) -> O:
    """A number as a 0-d operand of ``like``'s dtype."""
    type = like.spec
    key = (type.dtype, type.device)
    scalar = _SCALAR_TYPES.get(key)
    if scalar is None:
        scalar = _SCALAR_TYPES[key] = TensorType((), type.dtype, type.device)
    return like._literal(value, scalar)


def is_one(value: object) -> bool:
    """Whether a factor is 1 for good: a number of a step is not, and asking it would decide on its digits."""
    return type(value) in (int, float) and value == 1


@overload
def pair(x: O, y: O | Number) -> tuple[O, O]: ...
@overload
def pair(x: O | Number, y: O) -> tuple[O, O]: ...
@overload
def pair(x: O | Number, y: O | Number) -> tuple[O, O]: ...
def pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Both as operands: a Python number beside an operand takes the operand's dtype."""
    if isinstance(y, NUMBERS):
        return x, literal(x, y)
    if isinstance(x, NUMBERS):
        return literal(y, x), y
    return x, y
