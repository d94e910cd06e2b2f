"""Reductions: sum, product, extrema, any and all, the positions of extrema.

``lower(emit, dtype)`` gives the identity and the associative operator, in the dtype ``accumulator`` names (2-byte
floats are folded in float32). ``argmax`` and ``argmin`` fold (value, index) pairs: ``is_pair`` is set, ``lower`` gives
the identity of the value and ``beats(candidate, best)``; where neither beats the other the smaller index wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod as size_of
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, float32, int64
from autojit.core.errors import AxisError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.sizes import is_symbolic, seems_equal
from autojit.core.types import Shape, TensorType
from autojit.ir.op import Ndarray, O, Op, Operands, bind, linear_jvp, not_differentiable
from autojit.ops.base import Axes, Reduction, conjugate, keep_axes, normalize_axes, normalize_axis
from autojit.ops.by_name import apply
from autojit.ops.cotangent_masks import cotangent_product
from autojit.ops.elementwise_arithmetic import cast, div, mul, where
from autojit.ops.elementwise_base import REALS, sample_array
from autojit.ops.elementwise_logic import eq, logical_or, ne, to_bool
from autojit.ops.reversal import flip
from autojit.ops.samples import Samples
from autojit.ops.shape import broadcast_to, pad, permute, reshape, slice_axis
from autojit.ops.sources import ones

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "AllTrue", "Amax", "Amin", "AnyTrue", "Argmax", "Argmin", "Largest", "Least", "Prod", "Sum", "all", "amax", "amin",
    "any", "argmax", "argmin", "largest", "least", "prod", "product_of_others", "restore_axes", "spread", "sum",
]  # fmt: skip

Lowering = tuple[Any, Callable[..., Any]]


def restore_axes(y: O, shape: Shape, axes: tuple[int, ...]) -> O:
    """A reduction's result with the reduced axes of ``shape`` put back with extent 1."""
    return reshape(y, keep_axes(shape, axes))


def spread(y: O, shape: Shape, axes: tuple[int, ...]) -> O:
    """A reduction's result repeated along the reduced axes: the transpose of ``sum``."""
    return broadcast_to(restore_axes(y, shape, axes) if y.spec.shape else y, shape)


@record
class Fold(Reduction, abstract=True):
    """A reduction evaluated by ``fold(x, axis=axes)``."""

    axes: tuple[int, ...]

    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")
    fold: ClassVar[Callable[..., Any]]
    is_pair: ClassVar[bool] = False
    keeps_operand: ClassVar[bool] = False  # the rules compare the operand with the result: never recompute it
    has_identity: ClassVar[bool] = True

    def result_type(self, x: TensorType) -> TensorType:
        if x.dtype.kind not in self.accepts:
            raise UnsupportedDTypeError(f'"{self.name}" not implemented for {x.dtype}', {"operand": x})
        if not self.has_identity and seems_equal(size_of(x.shape[axis] for axis in self.axes), 0):
            raise AxisError(
                f"{self.name}(): Expected reduction dim to have non-zero size", {"operand": x, "axes": self.axes}
            )
        return x.drop(self.axes)

    def eager(self, x: Ndarray) -> Any:
        return type(self).fold(x, self.axes)

    def accumulator(self, dtype: DType) -> DType:
        """The dtype the fold runs in."""
        return float32 if dtype.kind == "float" and dtype.size_bytes == 2 else dtype

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind not in cls.accepts:
            return []
        cases: list[tuple[tuple[int, ...], Shape]] = [((0,), (4, 3)), ((1,), (2, 3)), ((0, 2), (2, 3, 2)), ((), ())]
        if cls.has_identity:
            cases.append(((1,), (2, 0)))
        found: Samples = [(cls(axes), (_distinct(shape, dtype, k),)) for k, (axes, shape) in enumerate(cases)]
        return [*found, (cls((0,)), (_distinct((6, 4), dtype, 9)[::2].T,))]


def _distinct(shape: Shape, dtype: DType, seed: int) -> Ndarray:
    return sample_array(shape, dtype, (-2.0, 2.0), seed)


_add_up = np.add.reduce


def _sum(x: Ndarray, axis: tuple[int, ...]) -> Any:
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return np.asarray(np.sum(x.astype(np.float32), axis=axis)).astype(x.dtype)
    return np.add.reduce(x, axis, x.dtype)


class Sum(Fold):
    """Sum over ``axes``; the dtype is kept. Linear."""

    masks_cotangents: ClassVar[bool] = False
    fold = staticmethod(_sum)

    def eager(self, x: Ndarray) -> Any:
        dtype = x.dtype
        return _add_up(x, self.axes, dtype) if dtype.char in "fd" else _sum(x, self.axes)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals  # only its shape is read, so x is not a residual
        return (lambda: spread(y_bar, x.spec.shape, self.axes),)

    jvp = linear_jvp

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        return emit.constant(0, dtype), emit.add


def _prod(x: Ndarray, axis: tuple[int, ...]) -> Any:
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
        return np.asarray(np.prod(x.astype(np.float32), axis=axis)).astype(x.dtype)
    return np.prod(x, axis=axis, dtype=x.dtype)


class Prod(Fold):
    """Product over ``axes``. Its derivative multiplies the other factors, so zeros are right to every order."""

    fold = staticmethod(_prod)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (
            lambda: cotangent_product(
                spread(y_bar, x.spec.shape, self.axes), conjugate(product_of_others(x, self.axes))
            ),
        )

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        return None if x_dot is None else bind(Sum(self.axes), mul(product_of_others(x, self.axes), x_dot))

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        return emit.constant(1, dtype), emit.mul


_LONG_ROW = 1024  # factors; beyond, two scans cost less than the ops of the tree


def product_of_others(x: O, axes: tuple[int, ...]) -> O:
    """At every element the product of the other elements along ``axes``, without dividing.

    A binary tree: products of pairs upwards, then each node passes its outside product to its two children, multiplied
    by the sibling. O(n) multiplications in O(log n) ops. Where ``n`` is open or large, running products from both ends.
    """
    shape = x.spec.shape
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    order = kept + axes
    outer = tuple(shape[axis] for axis in kept)
    n = size_of(shape[axis] for axis in axes)
    if not is_symbolic(n) and n <= 1:
        return ones(x, shape)
    rows = reshape(permute(x, order), (*outer, n))
    products = _by_running_products(rows) if is_symbolic(n) or n > _LONG_ROW else _by_pairs(rows)
    found = reshape(products, tuple(shape[axis] for axis in order))
    return permute(found, tuple(order.index(axis) for axis in range(len(shape))))


def _by_running_products(rows: O) -> O:
    """What comes before an element times what comes behind it."""
    *outer, n = rows.spec.shape
    last = len(outer)
    none, one = (0,) * (last + 1), (*(0,) * last, 1)
    before = apply("cumulative", pad(rows, one, none, 1), kind="prod", axis=last)
    behind = apply("cumulative", pad(rows, none, one, 1), kind="prod", axis=last, reverse=True)
    return mul(slice_axis(before, last, 0, n), slice_axis(behind, last, 1, n + 1))


def _by_pairs(rows: O) -> O:
    *outer, n = rows.spec.shape
    outside = ones(rows, (*outer, 1))
    last = len(outer)
    for pairs in reversed(_pair_levels(rows)):
        parents = pairs.spec.shape[last]
        outside = mul(reshape(outside, (*outer, parents, 1)), flip(pairs, last + 1))
        outside = reshape(outside, (*outer, 2 * parents))
    return slice_axis(outside, last, 0, n)


def _pair_levels(rows: O) -> list[Any]:
    """The tree's levels below the root, each ``(..., parents, 2)``; the leaves are padded with ones."""
    *outer, n = rows.spec.shape
    last = len(outer)
    width = 1 << (n - 1).bit_length()
    rows = pad(rows, (0,) * (last + 1), (*(0,) * last, width - n), 1)
    levels = []
    while width > 1:
        width //= 2
        pairs = reshape(rows, (*outer, width, 2))
        levels.append(pairs)
        if width > 1:
            product = mul(slice_axis(pairs, last + 1, 0, 1), slice_axis(pairs, last + 1, 1, 2))
            rows = reshape(product, (*outer, width))
    return levels


class Extreme(Fold, abstract=True):
    """The largest or smallest element; NaN if there is one. Ties share the cotangent evenly."""

    accepts: ClassVar[tuple[str, ...]] = REALS
    keeps_operand: ClassVar[bool] = True
    has_identity: ClassVar[bool] = False
    shares_among_nan: ClassVar[bool] = False

    def _shares(self, x: O, result: O) -> tuple[O, O]:
        """(where the extremum is attained, how many times per fold).

        Torch has two rules for a NaN that is the extremum. That of ``amax`` finds no element equal to it: the share is
        0 of 0, a NaN for the whole fold. That of ``max`` shares among the NaNs.
        """
        attained = eq(x, restore_axes(result, x.spec.shape, self.axes))
        if self.shares_among_nan and x.spec.dtype.is_floating_point:
            attained = logical_or(attained, ne(x, x))
        return attained, bind(Sum(self.axes), cast(attained, x.spec.dtype))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: self._spread(x, result, y_bar),)

    def _spread(self, x: O, result: O, y_bar: O) -> O:
        attained, count = self._shares(x, result)
        return mul(cast(attained, x.spec.dtype), restore_axes(div(y_bar, count), x.spec.shape, self.axes))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        if x_dot is None:
            return None
        attained, count = self._shares(x, result)
        return div(bind(Sum(self.axes), where(attained, x_dot, 0)), count)


class Amax(Extreme):
    """The largest element along ``axes``."""

    fold = staticmethod(np.maximum.reduce)

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        return emit.constant(lowest(dtype), dtype), emit.maximum


class Amin(Extreme):
    """The smallest element along ``axes``."""

    fold = staticmethod(np.minimum.reduce)

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        return emit.constant(highest(dtype), dtype), emit.minimum


class Largest(Amax):
    """``amax`` whose derivative, where the largest element is NaN, is shared by the NaNs: of ``max`` and of norms."""

    shares_among_nan = True


class Least(Amin):
    """``amin`` whose derivative, where the least element is NaN, is shared by the NaNs: of ``min`` and of norms."""

    shares_among_nan = True


def lowest(dtype: DType) -> Any:
    """The identity of maximum: -inf, the least integer, or False."""
    if dtype.kind == "float":
        return -np.inf
    return False if dtype.kind == "bool" else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> Any:
    """The identity of minimum: inf, the greatest integer, or True."""
    if dtype.kind == "float":
        return np.inf
    return True if dtype.kind == "bool" else int(np.iinfo(dtype.numpy).max)


class Truth(Fold, abstract=True):
    """A reduction of bools."""

    accepts: ClassVar[tuple[str, ...]] = ("bool",)
    vjp = jvp = not_differentiable("truth values have no derivative")


class AnyTrue(Truth):
    """Whether one element along ``axes`` is true."""

    fold = staticmethod(np.any)

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        return emit.constant(False, dtype), emit.bitwise_or


class AllTrue(Truth):
    """Whether all elements along ``axes`` are true."""

    fold = staticmethod(np.all)

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        return emit.constant(True, dtype), emit.bitwise_and


class Position(Fold, abstract=True):
    """The index of an extremum along the one axis in ``axes``: the first of equals; NaN counts as extreme."""

    accepts: ClassVar[tuple[str, ...]] = REALS
    is_pair: ClassVar[bool] = True
    has_identity: ClassVar[bool] = False
    extreme: ClassVar[type[Extreme]]
    vjp = jvp = not_differentiable("an index is piecewise constant")

    def result_type(self, x: TensorType) -> TensorType:
        if len(self.axes) != 1:
            raise AxisError(f"{self.name}: one axis at a time", {"axes": self.axes}, "reshape to rank 1 for all axes")
        return super().result_type(x).with_dtype(int64)

    def eager(self, x: Ndarray) -> Any:
        return np.asarray(type(self).fold(x, axis=self.axes[0]), dtype=np.int64)

    def accumulator(self, dtype: DType) -> DType:
        return dtype

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        return [sample for sample in super().samples(dtype) if len(sample[0].axes) == 1]  # type: ignore[attr-defined]


class Argmax(Position):
    """The index of the largest element."""

    fold = staticmethod(np.argmax)
    extreme = Amax

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        """(identity of the value, ``beats(candidate, best)``)."""
        return emit.constant(lowest(dtype), dtype), lambda new, best: _beats(emit, emit.gt, new, best)


class Argmin(Position):
    """The index of the smallest element."""

    fold = staticmethod(np.argmin)
    extreme = Amin

    def lower(self, emit: Emitter[S], dtype: DType) -> Lowering:
        """(identity of the value, ``beats(candidate, best)``)."""
        return emit.constant(highest(dtype), dtype), lambda new, best: _beats(emit, emit.lt, new, best)


def _beats(emit: Any, order: Callable[[Any, Any], Any], new: Any, best: Any) -> Any:
    """Strictly more extreme, or NaN against a number. Integers and bools have no NaN."""
    if new.dtype.kind != "float":
        return order(new, best)
    fresh_nan = emit.bitwise_and(emit.isnan(new), emit.bitwise_not(emit.isnan(best)))
    return emit.bitwise_or(order(new, best), fresh_nan)


@lru_cache(maxsize=1024)
def fold_over(name: str, axes: tuple[int, ...]) -> Op:
    """The reduction called ``name`` over normalised axes, one object for equal ones."""
    return Op.registry[name](axes)


def _reduce(op: type[Fold], x: O, axes: Axes, keep: bool) -> O:
    """Apply a reduction; ``keep`` leaves the reduced axes with extent 1."""
    found = normalize_axes(axes, x.spec.ndim, op.name)
    y = bind(fold_over(op.name, found), x)
    return restore_axes(y, x.spec.shape, found) if keep else y


def sum(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Sum over axes (all by default); ``keep`` leaves them with extent 1. The dtype is kept."""
    return _reduce(Sum, x, axes, keep)


def prod(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Product over axes (all by default). The dtype is kept."""
    return _reduce(Prod, x, axes, keep)


def amax(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Largest element over axes (all by default); NaN if there is one; ties share the derivative."""
    return _reduce(Amax, x, axes, keep)


def amin(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Smallest element over axes (all by default); NaN if there is one; ties share the derivative."""
    return _reduce(Amin, x, axes, keep)


def largest(x: O, axes: Axes = None, keep: bool = False) -> O:
    """``amax``, of which the NaNs share the derivative where the largest element is NaN."""
    return _reduce(Largest, x, axes, keep)


def least(x: O, axes: Axes = None, keep: bool = False) -> O:
    """``amin``, of which the NaNs share the derivative where the least element is NaN."""
    return _reduce(Least, x, axes, keep)


def any(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Whether one element over axes is non-zero."""
    return _reduce(AnyTrue, to_bool(x), axes, keep)


def all(x: O, axes: Axes = None, keep: bool = False) -> O:
    """Whether all elements over axes are non-zero."""
    return _reduce(AllTrue, to_bool(x), axes, keep)


def argmax(x: O, axis: int | None = None, keep: bool = False) -> O:
    """Index of the largest element along an axis (of the flattened operand by default), first of equals."""
    return _position(Argmax, x, axis, keep)


def argmin(x: O, axis: int | None = None, keep: bool = False) -> O:
    """Index of the smallest element along an axis (of the flattened operand by default), first of equals."""
    return _position(Argmin, x, axis, keep)


def _position(op: type[Position], x: O, axis: int | None, keep: bool) -> O:
    shape = x.spec.shape
    along = None if axis is None else normalize_axis(axis, len(shape), op.name)
    if along is None or not shape:
        flat = bind(op((0,)), reshape(x, (x.spec.size,)))
        return reshape(flat, (1,) * len(shape)) if keep else flat
    return _reduce(op, x, along, keep)
