"""Scans along an axis: cumulative sum, product, maximum, minimum, logsumexp, and the linear recurrence.

The recurrence ``s[i] = a[i] * s[i - 1] + b[i]`` is closed under differentiation, and the derivatives of the cumulative
product and logsumexp are recurrences too: no division, so zeros and any order of derivative are right, in O(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bfloat16, bool_, float16, int64
from autojit.core.errors import ArgumentError, ShapeError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.sizes import seems_equal
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, bind_all
from autojit.ops.base import Structured, conjugate, normalize_axis
from autojit.ops.by_name import apply
from autojit.ops.indexing import Picking
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import batch_all, pad, slice_axis

__all__ = [
    "Cumulative", "CumulativeExtreme", "LinearRecurrence", "cummax", "cummin", "cumprod", "cumsum",
    "linear_recurrence", "logcumsumexp",
]  # fmt: skip

_HALVES = (float16.numpy, bfloat16.numpy)
KINDS = ("sum", "prod", "logsumexp")


@record
class Cumulative(Structured):
    """Fold of the elements up to and including each one along ``axis``; ``reverse`` folds from the end."""

    kind: str
    axis: int
    reverse: bool = False
    node_class: ClassVar[str] = "CumsumBackward0"

    def result_type(self, x: TensorType) -> TensorType:
        if self.kind not in KINDS:
            raise ArgumentError(f"cumulative: kind must be one of {KINDS}, not {self.kind!r}")
        if x.dtype is bool_ or (self.kind == "logsumexp" and not x.dtype.is_floating_point):
            raise UnsupportedDTypeError(f'"cumulative {self.kind}" not implemented for {x.dtype}', {"x": x})
        return x

    def eager(self, x: Ndarray) -> Ndarray:
        if x.dtype in _HALVES:
            return self.eager(x.astype(np.float32)).astype(x.dtype)
        if self.reverse:
            return np.flip(Cumulative(self.kind, self.axis).eager(np.flip(x, self.axis)), self.axis).copy()
        if self.kind == "logsumexp":
            return np.asarray(np.logaddexp.accumulate(x, self.axis, dtype=x.dtype))
        fold = np.add if self.kind == "sum" else np.multiply
        found = np.asarray(fold.accumulate(x, self.axis, dtype=self.accumulator(x.dtype)))
        return found.astype(x.dtype, copy=False)

    def accumulator(self, dtype: Any) -> Any:
        """What sums and products are kept in: float64 for float32, of which a long sum would lose digits."""
        return np.dtype(np.float64) if dtype == np.float32 and self.kind != "logsumexp" else dtype

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        if self.kind == "sum":
            return (bind(Cumulative("sum", self.axis, not self.reverse), y_bar),)
        back = LinearRecurrence(self.axis, not self.reverse)
        if self.kind == "prod":
            # x_bar[k] = before[k] * s[k] with s[k] = y_bar[k] + x[k + 1] * s[k + 1]
            before = shifted(result, self.axis, self.reverse, 1)
            ratio = shifted(x, self.axis, not self.reverse, 1)
            return (apply("mul", conjugate(before), bind(back, conjugate(ratio), y_bar)),)
        # x_bar[k] = exp(x[k] - y[k]) * s[k] with s[k] = y_bar[k] + exp(y[k] - y[k + 1]) * s[k + 1]
        after = shifted(result, self.axis, not self.reverse, 0)
        return (apply("mul", _exp_difference(x, result), bind(back, _exp_difference(result, after), y_bar)),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        ((x,), (x_dot,)) = primals, tangents
        if x_dot is None:
            return None
        if self.kind == "sum":
            return bind(self, x_dot)
        forward = LinearRecurrence(self.axis, self.reverse)
        if self.kind == "prod":
            before = shifted(result, self.axis, self.reverse, 1)
            return bind(forward, x, apply("mul", before, x_dot))
        before = shifted(result, self.axis, self.reverse, -float("inf"))
        return bind(forward, _exp_difference(before, result), apply("mul", _exp_difference(x, result), x_dot))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Cumulative(self.kind, self.axis + 1, self.reverse), args[0])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        x = draws((2, 5), dtype)
        with_zeros = draws((4, 3), dtype, 1)
        with_zeros[[0, 2, 2], [1, 1, 2]] = 0
        found: Samples = [
            (Cumulative("sum", 1), (x,)),
            (Cumulative("sum", 0, True), (draws((3, 4), dtype).T,)),
            (Cumulative("prod", 1, True), (x,)),
            (Cumulative("prod", 0), (with_zeros,)),
            (Cumulative("sum", 0), (draws((0, 2), dtype),)),
        ]
        if dtype.is_floating_point:
            found += [(Cumulative("logsumexp", 1), (x,)), (Cumulative("logsumexp", 0, True), (x,))]
        return found


@record
class LinearRecurrence(Structured):
    """``s[i] = a[i] * s[i - 1] + b[i]`` along ``axis`` from ``s[-1] = 0`` (so ``a[0]`` does not matter)."""

    axis: int
    reverse: bool = False

    def result_type(self, a: TensorType, b: TensorType) -> TensorType:
        if a != b:
            raise ShapeError("linear_recurrence: factors and terms must be of one type", {"a": a, "b": b})
        return b

    def eager(self, a: Ndarray, b: Ndarray) -> Ndarray:
        if b.dtype in _HALVES:
            return self.eager(a.astype(np.float32), b.astype(np.float32)).astype(b.dtype)
        order = -1 if self.reverse else 1
        if b.size == b.shape[self.axis] and b.dtype.kind == "f":
            line = _recur(a.reshape(-1)[::order].tolist(), b.reshape(-1)[::order].tolist())
            return np.asarray(line[::order], dtype=b.dtype).reshape(b.shape)
        factors = np.moveaxis(a, self.axis, 0)[::order]
        terms = np.moveaxis(b, self.axis, 0)[::order]
        result = terms.copy()
        for i in range(1, len(result)):
            result[i] += factors[i] * result[i - 1]
        return np.moveaxis(result[::order], 0, self.axis).copy()

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        a = primals[0]
        # t[i] = y_bar[i] + a[i + 1] * t[i + 1];  b_bar = t,  a_bar[i] = t[i] * s[i - 1]
        ahead = shifted(a, self.axis, not self.reverse, 0)
        b_bar = bind(LinearRecurrence(self.axis, not self.reverse), conjugate(ahead), y_bar)
        return (lambda: apply("mul", b_bar, conjugate(shifted(result, self.axis, self.reverse, 0))), b_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        a, (a_dot, b_dot) = primals[0], tangents
        if a_dot is None:
            return None if b_dot is None else bind(self, a, b_dot)
        drive = apply("mul", a_dot, shifted(result, self.axis, self.reverse, 0))
        return bind(self, a, drive if b_dot is None else apply("add", drive, b_dot))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(LinearRecurrence(self.axis + 1, self.reverse), *batch_all(args, batched))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is bool_:
            return []
        return [
            (LinearRecurrence(1), (draws((2, 5), dtype), draws((2, 5), dtype, 1))),
            (LinearRecurrence(0, True), (draws((3, 4), dtype).T, draws((4, 3), dtype, 1))),
        ]


@record
class CumulativeExtreme(Picking):
    """Running maximum ("max") or minimum ("min") and the latest position that reaches it; NaN stays, as in torch."""

    kind: str
    axis: int

    def result_type(self, x: TensorType) -> tuple[TensorType, TensorType]:
        if self.kind not in ("max", "min"):
            raise ArgumentError(f"cumulative_extreme: kind must be 'max' or 'min', not {self.kind!r}")
        if x.dtype.is_complex:
            raise UnsupportedDTypeError(f'"cum{self.kind}" not implemented for {x.dtype}', {"x": x})
        return x, x.with_dtype(int64)

    def eager(self, x: Ndarray) -> tuple[Ndarray, Ndarray]:
        if x.dtype in _HALVES:
            values, places = self.eager(x.astype(np.float32))
            return values.astype(x.dtype), places
        fold = np.maximum if self.kind == "max" else np.minimum
        values = fold.accumulate(x, self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = -1
        count = np.arange(x.shape[self.axis], dtype=np.int64).reshape(shape)
        reaches = (x == values) | (x != x)
        return values, np.maximum.accumulate(np.where(reaches, count, 0), self.axis)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(CumulativeExtreme(self.kind, self.axis + 1), args[0])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.is_complex:
            return []
        return [
            (CumulativeExtreme("max", 1), (draws((2, 6), dtype),)),
            (CumulativeExtreme("min", 0), (draws((2, 6), dtype, 1).T,)),
        ]


def _recur(factors: list[float], terms: list[float]) -> list[float]:
    """One line of the recurrence in Python floats (float64): 10x faster than NumPy scalars."""
    state = 0.0
    found: list[float] = []
    for factor, term in zip(factors, terms, strict=True):
        state = factor * state + term if found else term
        found.append(state)
    return found


def shifted(x: O, axis: int, reverse: bool, fill: float) -> O:
    """Each element's predecessor in scan order (its successor when ``reverse``); ``fill`` where there is none."""
    extent = x.spec.shape[axis]
    if seems_equal(extent, 0):
        return x
    low, high = [0] * x.spec.ndim, [0] * x.spec.ndim
    if reverse:
        high[axis] = 1
        return pad(slice_axis(x, axis, 1, extent), low, high, fill)
    low[axis] = 1
    return pad(slice_axis(x, axis, 0, extent - 1), low, high, fill)


def _exp_difference(x: O, y: O) -> O:
    """``exp(x - y)``, 1 where both are equal: infinities of one sign must not give NaN."""
    difference = apply("sub", x, y)
    zero = difference._literal(0, difference.spec)
    return apply("exp", apply("where", apply("eq", x, y), zero, difference))


def cumsum(x: O, axis: int, reverse: bool = False) -> O:
    """Running sum along ``axis``; dtype kept."""
    return _cumulative("sum", x, axis, reverse)


def cumprod(x: O, axis: int, reverse: bool = False) -> O:
    """Running product along ``axis``; dtype kept. Its derivatives are right at zeros."""
    return _cumulative("prod", x, axis, reverse)


def logcumsumexp(x: O, axis: int, reverse: bool = False) -> O:
    """Running ``log(sum(exp(x)))`` along ``axis`` without overflow."""
    return _cumulative("logsumexp", x, axis, reverse)


def _cumulative(kind: str, x: O, axis: int, reverse: bool) -> O:
    axis = normalize_axis(axis, x.spec.ndim, f"cumulative {kind}")
    return x if x.spec.ndim == 0 else bind(Cumulative(kind, axis, reverse), x)


def cummax(x: O, axis: int) -> tuple[O, O]:
    """(running maximum, its latest position) along ``axis``."""
    return _extreme("max", x, axis)


def cummin(x: O, axis: int) -> tuple[O, O]:
    """(running minimum, its latest position) along ``axis``."""
    return _extreme("min", x, axis)


def _extreme(kind: str, x: O, axis: int) -> tuple[Any, Any]:
    axis = normalize_axis(axis, x.spec.ndim, f"cum{kind}")
    if x.spec.ndim == 0:
        return x, x._literal(0, TensorType((), int64, x.spec.device))
    values, places = bind_all(CumulativeExtreme(kind, axis), x)
    return values, places


def linear_recurrence(a: O, b: O, axis: int = 0, reverse: bool = False) -> O:
    """``s[i] = a[i] * s[i - 1] + b[i]`` along ``axis``: first-order filters, discounted returns, diagonal SSMs."""
    return bind(LinearRecurrence(normalize_axis(axis, b.spec.ndim, "linear_recurrence"), reverse), a, b)
