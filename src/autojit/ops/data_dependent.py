"""Ops whose results have a shape that depends on the data: positions of non-zeros, distinct values, counts.

They exist in eager mode only; a captured step that indexes with a mask counts instead (``counted_positions.py``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, float32, float64
from autojit.core.errors import ShapeError, TraceError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, bind_all, not_differentiable
from autojit.ops.base import Structured, normalize_axis
from autojit.ops.by_name import apply
from autojit.ops.elementwise_arithmetic import cast
from autojit.ops.elementwise_base import Pointwise
from autojit.ops.indexing import gather_nd
from autojit.ops.samples import Samples
from autojit.ops.shape import broadcast_to, reshape
from autojit.ops.sorting import HALVES
from autojit.ops.sources import zeros

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Bincount", "DataDependent", "Nonzero", "Unique", "UniqueConsecutive", "UniqueValues", "bincount", "masked_select",
    "nonzero", "unique", "unique_consecutive",
]  # fmt: skip


@record
class DataDependent(Structured, abstract=True):
    """An op whose result shape depends on the data: eager only; under a trace the type rule says how to go on."""

    needs_elements: ClassVar[bool] = True
    remedy: ClassVar[str]

    def result_type(self, *types: TensorType) -> Any:
        raise TraceError(
            f"{self.name}: the shape of the result depends on the data, which a compiled step cannot hold",
            {f"operand {k}": t for k, t in enumerate(types)},
            self.remedy,
        )

    vjp = jvp = not_differentiable("the result holds positions or counts")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        raise ShapeError(f"{self.name}: examples of a batch would have results of different shapes", fix=self.remedy)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return []  # the laws go through graphs, which cannot hold these ops


class Nonzero(DataDependent):
    """Positions of the elements that are not zero: ``[...] -> i64[count, ndim]`` in row-major order."""

    remedy: ClassVar[str] = "use where(condition, x, y), or call it outside the compiled function"

    def eager(self, x: Ndarray) -> Ndarray:
        if x.ndim == 1:
            return np.flatnonzero(x).astype(np.int64, copy=False).reshape(-1, 1)
        return np.stack(np.nonzero(np.atleast_1d(x)), axis=1).astype(np.int64).reshape(-1, x.ndim)


class UniqueValues(Pointwise):
    """The operand: what ``unique`` has found. Its derivative is missing, as in torch."""

    ufunc = np.positive
    accepts: ClassVar[tuple[str, ...]] = ("float", "int", "uint", "bool")
    vjp = jvp = not_differentiable("it depends on which elements are equal", is_missing=True)

    def eager(self, *arrays: Ndarray) -> Ndarray:
        return arrays[0].copy()

    def lower(self, emit: Emitter[S], x: S) -> S:
        return x


@record
class Distinct(DataDependent, abstract=True):
    """Values, places of the elements among them, counts."""

    n_outputs: ClassVar[int] = 3
    remedy: ClassVar[str] = "call it outside the compiled function"
    axis: int | None

    vjp = not_differentiable("it depends on which elements are equal", is_missing=True)


class Unique(Distinct):
    """(sorted distinct values, place of each element among them, counts), of the flattened operand or along an axis."""

    def eager(self, x: Ndarray) -> tuple[Ndarray, Ndarray, Ndarray]:
        wide = x.astype(np.float32) if x.dtype in HALVES else x
        found = np.unique(wide, return_inverse=True, return_counts=True, axis=self.axis, equal_nan=False)
        values, places, counts = found
        shape = x.shape if self.axis is None else (-1,)
        return values.astype(x.dtype), places.reshape(shape).astype(np.int64), counts.astype(np.int64)


class UniqueConsecutive(Distinct):
    """``Unique`` without sorting: only neighbours are merged, in the flattened operand or slices along ``axis``."""

    def eager(self, x: Ndarray) -> tuple[Ndarray, Ndarray, Ndarray]:
        rows = x.reshape(-1) if self.axis is None else np.moveaxis(x, self.axis, 0)
        count = len(rows)
        differs = (rows[1:] != rows[:-1]).reshape(max(0, count - 1), math.prod(rows.shape[1:])).any(1)
        starts = np.concatenate((np.ones(min(1, count), np.bool_), differs))
        first = np.flatnonzero(starts)
        places = np.cumsum(starts) - 1
        values = rows[first] if self.axis is None else np.moveaxis(rows[first], 0, self.axis)
        places = places.reshape(x.shape) if self.axis is None else places
        return values, places.astype(np.int64), np.diff(np.append(first, count)).astype(np.int64)


@record
class Bincount(DataDependent):
    """How often 0, 1, 2, .. occur in a vector of non-negative integers; at least ``minimum`` long."""

    remedy: ClassVar[str] = "use zeros(n).index_add(0, x, ones), which has a fixed length"
    minimum: int

    def eager(self, x: Ndarray) -> Ndarray:
        if x.ndim != 1 or x.dtype.kind not in "iu" or (x.size and int(x.min()) < 0):
            raise ShapeError("bincount only supports 1-d non-negative integral inputs.")
        return np.bincount(x, minlength=self.minimum).astype(np.int64)


def nonzero(x: O) -> O:
    """Positions of the non-zero elements, one row each; eager only."""
    return bind(Nonzero(), x)


def masked_select(x: O, mask: O) -> O:
    """The elements where the mask holds, as a vector; operands broadcast. Differentiable in ``x``; eager only."""
    if x.spec.shape != mask.spec.shape:
        shape = np.broadcast_shapes(x.spec.shape, mask.spec.shape)
        x, mask = broadcast_to(x, shape), broadcast_to(mask, shape)
    if x.spec.ndim != 1:
        x, mask = reshape(x, (x.spec.size,)), reshape(mask, (mask.spec.size,))
    places = nonzero(mask)
    return gather_nd(x, reshape(places, places.spec.shape[:1]))


def unique(x: O, axis: int | None = None) -> tuple[O, O, O]:
    """(distinct values in order, inverse, counts); eager only."""
    axis = None if axis is None else normalize_axis(axis, x.spec.ndim, "unique")
    values, places, counts = bind_all(Unique(axis), x)
    return values, places, counts


def unique_consecutive(x: O, axis: int | None = None) -> tuple[O, O, O]:
    """(values or slices without repeated neighbours, inverse, counts); eager only."""
    axis = None if axis is None else normalize_axis(axis, x.spec.ndim, "unique_consecutive")
    values, places, counts = bind_all(UniqueConsecutive(axis), x)
    return values, places, counts


def bincount(x: O, weights: O | None = None, minimum: int = 0) -> O:
    """Counts (or sums of weights) per value of a vector of non-negative integers; eager only."""
    counts = bind(Bincount(minimum), x)
    if weights is None:
        return counts
    if weights.spec.dtype not in (float32, float64):
        weights = cast(weights, float64)
    return apply("index_update", zeros(weights, counts.spec.shape), weights, x, axis=0, combine="add")
