"""Reindexing ops that NumPy does as views: reshape, permute, slice, broadcast_to; and pad and slice_update.

Every op here is linear and states its index map once (``source_index``); the transpose of each is its VJP. Views also
state ``unview``: the base with the viewed elements replaced, which turns an in-place write through a view into a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import fit, is_symbolic, size_max, surely_equal, surely_less
from autojit.core.types import Shape, TensorType
from autojit.ir.index import Index, reshaped
from autojit.ir.op import Ndarray, O, Op, Operands, bind
from autojit.ops.base import Reindex, Structured, is_expandable, normalize_axis, sum_to, unexpandable
from autojit.ops.samples import Samples, ramp
from autojit.ops.slice_bounds import exceeds, is_negative, slice_ends, slice_span
from autojit.ops.sources import filled_array

__all__ = [
    "BroadcastTo", "Pad", "Permute", "Reshape", "Slice", "SliceUpdate", "View", "broadcast_to", "pad",
    "permute", "reshape", "slice_axis", "slice_update", "strided_slice",
]  # fmt: skip

Integers = tuple[int, ...]


class View(Reindex, abstract=True):
    """A reindexing whose eager result aliases its operand (``reshape`` only where strides allow it)."""

    masks_cotangents: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    may_copy: ClassVar[bool] = False  # the eager result may be a copy, where strides do not allow a view

    def shifted(self, extent: int) -> Op:
        """The same op on an operand with a leading batch axis of ``extent``."""
        raise NotImplementedError(self.name)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        (x,) = args
        return bind(self.shifted(x.spec.shape[0]), x)


@record
class Reshape(View):
    """The elements in row-major order under another shape of the same size."""

    may_copy: ClassVar[bool] = True
    shape: Shape
    node_class: ClassVar[str] = "ViewBackward0"

    def result_type(self, x: TensorType) -> TensorType:
        if not fit(prod(self.shape), x.size):
            raise _bad_reshape(self.shape, x)
        return x.with_shape(self.shape)

    def eager(self, x: Ndarray) -> Ndarray:
        return x.reshape(self.shape)

    def copies(self, x: Ndarray) -> bool:
        try:
            x.reshape(self.shape, copy=False)
        except ValueError:
            return True
        return False

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        return reshaped(index, self.shape, x.shape)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (bind(Reshape(x.spec.shape), y_bar),)

    def unview(self, base: O, piece: O) -> O:
        return reshape(piece, base.spec.shape)

    def shifted(self, extent: int) -> Op:
        return Reshape((extent, *self.shape))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Reshape((3, 4)), (ramp((2, 6), dtype),)),
            (Reshape((2, 3, 2)), (ramp((4, 3), dtype).T,)),
            (Reshape(()), (ramp((1, 1), dtype),)),
            (Reshape((0, 5)), (ramp((3, 0), dtype),)),
        ]


@record
class Permute(View):
    """Axis ``k`` of the result is axis ``axes[k]`` of the operand."""

    axes: Integers
    parameter_names: ClassVar[Mapping[str, str]] = {"axes": "dims"}

    def result_type(self, x: TensorType) -> TensorType:
        if sorted(self.axes) != list(range(x.ndim)):
            raise ShapeError(f"permute: axes {self.axes} are not a permutation of the operand's", {"x": x})
        return x.with_shape(tuple(x.shape[a] for a in self.axes))

    def eager(self, x: Ndarray) -> Ndarray:
        return x.transpose(self.axes)

    @property
    def inverse(self) -> Permute:
        return Permute(tuple(sorted(range(len(self.axes)), key=self.axes.__getitem__)))

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        return tuple(index[place] for place in self.inverse.axes)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (bind(self.inverse, y_bar),)

    def unview(self, base: O, piece: O) -> O:
        return bind(self.inverse, piece)

    def shifted(self, extent: int) -> Op:
        return Permute((0, *(a + 1 for a in self.axes)))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Permute((1, 2, 0)), (ramp((2, 3, 4), dtype),)),
            (Permute((1, 0)), (ramp((3, 4), dtype)[:, ::2],)),
            (Permute(()), (ramp((), dtype),)),
        ]


@record
class Slice(View):
    """``x[starts:stops:steps]`` on every axis: starts and stops within the extents, steps positive."""

    masks_cotangents: ClassVar[bool] = True
    starts: Integers
    stops: Integers
    steps: Integers

    def result_type(self, x: TensorType) -> TensorType:
        if not len(self.starts) == len(self.stops) == len(self.steps) == x.ndim:
            raise ShapeError("slice: one start, stop and step per axis", {"x": x, "starts": self.starts})
        return x.with_shape(self.extents)

    @property
    def extents(self) -> Shape:
        """The result's shape."""
        bounds = zip(self.starts, self.stops, self.steps, strict=True)
        return tuple(size_max(0, -(-(stop - start) // step)) for start, stop, step in bounds)

    def eager(self, x: Ndarray) -> Ndarray:
        place = self.__dict__.get("_place")
        if place is None:
            place = (*map(slice, self.starts, self.stops, self.steps), ...)  # the ellipsis keeps a 0-d array an array
            object.__setattr__(self, "_place", place)  # no field: made from the fields
        part: Ndarray = x[place]
        return part

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        return tuple(i * step + start for i, start, step in zip(index, self.starts, self.steps, strict=True))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        ends = slice_ends(self.starts, y_bar.spec.shape, self.steps)
        high = tuple(extent - end for extent, end in zip(x.spec.shape, ends, strict=True))
        pairs = zip(y_bar.spec.shape, self.steps, strict=True)
        between = tuple(0 if step == 1 or surely_less(n, 2) else step - 1 for n, step in pairs)
        return (bind(Pad(self.starts, high, between, 0), y_bar),)

    def unview(self, base: O, piece: O) -> O:
        return bind(SliceUpdate(self.starts, self.steps), base, piece)

    def shifted(self, extent: int) -> Op:
        return Slice((0, *self.starts), (extent, *self.stops), (1, *self.steps))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Slice((1, 0), (4, 3), (1, 1)), (ramp((5, 3), dtype),)),
            (Slice((0, 1), (6, 7), (2, 3)), (ramp((7, 6), dtype).T,)),
            (Slice((2,), (2,), (1,)), (ramp((4,), dtype),)),
            (Slice((), (), ()), (ramp((), dtype),)),
        ]


_KEPT_STRIDES = 16  # kinds of operands that one op is given: mostly one


@record
class BroadcastTo(View):
    """NumPy broadcasting to a shape: axes of extent 1 repeat, missing leading axes are added."""

    shape: Shape
    node_class: ClassVar[str] = "ExpandBackward0"

    def result_type(self, x: TensorType) -> TensorType:
        if not is_expandable(x.shape, self.shape):
            raise ShapeError(
                unexpandable(x.shape, self.shape), {"x": x}, "give every axis that is not of extent 1 its own extent"
            )
        return x.with_shape(self.shape)

    def eager(self, x: Ndarray) -> Ndarray:
        if type(x) is not np.ndarray or not x.flags.c_contiguous or x.dtype.char not in "fdilqB?":
            return np.broadcast_to(x, self.shape)
        key = x.strides, x.shape
        known: dict[Any, Any] | None = self.__dict__.get("_strides")  # no field: what NumPy found for such operands
        if known is None:
            known = {}
            object.__setattr__(self, "_strides", known)
        strides = known.get(key)
        if strides is None:
            found = np.broadcast_to(x, self.shape)
            if len(known) < _KEPT_STRIDES:
                known[key] = found.strides
            return found
        made: Ndarray = np.ndarray(self.shape, x.dtype, x, 0, strides)  # an eighth of what ``np.broadcast_to`` takes
        made.flags.writeable = False
        return made

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        aligned = index[len(index) - x.ndim :] if x.ndim else ()
        return tuple(Index() if n == 1 else i for i, n in zip(aligned, x.shape, strict=True))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (sum_to(y_bar, x.spec.shape),)

    def unview(self, base: O, piece: O) -> O:
        """The first of the elements that show one place of the base; writes where they differ are refused before."""
        shape = base.spec.shape
        added = piece.spec.ndim - len(shape)
        stops = [min(1, m) if a < added else min(m, shape[a - added]) for a, m in enumerate(piece.spec.shape)]
        if 0 in stops and base.spec.size:
            return base
        return reshape(strided_slice(piece, [0] * len(stops), stops), shape)

    def shifted(self, extent: int) -> Op:
        return BroadcastTo((extent, *self.shape))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        (x,) = args
        extent, *rest = x.spec.shape
        missing = len(self.shape) - len(rest)
        aligned = reshape(x, (extent, *(1,) * missing, *rest))
        return bind(self.shifted(extent), aligned)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (BroadcastTo((4, 2, 3)), (ramp((2, 1), dtype),)),
            (BroadcastTo((2, 3)), (ramp((), dtype),)),
            (BroadcastTo((0, 3)), (ramp((1, 3), dtype),)),
        ]


@record
class Pad(Reindex):
    """``low`` and ``high`` elements of ``value`` around, ``interior`` ones between, as XLA's Pad; none negative."""

    low: Integers
    high: Integers
    interior: Integers
    value: int | float | bool | complex

    def result_type(self, x: TensorType) -> TensorType:
        if not len(self.low) == len(self.high) == len(self.interior) == x.ndim:
            raise ShapeError("pad: one low, high and interior width per axis", {"x": x, "low": self.low})
        if any(map(is_negative, (*self.low, *self.high, *self.interior))):
            raise ArgumentError("pad: widths must not be negative", {"low": self.low, "high": self.high})
        return x.with_shape(self._shape(x.shape))

    def _shape(self, shape: Shape) -> Shape:
        widths = zip(shape, self.low, self.high, self.interior, strict=True)
        return tuple(low + n + (max(n - 1, 0) * inner if inner else 0) + high for n, low, high, inner in widths)

    def region(self, shape: Shape) -> Slice:
        """The slice of the result that holds an operand of ``shape``."""
        steps = tuple(inner + 1 for inner in self.interior)
        return Slice(self.low, slice_ends(self.low, shape, steps), steps)

    def eager(self, x: Ndarray) -> Ndarray:
        known: dict[Any, Any] | None = self.__dict__.get("_places")  # no field: shape and region by operands' shapes
        if known is None:
            known = {}
            object.__setattr__(self, "_places", known)
        place = known.get(x.shape)
        if place is None:
            region = self.region(x.shape)
            place = self._shape(x.shape), (*map(slice, region.starts, region.stops, region.steps), ...)
            if len(known) < _KEPT_STRIDES:
                known[x.shape] = place
        shape: Shape = place[0]
        inside: Any = place[1]
        result = filled_array(shape, self.value, x.dtype)
        result[inside] = x
        return result

    def _whole(self, index: Index, axis: int) -> tuple[Index, int, int]:
        """(index shifted to be non-negative, period, how many periods it was shifted by)."""
        period = self.interior[axis] + 1
        shift = -(-self.low[axis] // period)
        return index + (shift * period - self.low[axis]), period, shift

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        found = [self._whole(i, axis) for axis, i in enumerate(index)]
        return tuple(position // period - Index((), shift) for position, period, shift in found)

    def valid(self, index: tuple[Index, ...], x: TensorType) -> tuple[tuple[Index, int, int], ...]:
        """Conditions ``low <= index < high`` that all hold where the element comes from the operand."""
        conditions: list[tuple[Index, int, int]] = []
        for axis, i in enumerate(index):
            position, period, shift = self._whole(i, axis)
            if self.low[axis] or self.high[axis]:
                conditions.append((position // period, shift, shift + x.shape[axis]))
            if not surely_equal(period, 1):
                conditions.append((position % period, 0, 1))
        return tuple(conditions)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (bind(self.region(x.spec.shape), y_bar),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x_dot,) = tangents
        return None if x_dot is None else bind(Pad(self.low, self.high, self.interior, 0), x_dot)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Pad((0, *self.low), (0, *self.high), (0, *self.interior), self.value), args[0])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Pad((1, 0), (2, 3), (0, 0), 1), (ramp((2, 3), dtype),)),
            (Pad((3, 1), (0, 2), (1, 2), 0), (ramp((3, 2), dtype).T,)),
            (Pad((2,), (1,), (1,), 0), (ramp((0,), dtype),)),
        ]


def jointly_linear_jvp(self: Op, primals: Operands, result: O, tangents: Operands, others: Operands = ()) -> Any:
    """The ``jvp`` of an op linear in all operands but ``others``: itself on tangents, zeros for symbolic ones."""
    like = next((t for t in tangents if t is not None), None)
    if like is None:
        return None
    filled = [like._literal(0, p.spec) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    return bind(self, *filled, *others)


@record
class SliceUpdate(Structured):
    """``base`` with ``base[starts : ... : steps]`` replaced by ``piece``; the region is as large as the piece."""

    starts: Integers
    steps: Integers

    def result_type(self, base: TensorType, piece: TensorType) -> TensorType:
        region = self.region(piece.shape) if len(self.starts) == base.ndim == piece.ndim else None
        if region is None or any(exceeds(stop, n) for stop, n in zip(region.stops, base.shape, strict=True)):
            raise ShapeError("slice_update: the piece does not fit into the base", {"base": base, "piece": piece})
        if base.dtype is not piece.dtype:
            raise ShapeError("slice_update: base and piece differ in dtype", {"base": base, "piece": piece})
        return base

    def region(self, shape: Shape) -> Slice:
        """The slice of the base that a piece of ``shape`` replaces."""
        return Slice(self.starts, slice_ends(self.starts, shape, self.steps), self.steps)

    def eager(self, base: Ndarray, piece: Ndarray) -> Ndarray:
        result = base.copy()
        self.region(piece.shape).eager(result)[...] = piece
        return result

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        shape, zero = primals[1].spec.shape, primals[1].spec
        return (lambda: bind(self, y_bar, y_bar._literal(0, zero)), lambda: bind(self.region(shape), y_bar))

    jvp = jointly_linear_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        base, piece = batch_all(args, batched)
        return bind(SliceUpdate((0, *self.starts), (1, *self.steps)), base, piece)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (SliceUpdate((1, 0), (2, 1)), (ramp((5, 3), dtype), ramp((2, 2), dtype))),
            (SliceUpdate((1,), (1,)), (ramp((4,), dtype), ramp((0,), dtype))),
        ]


def reshape(x: O, shape: Sequence[int]) -> O:
    """The same elements under another shape; one extent may be -1 and is then worked out.

    Raises:
        ShapeError: the sizes differ, or -1 cannot be worked out.
    """
    wanted = tuple(shape)
    if -1 in wanted:
        wanted = _infer(wanted, x.spec)
    return x if surely_equal(wanted, x.spec.shape) else bind(Reshape(wanted), x)


def _infer(shape: Shape, x: TensorType) -> Shape:
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) > 1:
        raise ShapeError("only one dimension can be inferred", {"x": x, "shape": list(shape)})
    if known == 0 and x.size == 0:
        raise ShapeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous",
            {"x": x},
        )
    if known == 0 or x.size % known:
        raise _bad_reshape(shape, x)
    return tuple(x.size // known if n == -1 else n for n in shape)


def _bad_reshape(shape: Shape, x: TensorType) -> ShapeError:
    return ShapeError(f"shape '{list(shape)}' is invalid for input of size {x.size}", {"x": x})


def permute(x: O, axes: Sequence[int]) -> O:
    """Reorder the axes: axis ``k`` of the result is ``axes[k]`` of the operand; negative ones count from the end."""
    ndim = x.spec.ndim
    if len(axes) != ndim:
        raise ShapeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(axes)}",
            {"x": x},
        )
    order = tuple(normalize_axis(a, ndim, "permute") for a in axes)
    return x if order == tuple(range(ndim)) else bind(Permute(order), x)


def strided_slice(x: O, starts: Sequence[int], stops: Sequence[int | None], steps: Sequence[int] | None = None) -> O:
    """``x[starts:stops:steps]`` with one entry per axis and Python's clipping; steps must be positive."""
    strides = tuple(steps) if steps is not None else (1,) * x.spec.ndim
    if min(strides, default=1) <= 0:
        raise ArgumentError("slice step must be positive", {"x": x, "steps": strides}, "use flip for a reversed order")
    spans = [slice_span(*given) for given in zip(starts, stops, strides, x.spec.shape, strict=True)]
    if all(surely_equal(s, (0, n)) and step == 1 for s, n, step in zip(spans, x.spec.shape, strides, strict=True)):
        return x
    return bind(Slice(tuple(s[0] for s in spans), tuple(s[1] for s in spans), strides), x)


def slice_axis(x: O, axis: int, start: int, stop: int | None, step: int = 1) -> O:
    """``x[start:stop:step]`` along one axis."""
    shape = x.spec.shape
    ndim = len(shape)
    axis = normalize_axis(axis, ndim, "slice")
    starts, steps = [0] * ndim, [1] * ndim
    if step > 0 and not any(map(is_symbolic, (start, stop, *shape))):
        first, last = slice_span(start, stop, step, shape[axis])
        if step == 1 and first == 0 and last == shape[axis]:
            return x
        ends = list(shape)
        starts[axis], ends[axis], steps[axis] = first, last, step
        return bind(Slice(tuple(starts), tuple(ends), tuple(steps)), x)
    stops: list[int | None] = [None] * ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return strided_slice(x, starts, stops, steps)


def broadcast_to(x: O, shape: Sequence[int]) -> O:
    """Repeat axes of extent 1 and add leading axes until the operand has ``shape``."""
    wanted = tuple(shape)
    return x if surely_equal(wanted, x.spec.shape) else bind(BroadcastTo(wanted), x)


def pad(
    x: O,
    low: Sequence[int],
    high: Sequence[int],
    value: int | float | bool | complex = 0,
    interior: Sequence[int] | None = None,
) -> O:
    """Constant padding per axis: ``low`` before, ``high`` after, ``interior`` between elements."""
    inner = tuple(interior) if interior is not None else (0,) * x.spec.ndim
    if all(surely_equal(n, 0) for n in (*low, *high, *inner)):
        return x
    return bind(Pad(tuple(low), tuple(high), inner, value), x)


def slice_update(base: O, piece: O, starts: Sequence[int], steps: Sequence[int] | None = None) -> O:
    """``base`` with the region that begins at ``starts`` replaced by ``piece``."""
    strides = tuple(steps) if steps is not None else (1,) * base.spec.ndim
    return bind(SliceUpdate(tuple(starts), strides), base, piece)


def batch_all(args: Operands, batched: tuple[bool, ...]) -> list[Any]:
    """Give the operands without a batch axis one, by broadcasting."""
    extent = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
    return [a if flag else broadcast_to(a, (extent, *a.spec.shape)) for a, flag in zip(args, batched, strict=True)]
