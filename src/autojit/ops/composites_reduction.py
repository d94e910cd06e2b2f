"""Statistics over axes: mean, variance, norms, log-sum-exp, extrema with their index.

Composites: ordinary functions over the ops, differentiated by composition. ``keep`` leaves the reduced axes with
extent 1.
"""

from __future__ import annotations

import math
from typing import Any

from autojit.core.dtypes import int64
from autojit.core.sizes import is_symbolic, seems_equal, size_max
from autojit.ir.op import O, Operand, bind
from autojit.ops.base import Axes, normalize_axes, normalize_axis
from autojit.ops.elementwise_arithmetic import (
    add,
    cast,
    div,
    mul,
    square,
    squared_deviation,
    stop_gradient,
    sub,
    where,
)  # fmt: skip
from autojit.ops.elementwise_base import is_complex
from autojit.ops.elementwise_complex import abs, imag, real
from autojit.ops.elementwise_exponential import PowNumber, exp, log, pow, sqrt
from autojit.ops.elementwise_logic import eq, isfinite, to_bool
from autojit.ops.halves import rounded_once
from autojit.ops.indexing import gather
from autojit.ops.reductions import amax, argmax, argmin, largest, least, restore_axes, sum
from autojit.ops.shape import reshape
from autojit.ops.sources import zeros

__all__ = [
    "count_nonzero", "logsumexp", "max_with_index", "mean", "min_with_index", "norm", "safe_sqrt", "std", "var",
    "var_mean",
]  # fmt: skip


def count_of(x: Operand, axes: tuple[int, ...]) -> int:
    """How many elements one fold over ``axes`` takes."""
    return math.prod(x.spec.shape[axis] for axis in axes)


@rounded_once
def mean(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Arithmetic mean; NaN over no elements."""
    found = normalize_axes(axes, x.spec.ndim, "mean")
    return share(sum(x, found, keep), count_of(x, found))


def share(total: O, count: int) -> O:
    """``total / count``: where the reciprocal is a float, by a product with it, which rounds as dividing does."""
    is_power = not is_symbolic(count) and count > 0 and count & (count - 1) == 0
    return mul(total, 1.0 / count) if is_power else div(total, count)


@rounded_once
def var_mean(x: O, axes: Axes = None, correction: float = 1, keep: bool = False) -> tuple[O, O]:
    """(variance, mean) in two passes; the sum of squares is divided by ``max(0, count - correction)``."""
    found = normalize_axes(axes, x.spec.ndim, "var")
    middle = mean(x, found, keep=True)
    if is_complex(x):
        deviation = sub(x, middle)
        squares = add(square(real(deviation)), square(imag(deviation)))
    else:
        squares = squared_deviation(x, middle)
    total = sum(squares, found, keep)
    count = count_of(x, found)
    is_whole = is_symbolic(count) and correction == int(correction)
    freedom = size_max(0, count - int(correction)) if is_whole else max(0.0, count - correction)
    return div(total, freedom), middle if keep else reshape(middle, x.spec.drop(found).shape)


@rounded_once
def var(x: O, axes: Axes = None, correction: float = 1, keep: bool = False) -> O:
    """Variance with ``count - correction`` degrees of freedom."""
    return var_mean(x, axes, correction, keep)[0]


@rounded_once
def std(x: O, axes: Axes = None, correction: float = 1, keep: bool = False) -> O:
    """Standard deviation; its derivative is 0 where all elements are equal."""
    return safe_sqrt(var(x, axes, correction, keep))


def safe_sqrt(x: O) -> O:
    """Square root with derivative 0 at 0, for magnitudes."""
    is_zero = eq(x, 0)
    return where(is_zero, 0, sqrt(where(is_zero, 1, x)))


def norm(x: O, p: float = 2.0, axes: Axes = None, keep: bool = False) -> O:
    """The vector p-norm: ``inf`` and ``-inf`` the extreme magnitude, 0 the count of non-zeros. Derivative 0 at 0."""
    if p == 2.0:
        squares = add(square(real(x)), square(imag(x))) if is_complex(x) else square(x)
        return safe_sqrt(sum(squares, axes, keep))
    if p == 0:
        return sum(where(to_bool(x), bind(PowNumber(0), abs(x)), 0), axes, keep)
    magnitude = abs(x)
    if math.isinf(p):
        return largest(magnitude, axes, keep) if p > 0 else least(magnitude, axes, keep)
    if p == 1.0:
        return sum(magnitude, axes, keep)
    total = sum(_safe_pow(magnitude, p), axes, keep)
    return pow(total, 1.0 / p) if p < 0 else _safe_pow(total, 1.0 / p)


def _safe_pow(x: O, exponent: float) -> O:
    """A power of a magnitude with derivative 0 at 0."""
    is_zero = eq(x, 0)
    return where(is_zero, 0 if exponent > 0 else math.inf, pow(where(is_zero, 1, x), exponent))


@rounded_once
def logsumexp(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Log of the sum of exponentials, shifted by the maximum so that it cannot overflow.

    Over no elements it is -inf. The shift cancels in every derivative, so it is a constant to them.
    Source: Blanchard, Higham and Higham, IMA J. Numer. Anal. 41(4), 2021 (the shifted form).
    """
    found = normalize_axes(axes, x.spec.ndim, "logsumexp")
    if seems_equal(count_of(x, found), 0):
        return log(sum(exp(x), found, keep))
    top = stop_gradient(amax(real(x), found))
    shift = where(isfinite(top), top, 0)
    shift = cast(shift, x.spec.dtype) if is_complex(x) else shift
    total = sum(exp(sub(x, restore_axes(shift, x.spec.shape, found))), found)
    y = add(log(total), shift)
    return restore_axes(y, x.spec.shape, found) if keep else y


def count_nonzero(x: O, axes: Axes = None) -> O:
    """How many elements are not 0, as int64."""
    return sum(cast(to_bool(x), int64), axes)


def max_with_index(x: O, axis: int, keep: bool = False) -> tuple[O, O]:
    """(largest element, its first index) along an axis; that one element receives the derivative."""
    return _with_index(x, axis, keep, argmax)


def min_with_index(x: O, axis: int, keep: bool = False) -> tuple[O, O]:
    """(smallest element, its first index) along an axis; that one element receives the derivative."""
    return _with_index(x, axis, keep, argmin)


def _with_index(x: O, axis: int, keep: bool, position: Any) -> tuple[O, O]:
    if x.spec.ndim == 0:
        return x, zeros(x, (), int64)
    axis = normalize_axis(axis, x.spec.ndim)
    index = position(x, axis, keep=True)
    values = gather(x, axis, index)
    if keep:
        return values, index
    shape = x.spec.drop((axis,)).shape
    return reshape(values, shape), reshape(index, shape)
