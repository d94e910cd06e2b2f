"""Reading elements at run-time positions: gather, index_select, and NumPy's integer-array indexing.

Operands are ``(x, *indices)``, indices int64. One rule for all of them, eager and compiled: a negative index counts
from the end (once), anything outside raises IndexOutOfRangeError. The transposes are in ``scatter.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, dtype_of_numpy, int64
from autojit.core.errors import DTypeError, IndexOutOfRangeError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import seems_equal
from autojit.core.types import Shape, TensorType
from autojit.ir.index import Index
from autojit.ir.op import Ndarray, O, Op, Operands, bind, linear_jvp
from autojit.ops.base import Structured, broadcast_shapes, normalize_axis
from autojit.ops.by_name import apply
from autojit.ops.refused_values import refused_facts
from autojit.ops.samples import Samples, positions, ramp
from autojit.ops.shape import batch_all, broadcast_to, permute, reshape
from autojit.ops.sources import iota

__all__ = [
    "Gather", "GatherNd", "Gathering", "IndexSelect", "embedding", "gather", "gather_nd", "index_select", "take",
    "take_along_axis",
]  # fmt: skip

# fetch(operand number, position in it, extent): its element there, wrapped into [0, extent), as a run-time index
Fetch = Callable[[int, tuple[Index, ...], int], Index]


class Gathering(Op, abstract=True):
    """Result element = one element of the first operand, at a place read from the index operands. Linear in it.

    Pointwise for code generation: ``source_index_at`` states the map as ``Reindex.source_index`` does, with ``fetch``
    for the run-time part.
    """

    looks_up: ClassVar[bool] = True
    transposed: ClassVar[str]  # the name of the op that adds up where this one looks

    def source_index_at(self, index: tuple[Index, ...], types: Sequence[TensorType], fetch: Fetch) -> tuple[Index, ...]:
        raise NotImplementedError(self.name)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        x, *indices = primals
        zero, given = x.spec, {**dict(self.parameters()), "combine": "add"}
        x_bar = lambda: apply(self.transposed, y_bar._literal(0, zero), y_bar, *indices, **given)
        return (x_bar, *(None for _ in indices))

    jvp = linear_jvp


@record
class AlongAxis(Gathering, abstract=True):
    """Looks up along one axis, by one index operand."""

    axis: int
    operand_names: ClassVar[tuple[str, ...]] = ("self", "index")

    def position(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """Where in the index operand the place for an element of the result is."""
        raise NotImplementedError(self.name)

    def source_index_at(self, index: tuple[Index, ...], types: Sequence[TensorType], fetch: Fetch) -> tuple[Index, ...]:
        place = fetch(1, self.position(index), types[0].shape[self.axis])
        return (*index[: self.axis], place, *index[self.axis + 1 :])

    def look_ups(self, *types: TensorType) -> Sequence[tuple[int, int, int]]:
        return ((1, self.axis, types[0].shape[self.axis]),)


FEW = 4096  # places; NumPy's function makes its own of them every time, in 5 us, and in less than what follows of more


@lru_cache(maxsize=256)
def places_beside(shape: tuple[int, ...], axis: int) -> tuple[list[Ndarray], list[Ndarray]]:
    """Where each element is on the axes before and after one, to be broadcast with an index operand of the shape."""
    grid = [np.arange(n).reshape((n, *(1,) * (len(shape) - 1 - a))) for a, n in enumerate(shape)]
    return grid[:axis], grid[axis + 1 :]


class Gather(AlongAxis):
    """``y[i.., j, k..] = x[i.., index[i.., j, k..], k..]`` with ``index[i.., j, k..]`` on ``axis``: torch.gather."""

    transposed: ClassVar[str] = "scatter"

    def result_type(self, x: TensorType, index: TensorType) -> TensorType:
        require_index(self.name, index)
        check_aligned(self.name, x, index, self.axis)
        return x.with_shape(index.shape)

    def eager(self, x: Ndarray, index: Ndarray) -> Ndarray:
        try:
            if index.size < FEW and index.dtype.kind in "iu":
                before, after = places_beside(index.shape, self.axis)
                found: Ndarray = x[(*before, index, *after)]
            else:
                within = tuple(slice(None) if a == self.axis else slice(n) for a, n in enumerate(index.shape))
                found = np.take_along_axis(x[within], index, self.axis)
        except IndexError:
            raise out_of_range(self.name, index, self.axis, x.shape[self.axis]) from None
        if found.shape != index.shape:  # NumPy has broadcast it to an operand without elements
            given, at = (TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in (x, index))
            check_aligned(self.name, given, at, self.axis)
            return np.empty(index.shape, x.dtype)
        return found

    def position(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        return index

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Gather(self.axis + 1), *batch_all(args, batched))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Gather(1), (ramp((2, 3), dtype), positions([[2, 0, -1, 2], [1, 1, 0, -3]]))),
            (Gather(0), (ramp((3, 4), dtype).T[:, :2], positions([[3, 0], [-4, 1], [0, 0]]))),
            (Gather(0), (ramp((3, 2), dtype), positions([[2], [0]]))),
        ]


class IndexSelect(AlongAxis):
    """``y = x.take(index, axis)`` for a vector of positions: embedding rows are ``axis`` 0."""

    transposed: ClassVar[str] = "index_update"

    def result_type(self, x: TensorType, index: TensorType) -> TensorType:
        require_index(self.name, index)
        if index.ndim != 1:
            raise ShapeError("index_select(): Index is supposed to be a vector", {"index": index})
        return x.with_shape((*x.shape[: self.axis], index.shape[0], *x.shape[self.axis + 1 :]))

    def eager(self, x: Ndarray, index: Ndarray) -> Ndarray:
        extent = x.shape[self.axis]
        try:
            found = np.take(x, index, self.axis)
        except IndexError:
            raise out_of_range(self.name, index, self.axis, extent) from None
        if not found.size and ((index < -extent) | (index >= extent)).any():  # which NumPy does not look at then
            raise out_of_range(self.name, index, self.axis, extent)
        return found

    def position(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        return (index[self.axis],)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        x, index = args
        if batched == (True, False):
            return bind(IndexSelect(self.axis + 1), x, index)
        count, length = index.spec.shape
        if batched == (True, True):
            shape = (*x.spec.shape[: self.axis + 1], length, *x.spec.shape[self.axis + 2 :])
            return bind(Gather(self.axis + 1), x, along_axis(index, self.axis + 1, shape))
        picked = _in_one_row(self, x, index)
        shape = (*x.spec.shape[: self.axis], count, length, *x.spec.shape[self.axis + 1 :])
        order = [self.axis, *(a for a in range(len(shape)) if a != self.axis)]
        return permute(reshape(picked, shape), order)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (IndexSelect(0), (ramp((4, 3), dtype), positions([3, 0, 3, -2]))),
            (IndexSelect(1), (ramp((3, 4), dtype).T, positions([2, -3, 1]))),
            (IndexSelect(0), (ramp((4,), dtype), positions([]))),
        ]


@record
class GatherNd(Gathering):
    """``x[i1, .., ik]`` on the first k axes with k index operands, which broadcast among each other.

    Shapes: ``x (n1, .., nk, *rest)`` and indices that broadcast to ``s`` give ``(*s, *rest)``.
    """

    node_class: ClassVar[str] = "IndexBackward0"
    transposed: ClassVar[str] = "index_put"

    def result_type(self, x: TensorType, *indices: TensorType) -> TensorType:
        for index in indices:
            require_index(self.name, index)
        if not 1 <= len(indices) <= x.ndim:
            raise IndexOutOfRangeError(f"too many indices for tensor of dimension {x.ndim}", {"x": x})
        shape = broadcast_shapes(*(i.shape for i in indices), op="indexing")
        return x.with_shape((*shape, *x.shape[len(indices) :]))

    def eager(self, x: Ndarray, *indices: Ndarray) -> Ndarray:
        try:
            return np.asarray(x[indices])
        except IndexError:
            raise out_of_range_nd(self.name, x.shape, indices) from None

    def source_index_at(self, index: tuple[Index, ...], types: Sequence[TensorType], fetch: Fetch) -> tuple[Index, ...]:
        x, *indices = types
        rest = x.ndim - len(indices)
        front = index[: len(index) - rest]
        places = tuple(
            fetch(k + 1, broadcast_position(front, type_.shape), x.shape[k]) for k, type_ in enumerate(indices)
        )
        return (*places, *index[len(index) - rest :])

    def look_ups(self, *types: TensorType) -> Sequence[tuple[int, int, int]]:
        return tuple((k + 1, k, types[0].shape[k]) for k in range(len(types) - 1))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        x, *indices = args
        count = len(indices)
        if not any(batched[1:]):
            moved = permute(x, (*range(1, count + 1), 0, *range(count + 1, x.spec.ndim)))
            picked = bind(self, moved, *indices)
            place = picked.spec.ndim - (x.spec.ndim - count)
            return permute(picked, (place, *(a for a in range(picked.spec.ndim) if a != place)))
        aligned = align_batched(indices, batched[1:])
        if not batched[0]:
            return bind(self, x, *aligned)
        return bind(self, x, batch_positions(x, aligned), *aligned)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (GatherNd(), (ramp((3, 4, 2), dtype), positions([[0, 2], [-1, 1]]), positions([[3, 0]]))),
            (GatherNd(), (ramp((4, 3), dtype).T, positions([2, 0, 2]))),
            (GatherNd(), (ramp((2, 3), dtype), positions([[0], [1]]), positions([0, -1]))),
        ]


class Picking(Structured, abstract=True):
    """(some elements along ``axis``, their positions): chosen by their values, at places that do not move with them."""

    n_outputs: ClassVar[int] = 2
    result_names: ClassVar[tuple[str, ...]] = ("values", "indices")
    axis: int

    def vjp(self, primals: Operands, result: Operands, y_bar: Operands) -> Sequence[Any]:
        values_bar = y_bar[0]
        if values_bar is None:
            return (None,)
        zero = values_bar._literal(0, primals[0].spec)
        return (apply("scatter", zero, values_bar, result[1], axis=self.axis, combine="add"),)

    def jvp(self, primals: Operands, result: Operands, tangents: Operands) -> Any:
        (x_dot,) = tangents
        return (None if x_dot is None else bind(Gather(self.axis), x_dot, result[1]), None)


GATHER_ND = GatherNd()


def gather(x: O, axis: int, index: O) -> O:
    """torch.gather: pick along ``axis``; the result has the shape of ``index``, which may be shorter on other axes."""
    axis = normalize_axis(axis, x.spec.ndim, "gather")
    if index.spec.size == 0 and index.spec.ndim != x.spec.ndim:
        return take(x, index)  # nothing is picked, so the shapes need not fit
    if x.spec.ndim == 0 or index.spec.ndim == 0:
        flat = bind(Gather(0), _at_least_1d(x), _at_least_1d(index))
        return reshape(flat, index.spec.shape)
    check_aligned("gather", x.spec, index.spec, axis)  # NumPy broadcasts
    return bind(Gather(axis), x, index)


def take_along_axis(x: O, index: O, axis: int | None = None) -> O:
    """torch.take_along_dim: ``gather`` with broadcasting on the other axes; ``axis`` None flattens both."""
    if axis is None:
        try:
            return gather(reshape(x, (-1,)), 0, reshape(index, (-1,)))
        except IndexOutOfRangeError as error:
            raise error.of_shape(index.spec.shape) from None
    axis = normalize_axis(axis, x.spec.ndim, "take_along_dim")
    if x.spec.ndim != index.spec.ndim:
        raise ShapeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions",
            {"x": x, "indices": index},
        )
    x_shape, index_shape = list(x.spec.shape), list(index.spec.shape)
    x_shape[axis] = index_shape[axis] = 1
    shape = list(broadcast_shapes(tuple(x_shape), tuple(index_shape), op="take_along_dim"))
    x_shape = [*shape[:axis], x.spec.shape[axis], *shape[axis + 1 :]]
    index_shape = [*shape[:axis], index.spec.shape[axis], *shape[axis + 1 :]]
    return bind(Gather(axis), broadcast_to(x, x_shape), broadcast_to(index, index_shape))


def index_select(x: O, axis: int, index: O) -> O:
    """torch.index_select: the slices of ``x`` at the positions of a vector (or scalar) ``index``."""
    axis = normalize_axis(axis, x.spec.ndim, "index_select")
    if x.spec.ndim == 0:
        return reshape(bind(IndexSelect(0), _at_least_1d(x), _at_least_1d(index)), ())
    return bind(IndexSelect(axis), x, _at_least_1d(index))


def embedding(weight: O, index: O) -> O:
    """Rows of a table: ``f[n, d], i64[*s] -> f[*s, d]``."""
    rows = bind(IndexSelect(0), weight, reshape(index, (-1,)))
    return reshape(rows, (*index.spec.shape, *weight.spec.shape[1:]))


def gather_nd(x: O, *indices: O) -> O:
    """``x[i1, .., ik]`` with integer arrays on the leading axes."""
    return bind(GATHER_ND, x, *indices)


def take(x: O, index: O) -> O:
    """torch.take: elements of the flattened operand, in the shape of ``index``."""
    flat = reshape(x, (x.spec.size,))
    return reshape(_in_one_row(IndexSelect(0), flat, index), index.spec.shape)


def _in_one_row(op: IndexSelect, x: O, index: O) -> O:
    """A look-up by the elements of an index of any shape; an error is about the index as it is."""
    try:
        return bind(op, x, reshape(index, (index.spec.size,)))
    except IndexOutOfRangeError as error:
        raise error.of_shape(index.spec.shape) from None


def require_index(op: str, index: TensorType) -> None:
    """Raise DTypeError unless an index operand is int64."""
    if index.dtype is not int64:
        raise DTypeError(f"{op}(): Expected dtype int64 for index", {"index": index}, "convert it with .long()")


def check_aligned(op: str, x: TensorType, index: TensorType, axis: int) -> None:
    """Raise ShapeError unless ``index`` fits ``x`` on every axis but ``axis``."""
    if x.ndim != index.ndim:
        raise ShapeError(
            f"{op}(): Index tensor must have the same number of dimensions as input tensor", {"x": x, "index": index}
        )
    if not seems_equal(index.size, 0) and any(
        n > m for a, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if a != axis
    ):
        raise ShapeError(
            f"{op}(): Size does not match: index must not exceed the operand apart from dimension {axis}",
            {"x": x, "index": index},
        )


FROM_THE_FRONT = 1 << 62
"""Taken from a negative index by functions that do not count from the end: no table has a place for what is left, and
the error can still name the index that the user gave."""


def out_of_range(op: str, index: Ndarray, axis: int, extent: int) -> IndexOutOfRangeError:
    """The error naming the first bad entry of an index along an axis of ``extent``, its position and what is valid."""
    bad = (index < -extent) | (index >= extent)
    position = tuple(np.argwhere(bad)[0].tolist()) if bad.any() else ()
    worst = int(index[position]) if bad.any() else 0
    worst += FROM_THE_FRONT if worst < -FROM_THE_FRONT // 2 else 0
    facts = refused_facts(bad, "the index", f"0 to {extent - 1}" if extent else "none, the dimension is empty")
    if not extent:
        return IndexOutOfRangeError(f"index {worst} is out of bounds for dimension with size 0: {axis}", facts, op=op)
    return IndexOutOfRangeError(f"index {worst} is out of bounds for dimension {axis} with size {extent}", facts, op=op)


def out_of_range_nd(op: str, shape: Shape, indices: Sequence[Ndarray]) -> IndexOutOfRangeError:
    """The same for several indices on leading axes."""
    for axis, index in enumerate(indices):
        if np.any((index < -shape[axis]) | (index >= shape[axis])):
            return out_of_range(op, np.asarray(index), axis, shape[axis])
    raise AssertionError("no index is out of range")


def broadcast_position(position: tuple[Index, ...], shape: Shape) -> tuple[Index, ...]:
    """The position in an operand of ``shape`` that broadcasts to a result at ``position``."""
    aligned = position[len(position) - len(shape) :] if shape else ()
    return tuple(Index() if n == 1 else i for i, n in zip(aligned, shape, strict=True))


def along_axis(index: O, axis: int, shape: Shape) -> O:
    """A batch of vectors ``(b, k)`` laid along ``axis`` of ``shape`` (whose axis 0 is the batch) and repeated."""
    spread = [1] * len(shape)
    spread[0], spread[axis] = index.spec.shape
    return broadcast_to(reshape(index, spread), shape)


def align_batched(indices: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Indices with a batch axis get axes of extent 1 behind it until all broadcast with the batch in front."""
    rank = max(i.spec.ndim - flag for i, flag in zip(indices, batched, strict=True))
    aligned: list[Any] = []
    for index, flag in zip(indices, batched, strict=True):
        if not flag:
            aligned.append(index)
            continue
        extent, *rest = index.spec.shape
        aligned.append(reshape(index, (extent, *(1,) * (rank - len(rest)), *rest)))
    return aligned


def batch_positions(x: O, indices: Sequence[Any]) -> O:
    """0, 1, .. along the batch axis, shaped to broadcast with ``indices``: the index of the batch axis itself."""
    extent = x.spec.shape[0]
    rank = max(i.spec.ndim for i in indices)
    return iota(x, (extent, *(1,) * (rank - 1)))


def _at_least_1d(x: O) -> O:
    return reshape(x, (1,)) if x.spec.ndim == 0 else x
