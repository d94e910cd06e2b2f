"""Views that pick elements along two axes at once (diagonal, unfold), and writing through a chain of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np

from autojit.core.dtypes import DType, bool_
from autojit.core.errors import ArgumentError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import seems_equal
from autojit.core.strided_views import as_strided
from autojit.core.types import Shape, TensorType
from autojit.ir.index import Index
from autojit.ir.op import Ndarray, O, Op, Operands, bind
from autojit.ops.base import Structured, normalize_axis
from autojit.ops.loop_orders import in_order_of
from autojit.ops.samples import Samples, ramp
from autojit.ops.shape import (
    BroadcastTo,
    Permute,
    Reshape,
    Slice,
    View,
    batch_all,
    jointly_linear_jvp,
    pad,
    permute,
    reshape,
    slice_axis,
    slice_update,
)  # fmt: skip
from autojit.ops.sources import iota

__all__ = ["Diagonal", "Unfold", "ViewUpdate", "diagonal", "unfold"]


@record
class Diagonal(View):
    """The elements at (i, i + offset) of two axes, as a new last axis."""

    masks_cotangents: ClassVar[bool] = True
    offset: int
    axis1: int
    axis2: int

    def result_type(self, x: TensorType) -> TensorType:
        if self.axis1 == self.axis2:
            raise ShapeError(f"diagonal dimensions cannot be identical {self.axis1}, {self.axis2}", {"x": x})
        length = self._length(x.shape[self.axis1], x.shape[self.axis2])
        kept = x.drop((self.axis1, self.axis2))
        return kept.with_shape((*kept.shape, length))

    def _first(self) -> tuple[int, int]:
        return max(-self.offset, 0), max(self.offset, 0)

    def _length(self, rows: int, columns: int) -> int:
        row, column = self._first()
        return max(0, min(rows - row, columns - column))

    def eager(self, x: Ndarray) -> Ndarray:
        rows, columns = x.shape[self.axis1], x.shape[self.axis2]
        length = self._length(rows, columns)
        corner = x
        if self.offset:
            first = [slice(None)] * x.ndim
            row, column = self._first()
            first[self.axis1], first[self.axis2] = slice(row, row + length), slice(column, column + length)
            corner = x[tuple(first)]
        kept = [a for a in range(x.ndim) if a not in (self.axis1, self.axis2)]
        shape = (*(x.shape[a] for a in kept), length)
        strides = (*(x.strides[a] for a in kept), x.strides[self.axis1] + x.strides[self.axis2])
        return as_strided(corner, shape, strides)  # np.diagonal is read-only; views here are writable

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        *kept, last = index
        rest = iter(kept)
        row, column = self._first()
        places = {self.axis1: last + row, self.axis2: last + column}
        return tuple(places[a] if a in places else next(rest) for a in range(x.ndim))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (None if seems_equal(y_bar.spec.size, 0) else self.embed(y_bar, primals[0].spec.shape),)

    def embed(self, piece: O, shape: Shape) -> O:
        """Zeros of ``shape`` with the piece on the diagonal, by padding alone, so that it fuses."""
        order = self._order(len(shape))
        rows, columns = shape[self.axis1], shape[self.axis2]
        row, column = self._first()
        start, length = row * columns + column, piece.spec.shape[-1]
        low, high, interior = ([0] * piece.spec.ndim for _ in range(3))
        low[-1], interior[-1] = start, columns
        high[-1] = rows * columns - (start + (length - 1) * (columns + 1) + 1)
        flat = pad(piece, low, high, 0, interior)
        front = reshape(flat, [shape[a] for a in order])
        return permute(front, [order.index(a) for a in range(len(shape))])

    def _order(self, ndim: int) -> list[int]:
        """All axes, the two of the diagonal last."""
        return [*(a for a in range(ndim) if a not in (self.axis1, self.axis2)), self.axis1, self.axis2]

    def unview(self, base: O, piece: O) -> O:
        """On a row-major matrix of n columns the diagonal is a slice of step n + 1 of the flattened one."""
        if seems_equal(piece.spec.size, 0):
            return base
        order = self._order(base.spec.ndim)
        front = permute(base, order)
        *lead, rows, columns = front.spec.shape
        row, column = self._first()
        starts = (*(0 for _ in lead), row * columns + column)
        steps = (*(1 for _ in lead), columns + 1)
        flat = slice_update(reshape(front, (*lead, rows * columns)), piece, starts, steps)
        return permute(reshape(flat, front.spec.shape), [order.index(a) for a in range(base.spec.ndim)])

    def shifted(self, extent: int) -> Op:
        return Diagonal(self.offset, self.axis1 + 1, self.axis2 + 1)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Diagonal(0, 0, 1), (ramp((3, 4), dtype),)),
            (Diagonal(-1, 2, 0), (ramp((4, 2, 3), dtype),)),
            (Diagonal(5, 0, 1), (ramp((3, 4), dtype),)),
        ]


@record
class Unfold(View):
    """Windows of ``size`` every ``step`` elements of ``axis``, whose extent becomes their number; size comes last."""

    masks_cotangents: ClassVar[bool] = True
    axis: int
    size: int
    step: int

    def result_type(self, x: TensorType) -> TensorType:
        extent = x.shape[self.axis] if x.ndim else 1
        if self.size < 0:
            raise ShapeError(f"size is {self.size} but must be >= 0", {"x": x})
        if self.size > extent:
            raise ShapeError(
                f"maximum size for tensor at dimension {self.axis} is {extent} but size is {self.size}", {"x": x}
            )
        if self.step <= 0:
            raise ArgumentError(f"step is {self.step} but must be > 0", {"x": x})
        windows = (extent - self.size) // self.step + 1
        return x.with_shape((*x.shape[: self.axis], windows, *x.shape[self.axis + 1 :], self.size))

    def eager(self, x: Ndarray) -> Ndarray:
        windows = (x.shape[self.axis] - self.size) // self.step + 1
        shape, strides = list(x.shape), list(x.strides)
        shape[self.axis] = windows
        strides[self.axis] *= self.step
        return as_strided(x, (*shape, self.size), (*strides, x.strides[self.axis]))

    def source_index(self, index: tuple[Index, ...], x: TensorType) -> tuple[Index, ...]:
        *kept, last = index
        kept[self.axis] = kept[self.axis] * self.step + last
        return tuple(kept)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        """Overlapping windows add up.

        The windows are cut into ceil(size / step) pieces of at most ``step`` elements: equal pieces of all windows do
        not overlap, so each set is one padding and the sets are added.
        """
        extent = primals[0].spec.shape[self.axis]
        if self.size == 0:
            return (None,)
        total: Any = None
        for start in range(0, self.size, self.step):
            part = self._spread(slice_axis(y_bar, -1, start, start + self.step), start, extent)
            total = part if total is None else bind(Op.registry["add"](), total, part)
        return (total,)

    def _spread(self, part: O, start: int, extent: int) -> O:
        """Lay non-overlapping window pieces, which begin ``start`` into their windows, along an axis of ``extent``."""
        ndim = part.spec.ndim
        windows, length = part.spec.shape[self.axis], part.spec.shape[-1]
        order = [*range(self.axis + 1), ndim - 1, *range(self.axis + 1, ndim - 1)]
        together = permute(part, order)  # (..., windows, length, ...)
        gaps = [0] * ndim
        gaps[self.axis + 1] = self.step - length
        padded = pad(together, [0] * ndim, gaps)
        shape = [*padded.spec.shape[: self.axis], windows * self.step, *padded.spec.shape[self.axis + 2 :]]
        line = slice_axis(reshape(padded, shape), self.axis, 0, (windows - 1) * self.step + length)
        low, high = [0] * (ndim - 1), [0] * (ndim - 1)
        low[self.axis] = start
        high[self.axis] = extent - start - line.spec.shape[self.axis]
        return pad(line, low, high)

    def unview(self, base: O, piece: O) -> O:
        if self.size > self.step:
            raise ShapeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location",
                {"base": base, "view": piece},
                "clone() the tensor before the in-place operation",
            )
        if seems_equal(piece.spec.size, 0):
            return base
        extent = base.spec.shape[self.axis]
        covered = base._literal(True, TensorType(piece.spec.shape, bool_, base.spec.device))
        inside = self._spread(covered, 0, extent)
        return bind(Op.registry["where"](), inside, self._spread(piece, 0, extent), base)

    def shifted(self, extent: int) -> Op:
        return Unfold(self.axis + 1, self.size, self.step)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Unfold(0, 3, 1), (ramp((6,), dtype),)),
            (Unfold(1, 2, 3), (ramp((2, 9, 3), dtype),)),
            (Unfold(0, 5, 2), (ramp((3, 10), dtype).T,)),
        ]


@record
class ViewUpdate(Structured):
    """``base`` where the elements that the chain of views shows are replaced by ``piece``."""

    keeps_order: ClassVar[bool] = True
    chain: tuple[Op, ...]
    node_class: ClassVar[str] = "CopySlices"

    def result_type(self, base: TensorType, piece: TensorType) -> TensorType:
        shown = base
        for op in self.chain:
            shown = op.result_type(shown)
        if shown != piece:
            raise ShapeError("view_update: the piece is not of the view's type", {"view": shown, "piece": piece})
        return base

    def eager(self, base: Ndarray, piece: Ndarray) -> Ndarray:
        # in the base's own order, so that a reshape in the chain is a view again
        if base.flags.c_contiguous:
            result = base.copy()
        else:
            result = in_order_of([base], base.dtype)
            result[...] = base
        shown = result
        for op in self.chain:
            shown = op.eager(shown)
        if shown.flags.writeable and np.may_share_memory(result, shown):
            shown[...] = piece
            return result
        places = np.arange(base.size).reshape(base.shape)
        for op in self.chain:
            places = op.eager(places)
        flat = base.reshape(-1).copy()
        flat[places] = piece
        result[...] = flat.reshape(base.shape)
        return result

    def show(self, base: O) -> O:
        """The chain of views applied to a base."""
        for op in self.chain:
            base = bind(op, base)
        return base

    def expand(self, base: O, piece: O) -> Any:
        """The same result from ``unview`` of each view in turn: what the compiler lowers."""
        if not self.chain:
            return piece
        if any(map(_shows_twice, self.chain[:-1])) or (type(self.chain[-1]) is Unfold and _shows_twice(self.chain[-1])):
            return self._by_places(base, piece)
        bases = [base]
        for op in self.chain[:-1]:
            bases.append(bind(op, bases[-1]))
        for op, within in zip(reversed(self.chain), reversed(bases), strict=True):
            piece = cast(View, op).unview(within, piece)
        return piece

    def _by_places(self, base: O, piece: O) -> O:
        """The same where a part of an expanded tensor is written: which of the elements that show one place it holds is
        not to be seen any more when the expansion is undone.
        """
        shape, flat = base.spec.shape, (base.spec.size,)
        places = reshape(self.show(reshape(iota(base, flat, 0), shape)), (piece.spec.size,))
        update: Any = Op.registry["index_update"]
        found = bind(update(0, "set"), reshape(base, flat), reshape(piece, places.spec.shape), places)
        return reshape(found, shape)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        piece = primals[1].spec
        return (lambda: bind(self, y_bar, y_bar._literal(0, piece)), lambda: self.show(y_bar))

    jvp = jointly_linear_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        base, piece = batch_all(args, batched)
        extent = base.spec.shape[0]
        shown, chain = base.spec.drop((0,)), list[Op]()
        for op in self.chain:
            if type(op) is BroadcastTo and len(op.shape) > shown.ndim:  # new axes come after that of the batch
                chain.append(Reshape((extent, *(1,) * (len(op.shape) - shown.ndim), *shown.shape)))
            chain.append(cast(View, op).shifted(extent))
            shown = op.result_type(shown)
        return bind(ViewUpdate(tuple(chain)), base, piece)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        rows = Slice((1, 0), (3, 4), (1, 1))
        return [
            (ViewUpdate((rows, Permute((1, 0)))), (ramp((3, 4), dtype), ramp((4, 2), dtype))),
            (ViewUpdate((Reshape((12,)), Slice((1,), (12,), (5,)))), (ramp((3, 4), dtype), ramp((3,), dtype))),
            (
                ViewUpdate((BroadcastTo((2, 3, 4)), Slice((1, 0, 0), (2, 3, 2), (1, 2, 1)))),
                (ramp((3, 4), dtype), ramp((1, 2, 2), dtype)),
            ),
            (ViewUpdate((rows, Diagonal(1, 0, 1))), (ramp((3, 4), dtype), ramp((2,), dtype))),
            (ViewUpdate((Unfold(1, 1, 2),)), (ramp((3, 4), dtype), ramp((3, 2, 1), dtype))),
        ]


def _shows_twice(op: Op) -> bool:
    """Whether a view may show one element at several places."""
    return op.name in ("broadcast_to", "as_strided") or (type(op) is Unfold and op.size > op.step)


def diagonal(x: O, offset: int = 0, axis1: int = 0, axis2: int = 1) -> O:
    """The diagonal of two axes as a new last axis: ``f[..., m, n] -> f[..., min]``; ``offset`` > 0 is above."""
    first, second = (normalize_axis(axis, x.spec.ndim, "diagonal") for axis in (axis1, axis2))
    if first == second:
        raise ShapeError(f"diagonal dimensions cannot be identical {axis1}, {axis2}", {"x": x})
    return bind(Diagonal(offset, first, second), x)


def unfold(x: O, axis: int, size: int, step: int) -> O:
    """Windows of ``size`` every ``step`` elements along ``axis``; the window becomes the last axis."""
    flat = reshape(x, (1,)) if x.spec.ndim == 0 else x
    return bind(Unfold(normalize_axis(axis, flat.spec.ndim, "unfold"), size, step), flat)
