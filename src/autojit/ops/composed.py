"""Composites that eager mode computes in one go and records as one node: means, the softmax family, common losses,
stacking.

Small arrays are what they are for: one call of NumPy's after the other without a program between them, and a derivative
that reads little. A captured step, a transform and other unusual operands get the composite itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, prod
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, int64
from autojit.core.errors import ShapeError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Op, Operands, bind
from autojit.ops.base import keep_axes
from autojit.ops.composites_activation import log_softmax, softmax
from autojit.ops.composites_loss import pick
from autojit.ops.composites_reduction import mean, safe_sqrt, share, var_mean
from autojit.ops.cotangent_masks import cotangent_product, masking
from autojit.ops.elementwise_arithmetic import add, div, mul, neg, square, sub, where
from autojit.ops.elementwise_exponential import exp
from autojit.ops.elementwise_logic import eq
from autojit.ops.graph_op import Composite
from autojit.ops.joining import select, stack
from autojit.ops.reductions import restore_axes, spread, sum
from autojit.ops.samples import Samples, draws, positions, ramp
from autojit.ops.shape import broadcast_to, reshape
from autojit.ops.sources import iota

_sum: Callable[..., Any] = np.add.reduce  # NumPy's own annotations do not have the positions that are None here
_maximum: Callable[..., Any] = np.maximum.reduce

_MANY = 4096  # elements: from here on one node costs less than the temporaries of its parts

__all__ = [
    "Composed", "LogSoftmax", "Mean", "MseLoss", "NllLoss", "Softmax", "Stack", "StdMean", "VarMean",
]  # fmt: skip


class Composed(Composite, abstract=True):
    """A composite with an eager rule and a VJP rule of its own, on float32 and float64 if it does not say otherwise."""

    reads_operands: ClassVar[bool] = False

    def result_type(self, *types: TensorType) -> TensorType:
        first = types[0]
        if not is_common(first.dtype):
            raise UnsupportedDTypeError(f'"{self.name}" not implemented for {first.dtype}', {"operand": first})
        return self.result_of(*types)

    def result_of(self, *types: TensorType) -> TensorType:
        """The type of the result for operands that the op takes."""
        return types[0]


def is_common(dtype: DType) -> bool:
    """Whether NumPy computes in the dtype without rounding in between."""
    return dtype.kind == "float" and dtype.size_bytes >= 4


@record
class Mean(Composed):
    """Arithmetic mean over ``axes`` (sorted, unique), which ``keepdim`` keeps with extent 1. Linear."""

    masks_cotangents: ClassVar[bool] = False
    axes: tuple[int, ...]
    keepdim: bool

    def result_of(self, *types: TensorType) -> TensorType:
        (x,) = types
        return x.with_shape(keep_axes(x.shape, self.axes)) if self.keepdim else x.drop(self.axes)

    def eager(self, x: Ndarray) -> Any:
        total = _sum(x, self.axes, None, None, self.keepdim)
        count = x.size // total.size if total.size else prod([x.shape[axis] for axis in self.axes])
        return total / count

    def expand(self, *operands: O) -> Any:
        return mean(operands[0], self.axes, self.keepdim) if self.axes else operands[0]

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        shape = primals[0].spec.shape  # only its shape is read, so x is not a residual
        return (lambda: broadcast_to(self._restored(shape, _share(y_bar, shape, self.axes)), shape),)

    def _restored(self, shape: tuple[int, ...], y: O) -> Any:
        return y if self.keepdim or not self.axes else reshape(y, keep_axes(shape, self.axes))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        x = draws((3, 4), dtype, 1)
        chosen = [Mean((0,), False), Mean((1,), True), Mean((0, 1), False)]
        return [*[(op, (x,)) for op in chosen], (Mean((1,), False), (draws((2, 3, 4), dtype, 2)[::2].T,))]


def _share(y_bar: O, shape: tuple[int, ...], axes: tuple[int, ...]) -> O:
    """Each element's share of the cotangent of a mean: rounded as in the composite ``mean``."""
    return share(y_bar, prod([shape[axis] for axis in axes]))


def _in_one_step(composite: str, options: tuple[Any, ...], *operands: O) -> Any:
    return bind(Op.registry["fused_arrays"](composite, options), *operands)


@record
class Normalised(Composed, abstract=True):
    """An op along ``axis`` (at least one element) that keeps the shape."""

    masks_cotangents: ClassVar[bool] = False
    axis: int

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: self.pull_back(result, y_bar),)

    def pull_back(self, y: O, y_bar: O) -> Any:
        """The cotangent of the operand."""
        raise NotImplementedError(self.name)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        strided = draws((2, 3, 4), dtype, 2)[::2].T
        return [*[(cls(axis), (draws((3, 4), dtype, axis),)) for axis in (0, 1)], (cls(1), (strided,))]


def _maxima(x: Ndarray, axis: int) -> Any:
    """The largest elements along an axis, which stays; of several zeros any, which differences do not tell apart.

    NumPy finds where they are in rows five times as fast as it finds the numbers: 64 rows of 10 take 1.8 us, not 7.
    """
    if axis != x.ndim - 1 or x.size <= _FEW_ROWS * x.shape[axis] or not x.flags.c_contiguous:
        return _maximum(x, axis, None, None, True)
    rows = x.argmax(axis).reshape(-1)
    return x.take(rows + _starts(rows.size, x.shape[axis])).reshape(*x.shape[:-1], 1)


_FEW_ROWS = 16  # up to here looking up what is there takes as long


@lru_cache(maxsize=256)
def _starts(count: int, extent: int) -> Ndarray:
    """Where rows begin."""
    return np.arange(0, count * extent, extent)


class Softmax(Normalised):
    """Exponentials over their sum."""

    def eager(self, x: Ndarray) -> Any:
        e = np.exp(x - _maxima(x, self.axis))
        e *= 1 / _sum(e, self.axis, None, None, True)
        return e

    def expand(self, *operands: O) -> Any:
        return softmax(operands[0], self.axis)

    def pull_back(self, y: O, y_bar: O) -> Any:
        if y.spec.size >= _MANY:
            return _in_one_step("softmax_cotangent", (self.axis, masking.is_on), y, y_bar)
        weighted = cotangent_product(y_bar, y)
        return sub(weighted, cotangent_product(sum(weighted, self.axis, keep=True), y))


class LogSoftmax(Normalised):
    """Logarithm of the softmax."""

    def eager(self, x: Ndarray) -> Any:
        shifted = x - _maxima(x, self.axis)
        shifted -= np.log(_sum(np.exp(shifted), self.axis, None, None, True))
        return shifted

    def expand(self, *operands: O) -> Any:
        return log_softmax(operands[0], self.axis)

    def pull_back(self, y: O, y_bar: O) -> Any:
        if y.spec.size >= _MANY:
            return _in_one_step("log_softmax_cotangent", (self.axis, masking.is_on), y, y_bar)
        return sub(y_bar, cotangent_product(sum(y_bar, self.axis, keep=True), exp(y)))


@record
class Stack(Composed):
    """Operands of one type side by side along the new axis ``axis``. Any dtype; linear."""

    masks_cotangents: ClassVar[bool] = False
    axis: int

    def result_type(self, *types: TensorType) -> TensorType:
        first = types[0]
        for k, other in enumerate(types):
            if other.dtype is not first.dtype or other.shape != first.shape:
                raise ShapeError("stack: operands differ in type", {"first": first, f"operand {k}": other})
        return first.with_shape((*first.shape[: self.axis], len(types), *first.shape[self.axis :]))

    def eager(self, *arrays: Ndarray) -> Any:
        shape = arrays[0].shape
        if self.axis == 0 and shape:
            return np.concatenate(arrays).reshape((len(arrays), *shape))
        return np.stack(arrays, self.axis)

    def expand(self, *operands: O) -> Any:
        return stack(operands, self.axis)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return tuple([lambda k=k: select(y_bar, self.axis, k) for k in range(len(primals))])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        x, y = ramp((2, 3), dtype), ramp((3, 2), dtype).T
        return [
            (Stack(0), (x, y)),
            (Stack(1), (x, y, x)),
            (Stack(2), (y,)),
            (Stack(0), (x[:1, 0].reshape(()), y[1:, 0].reshape(()))),
        ]


@record
class MseLoss(Composed):
    """The mean of the squared differences of two operands of one shape."""

    masks_cotangents: ClassVar[bool] = False

    def result_of(self, *types: TensorType) -> TensorType:
        x, y = types
        if x.dtype is not y.dtype or x.shape != y.shape:
            raise ShapeError("mse_loss: operands differ in type", {"input": x, "target": y})
        return x.with_shape(())

    def eager(self, x: Ndarray, y: Ndarray) -> Any:
        d = x - y
        return _sum(d * d, None) / d.size

    def expand(self, *operands: O) -> Any:
        x, y = operands
        return mean(square(sub(x, y)))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, y = primals
        return (lambda: _slope(x, y, y_bar), lambda: neg(_slope(x, y, y_bar)))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        return [(MseLoss(), (draws(shape, dtype, 1), draws(shape, dtype, 2))) for shape in ((3, 4), (5,))]


def _slope(x: O, y: O, y_bar: O) -> O:
    d = sub(x, y)
    return cotangent_product(_share(y_bar, d.spec.shape, tuple(range(d.spec.ndim))), add(d, d))


@record
class NllLoss(Composed):
    """The mean of minus the entries of ``x`` (n x c) that the class indices (n, in [0, c)) name."""

    def result_of(self, *types: TensorType) -> TensorType:
        x, target = types
        if target.dtype is not int64 or x.ndim != 2 or target.shape != x.shape[:1]:
            raise ShapeError("nll_loss: expected f[n, c] and i64[n]", {"input": x, "target": target})
        return x.with_shape(())

    def eager(self, x: Ndarray, target: Ndarray) -> Any:
        picked = x[np.arange(x.shape[0]), target]
        return -_sum(picked, None) / x.dtype.type(picked.size)

    def expand(self, *operands: O) -> Any:
        x, target = operands
        return neg(mean(pick(x, target, 1)))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, target = primals
        shape = x.spec.shape

        def cotangent() -> Any:
            named = eq(iota(y_bar, shape, 1, int64), restore_axes(target, shape, (1,)))
            return where(named, neg(_share(y_bar, shape, (0,))), 0)

        return (cotangent, None)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(NllLoss(), (draws((3, 4), dtype, 1), positions([2, 0, 3])))] if is_common(dtype) else []


@record
class Moments(Composed, abstract=True):
    """The spread of real numbers over ``axes`` and their mean; squares are divided by ``count - correction``."""

    axes: tuple[int, ...]
    correction: float
    keep: bool

    masks_cotangents: ClassVar[bool] = False
    n_outputs: ClassVar[int] = 2

    def result_type(self, *types: TensorType) -> Any:
        (x,) = types
        found = x.with_shape(keep_axes(x.shape, self.axes)) if self.keep else x.drop(self.axes)
        return found, found

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        (x,), (spread_bar, mean_bar) = primals, y_bar
        shape = x.spec.shape
        count = prod(shape[axis] for axis in self.axes)
        freedom = max(0.0, count - self.correction)

        def x_bar() -> Any:
            through_mean = None if mean_bar is None else div(spread(mean_bar, shape, self.axes), count)
            if spread_bar is None:
                return through_mean
            deviation = sub(x, mean(x, self.axes, keep=True))
            variance_bar = spread(self.variance_bar(result[0], spread_bar), shape, self.axes)
            through_variance = mul(mul(variance_bar, 2 / freedom if freedom else inf), deviation)
            return through_variance if through_mean is None else add(through_variance, through_mean)

        return (x_bar,)

    def variance_bar(self, found: O, bar: O) -> Any:
        """The cotangent of the variance from that of the first result, which is ``found``."""
        raise NotImplementedError(self.name)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if not is_common(dtype):
            return []
        x = draws((3, 4), dtype, 1)
        return [(cls((0,), 1, False), (x,)), (cls((1,), 0, True), (x,)), (cls((0, 1), 0.5, False), (x,))]


class VarMean(Moments):
    """Variance and mean."""

    def expand(self, *operands: O) -> Any:
        return var_mean(operands[0], self.axes, self.correction, self.keep)

    def variance_bar(self, found: O, bar: O) -> Any:
        return bar


class StdMean(Moments):
    """Standard deviation and mean; the derivative of a deviation of 0 is 0."""

    def expand(self, *operands: O) -> Any:
        variance, middle = var_mean(operands[0], self.axes, self.correction, self.keep)
        return safe_sqrt(variance), middle

    def variance_bar(self, found: O, bar: O) -> Any:
        return div(bar, where(eq(found, 0), inf, mul(found, 2)))
