"""Sorting and searching."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autojit.core.dtypes import DType, bfloat16, bool_, float16, int64
from autojit.core.errors import DTypeError, IndexOutOfRangeError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import seems_equal
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, bind_all, not_differentiable
from autojit.ops.base import Structured, normalize_axis
from autojit.ops.by_name import apply
from autojit.ops.elementwise_arithmetic import where
from autojit.ops.elementwise_logic import ne
from autojit.ops.indexing import Gather, Picking
from autojit.ops.joining import one_by_one, select
from autojit.ops.samples import Samples, draws, ramp
from autojit.ops.shape import batch_all, reshape

if TYPE_CHECKING:
    pass

__all__ = [
    "RowOrder", "Searchsorted", "Sort", "argsort", "kthvalue", "median", "msort", "row_order", "searchsorted", "sort",
    "topk",
]  # fmt: skip

HALVES = (float16.numpy, bfloat16.numpy)
_BLOCK = 32  # elements of which the extreme is found at once
_SHORT_LINE = 256  # below, sorting all lines at once beats selecting in each


@record
class Sort(Picking):
    """(values, positions) in order along ``axis``; equal elements keep their order; NaN counts as greatest.

    With ``ranks``, only places start .. stop - 1 of that order: what a selection finds without sorting the rest.
    """

    axis: int
    descending: bool
    ranks: tuple[int, int] | None = None

    def result_type(self, x: TensorType) -> tuple[TensorType, TensorType]:
        if x.dtype.is_complex:
            raise DTypeError("Sort currently does not support complex dtypes on CPU", {"x": x})
        if self.ranks is not None:
            kept = self.ranks[1] - self.ranks[0]
            x = x.with_shape((*x.shape[: self.axis], kept, *x.shape[self.axis + 1 :]))
        return x, x.with_dtype(int64)

    def eager(self, x: Ndarray) -> tuple[Ndarray, Ndarray]:
        if self.ranks is not None:
            start, stop = self.ranks
            few = self.first_few(x)
            if few is not None:
                return few
            if stop > start and x.shape[self.axis] >= max(_SHORT_LINE, 4 * (stop - start)):
                order = _selected(x, self.axis, self.descending, start, stop)
                return np.take_along_axis(x, order, self.axis), order
            return self.piece_of(Sort(self.axis, self.descending).eager(x))
        keys = x.astype(np.float32) if x.dtype in HALVES else x
        if self.descending:  # the reverse of a stable sort of the reversed keys is stable, NaN first
            order = np.argsort(np.flip(keys, self.axis), self.axis, kind="stable")
            order = keys.shape[self.axis] - 1 - np.flip(order, self.axis)
        else:
            order = np.argsort(keys, self.axis, kind="stable")
        return np.take_along_axis(x, order, self.axis), order

    def first_few(self, x: Ndarray) -> tuple[Ndarray, Ndarray] | None:
        """The result by looking at few elements more than once; None: the ranks or the elements do not allow it."""
        assert self.ranks is not None
        start, stop = self.ranks
        few = _first_few(x, self.descending, start, stop) if x.ndim == 1 and stop > start else None
        return None if few is None else (x[few], few)

    def piece_of(self, whole: tuple[Ndarray, Ndarray]) -> tuple[Ndarray, Ndarray]:
        """The places of ``ranks`` in the whole order."""
        assert self.ranks is not None
        piece = (slice(None),) * self.axis + (slice(*self.ranks),)
        return whole[0][piece].copy(), whole[1][piece].copy()

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Sort(self.axis + 1, self.descending, self.ranks), args[0])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.is_complex:
            return []
        return [
            (Sort(1, False), (draws((2, 5), dtype),)),
            (Sort(0, True), (draws((2, 5), dtype, 1).T,)),
            (Sort(0, True), (draws((0,), dtype),)),
            (Sort(1, True, (0, 2)), (draws((2, 5), dtype),)),
        ]


def _sort_keys(x: Ndarray) -> Ndarray:
    """Integers in the order of the elements, NaN greatest, both zeros equal."""
    if x.dtype.kind in "iu":
        return x
    if x.dtype.kind == "b":
        return x.view(np.uint8)
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    integer: Any = np.int64 if wide.dtype == np.float64 else np.int32
    bits: Ndarray = (wide + wide.dtype.type(0)).view(integer)
    most = int(np.iinfo(integer).max)
    keys = bits ^ ((bits >> (bits.dtype.itemsize * 8 - 1)) & most)
    ordered: Ndarray = np.where(np.isnan(wide), integer(most), keys)
    return ordered


def _first_few(line: Ndarray, descending: bool, start: int, stop: int) -> Ndarray | None:
    """Places start .. stop - 1 of the stable order where few are asked for; None: they are not, or there are NaNs.

    The first ``stop`` of the blocks' extremes bound what is asked for, which leaves few candidates.
    """
    blocks = len(line) // _BLOCK
    if blocks < 4 * stop or line.dtype.kind not in "fiu":
        return None
    whole = line[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    if descending:
        extremes = np.maximum.reduce(whole, 1)
        bound = np.partition(extremes, blocks - stop)[blocks - stop]
        candidates = np.flatnonzero(line >= bound)
    else:
        extremes = np.minimum.reduce(whole, 1)
        bound = np.partition(extremes, stop - 1)[stop - 1]
        candidates = np.flatnonzero(line <= bound)
    if line.dtype.kind == "f" and (np.isnan(extremes).any() or np.isnan(line[blocks * _BLOCK :]).any()):
        return None
    keys = line[candidates]
    if descending:
        keys = -keys if line.dtype.kind == "f" else ~keys
    return candidates[np.argsort(keys, kind="stable")[start:stop]]


def _selected(x: Ndarray, axis: int, descending: bool, start: int, stop: int) -> Ndarray:
    """The positions of places start .. stop - 1 of the stable order along an axis, by partition."""
    keys = np.moveaxis(_sort_keys(x), axis, -1)
    lines = np.ascontiguousarray(keys).reshape(-1, keys.shape[-1])
    if descending:
        lines = ~lines  # reverses the order of integers; equal ones keep theirs
    found = np.empty((len(lines), stop - start), np.int64)
    for line, places in zip(lines, found, strict=True):
        last = np.partition(line, stop - 1)[stop - 1]
        first: int = 0
        wanted = line <= last
        if start:
            least = last if start == stop - 1 else np.partition(line, start)[start]
            first = start - int(np.count_nonzero(line < least))
            wanted &= line >= least
        candidates = np.flatnonzero(wanted)
        order = np.argsort(line[candidates], kind="stable")[first : first + stop - start]
        places[...] = candidates[order]
    return np.moveaxis(found.reshape(*keys.shape[:-1], stop - start), -1, axis)


@record
class Searchsorted(Structured):
    """Insertion places of ``values`` in ``sorted`` along the last axis; leading axes equal, or ``sorted`` a vector."""

    right: bool

    def result_type(self, sorted: TensorType, values: TensorType) -> TensorType:
        facts = {"boundaries": sorted, "values": values}
        if sorted.ndim != 1 and sorted.shape[:-1] != values.shape[:-1]:
            raise ShapeError(
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
                "boundaries tensor and input value tensor must match",
                facts,
            )
        if sorted.dtype is not values.dtype:
            what = "torch.searchsorted(): boundary tensor and input value tensor should have same dtype"
            raise DTypeError(what, facts)
        return values.with_dtype(int64)

    def eager(self, sorted: Ndarray, values: Ndarray) -> Ndarray:
        side: Literal["left", "right"] = "right" if self.right else "left"
        if sorted.dtype in HALVES:
            sorted, values = sorted.astype(np.float32), values.astype(np.float32)
        if sorted.ndim == 1:
            return np.asarray(np.searchsorted(sorted, values, side))
        lines = sorted.reshape(math.prod(sorted.shape[:-1]), sorted.shape[-1])
        wanted = values.reshape(len(lines), values.shape[-1])
        found = np.empty(wanted.shape, np.int64)
        for line, value, place in zip(lines, wanted, found, strict=True):
            place[...] = np.searchsorted(line, value, side)
        return found.reshape(values.shape)

    vjp = jvp = not_differentiable("a position is piecewise constant")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        sorted, values = args
        if not batched[0] and sorted.spec.ndim == 1:
            return bind(self, sorted, values)
        lines, wanted = batch_all(args, batched)
        if lines.spec.ndim == 2 and wanted.spec.ndim != 2:  # one line per example, values of any rank
            flat = bind(self, lines, reshape(wanted, (wanted.spec.shape[0], -1)))
            return reshape(flat, wanted.spec.shape)
        return bind(self, lines, wanted)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.is_complex or dtype is bool_:
            return []
        line = np.sort(ramp((6,), dtype).astype(np.float64)).astype(dtype.numpy)
        return [
            (Searchsorted(False), (line, draws((2, 3), dtype))),
            (Searchsorted(True), (np.stack([line, line]), draws((2, 3), dtype))),
        ]


@record
class RowOrder(Structured):
    """Positions of the rows of a matrix in lexicographic order: ``[n, m] -> i64[n]``; equal rows keep their order."""

    def result_type(self, x: TensorType) -> TensorType:
        if x.ndim != 2 or x.dtype.is_complex:
            raise ShapeError("row_order: the operand is no matrix of real numbers", {"x": x})
        return TensorType((x.shape[0],), int64, x.device)

    def eager(self, x: Ndarray) -> Ndarray:
        columns = [np.zeros(len(x), np.int8), *_sort_keys(x).T[::-1]]
        return np.lexsort(columns).astype(np.int64, copy=False)

    vjp = jvp = not_differentiable("positions are whole numbers")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return one_by_one(self, args, batched)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype.is_complex:
            return []
        rows = draws((4, 3), dtype)
        return [(RowOrder(), (np.concatenate([rows, rows[1:3]]),)), (RowOrder(), (draws((0, 2), dtype),))]


def sort(x: O, axis: int = -1, descending: bool = False, stable: bool = True) -> tuple[O, O]:
    """(values, positions) along ``axis``. Always stable, whatever ``stable`` says."""
    axis = normalize_axis(axis, x.spec.ndim, "sort")
    if x.spec.ndim == 0:
        values, places = sort(reshape(x, (1,)), 0, descending)
        return reshape(values, ()), reshape(places, ())
    values, places = bind_all(Sort(axis, descending), x)
    return values, places


def argsort(x: O, axis: int = -1, descending: bool = False, stable: bool = True) -> O:
    """The positions that ``sort`` gives."""
    return sort(x, axis, descending, stable)[1]


def topk(x: O, count: int, axis: int = -1, largest: bool = True) -> tuple[O, O]:
    """(values, positions) of the ``count`` largest or smallest along ``axis``, in order."""
    axis = normalize_axis(axis, x.spec.ndim, "topk")
    extent = x.spec.shape[axis] if x.spec.ndim else 1
    if not 0 <= count <= extent:
        raise ShapeError("selected index k out of range", {"x": x, "k": count})
    if x.spec.ndim == 0:
        return sort(x, axis, descending=largest)
    values, places = bind_all(Sort(axis, largest, (0, count)), x)
    return values, places


def _rank(x: O, axis: int, rank: int) -> tuple[O, O]:
    """(value, position) of one place of the ascending order along an axis, which goes away."""
    values, places = bind_all(Sort(axis, False, (rank, rank + 1)), x)
    return select(values, axis, 0), select(places, axis, 0)


def kthvalue(x: O, k: int, axis: int = -1) -> tuple[O, O]:
    """(value, position) of the k-th smallest along ``axis``, counted from 1; the axis goes away."""
    axis = normalize_axis(axis, x.spec.ndim, "kthvalue")
    extent = x.spec.shape[axis] if x.spec.ndim else 1
    if not 1 <= k <= extent:
        raise IndexOutOfRangeError(f"kthvalue(): selected number k out of range for dimension {axis}", {"x": x, "k": k})
    return sort(x, axis) if x.spec.ndim == 0 else _rank(x, axis, k - 1)


def median(x: O, axis: int) -> tuple[O, O]:
    """(lower median, its position) along ``axis``; NaN if there is one, as torch.median."""
    if x.spec.ndim == 0:
        return sort(x, axis)
    axis = normalize_axis(axis, x.spec.ndim, "median")
    extent = x.spec.shape[axis]
    if seems_equal(extent, 0):
        raise IndexOutOfRangeError("median(): Expected reduction dim to have non-zero size.", {"x": x, "axis": axis})
    middle = (extent - 1) // 2
    value, place = _rank(x, axis, middle)
    if not x.spec.dtype.is_floating_point:
        return value, place
    greatest = apply("argmax", x, axes=(axis,))  # a NaN where there is one
    top = _element(x, axis, greatest)
    place = where(ne(top, top), greatest, place)
    return _element(x, axis, place), place


def _element(x: O, axis: int, place: O) -> O:
    """The element at a position of an axis, which goes away."""
    shape = place.spec.shape
    index = reshape(place, (*shape[:axis], 1, *shape[axis:]))
    return reshape(bind(Gather(axis), x, index), shape)


def searchsorted(sorted: O, values: O, right: bool = False) -> O:
    """Where to insert ``values`` to keep ``sorted`` (along its last axis) in order: before or after equal ones."""
    if values.spec.ndim == 0 and sorted.spec.ndim == 1:
        return reshape(bind(Searchsorted(right), sorted, reshape(values, (1,))), ())
    return bind(Searchsorted(right), sorted, values)


def row_order(x: O) -> O:
    """The positions of a matrix's rows in lexicographic order."""
    return bind(RowOrder(), x)


def msort(x: O) -> O:
    """Values in order along the first axis."""
    return sort(x, 0)[0]
