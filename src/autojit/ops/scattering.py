"""Writing elements at run-time positions: the transposes of ``indexing.py``.

Operands of every op here are ``(base, src, *indices)``; ``combine`` says what happens to the element that is there:
"set" replaces it (which of several writers wins is undefined, as in torch), "add" adds, "mul" multiplies, "max" and
"min" keep the extreme (NaN wins).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bfloat16, float16
from autojit.core.errors import ArgumentError, DTypeError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import fit_together, surely_equal
from autojit.core.types import Shape, TensorType
from autojit.ir.index import Index
from autojit.ir.op import Ndarray, O, Operand, Operands, bind
from autojit.ops.base import Structured, is_expandable, normalize_axis
from autojit.ops.indexing import (
    GATHER_ND,
    Fetch,
    Gather,
    Gathering,
    IndexSelect,
    align_batched,
    along_axis,
    batch_positions,
    check_aligned,
    out_of_range,
    require_index,
)  # fmt: skip
from autojit.ops.samples import Samples, draws, positions, ramp
from autojit.ops.scatter_folds import fold_jvp, fold_vjp
from autojit.ops.shape import batch_all, broadcast_to, jointly_linear_jvp, permute, reshape, strided_slice

__all__ = [
    "IndexPut", "IndexUpdate", "Scatter", "Scattering", "index_add", "index_copy", "index_fold", "index_put", "scatter",
    "scatter_add", "scatter_fold",
]  # fmt: skip

_HALVES = (float16.numpy, bfloat16.numpy)
_FOLDS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
COMBINES = ("set", *_FOLDS)
_LINEAR = ("set", "add")


class Scattering(Structured, abstract=True):
    """``base`` with elements of ``src`` written or folded in at run-time places. "set" and "add" are linear in both."""

    looks_up: ClassVar[bool] = True
    combine: str

    def gathering(self) -> Gathering:
        """The op that reads the places this one writes."""
        raise NotImplementedError(self.name)

    def target_index_at(self, index: tuple[Index, ...], types: Sequence[TensorType], fetch: Fetch) -> tuple[Index, ...]:
        """Where in the base the element ``src[index]`` goes; ``fetch`` as in ``Gathering``."""
        base, _, *indices = types
        return self.gathering().source_index_at(
            index, (base, *indices), lambda number, position, extent: fetch(number + 1, position, extent)
        )

    def look_ups(self, *types: TensorType) -> Sequence[tuple[int, int, int]]:
        base, _, *indices = types
        return [(place + 1, axis, extent) for place, axis, extent in self.gathering().look_ups(base, *indices)]

    def _check(self, base: TensorType, src: TensorType, shape: Shape) -> TensorType:
        if self.combine not in COMBINES:
            raise ArgumentError(f"{self.name}: combine must be one of {COMBINES}, not {self.combine!r}")
        if base.dtype is not src.dtype:
            raise DTypeError(f"{self.name}(): Expected self.dtype to be equal to src.dtype", {"self": base, "src": src})
        if not fit_together(src.shape, shape):
            raise ShapeError(f"{self.name}: src must have shape {list(shape)}", {"base": base, "src": src})
        return base

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        _, src, *indices = primals
        if self.combine not in _LINEAR:
            return fold_vjp(self, primals, result, y_bar)
        zero = src.spec

        def base_bar() -> Any:
            return y_bar if self.combine == "add" else bind(self, y_bar, y_bar._literal(0, zero), *indices)

        return (base_bar, lambda: bind(self.gathering(), y_bar, *indices), *(None for _ in indices))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        if self.combine not in _LINEAR:
            return fold_jvp(self, primals, result, tangents)
        return jointly_linear_jvp(self, primals[:2], result, tangents[:2], primals[2:])


@record
class Scatter(Scattering):
    """``base[i.., index[i.., j, k..], k..] = or += src[i.., j, k..]``: torch.scatter, scatter_add."""

    axis: int
    combine: str
    operand_names: ClassVar[tuple[str, ...]] = ("self", "index", "src")

    def result_type(self, base: TensorType, src: TensorType, index: TensorType) -> TensorType:
        require_index(self.name, index)
        check_aligned(self.name, base, index, self.axis)
        return self._check(base, src, index.shape)

    def eager(self, base: Ndarray, src: Ndarray, index: Ndarray) -> Ndarray:
        after = range(index.ndim)[::-1]
        places = [np.arange(n).reshape(-1, *(1,) * k) for n, k in zip(index.shape, after, strict=True)]
        places[self.axis] = wrapped(self.name, index, self.axis, base.shape[self.axis])
        return write(base, tuple(places), src, self.combine)

    def gathering(self) -> Gathering:
        return Gather(self.axis)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Scatter(self.axis + 1, self.combine), *batch_all(args, batched))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        base, src = ramp((3, 4), dtype), ramp((2, 3), dtype)
        return [
            (Scatter(0, "add"), (base, src, positions([[2, 0, 1], [2, 2, -2]]))),
            (Scatter(1, "add"), (base.T[:, :2], ramp((3, 3), dtype)[:, :2], positions([[0, 1], [1, 1], [0, 0]]))),
            (Scatter(0, "set"), (base, src, positions([[2, 0, 1], [0, 1, -1]]))),
            *_fold_samples(Scatter, dtype, (2, 3), positions([[2, 0, 1], [2, 2, -2]])),
        ]


@record
class IndexUpdate(Scattering):
    """``base.select(axis, index[j]) = or += src.select(axis, j)``: torch.index_copy, index_add."""

    axis: int
    combine: str
    node_class: ClassVar[str] = "IndexPutBackward0"

    def result_type(self, base: TensorType, src: TensorType, index: TensorType) -> TensorType:
        require_index(self.name, index)
        if index.ndim != 1:
            raise ShapeError(f"{self.name}(): Index is supposed to be a vector", {"index": index})
        return self._check(base, src, (*base.shape[: self.axis], *index.shape, *base.shape[self.axis + 1 :]))

    def eager(self, base: Ndarray, src: Ndarray, index: Ndarray) -> Ndarray:
        places = wrapped(self.name, index, self.axis, base.shape[self.axis])
        return write(base, (*(slice(None) for _ in range(self.axis)), places), src, self.combine)

    def gathering(self) -> Gathering:
        return IndexSelect(self.axis)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        if not batched[2]:
            base, src = batch_all(args[:2], batched[:2])
            return bind(IndexUpdate(self.axis + 1, self.combine), base, src, args[2])
        base, src, index = batch_all(args, batched)
        return bind(Scatter(self.axis + 1, self.combine), base, src, along_axis(index, self.axis + 1, src.spec.shape))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        base = ramp((4, 3), dtype)
        return [
            (IndexUpdate(0, "add"), (base, ramp((3, 3), dtype), positions([3, 0, 3]))),
            (IndexUpdate(1, "add"), (base, ramp((4, 2), dtype), positions([-1, 1]))),
            (IndexUpdate(0, "set"), (base, ramp((3, 3), dtype), positions([3, 0, -2]))),
            (IndexUpdate(0, "add"), (base, ramp((0, 3), dtype), positions([]))),
            *_fold_samples(IndexUpdate, dtype, (3, 4), positions([2, 0, 2])),
        ]


def _fold_samples(op: type[Any], dtype: DType, shape: Shape, index: Any) -> Samples:
    if dtype.is_complex or dtype.kind == "bool":
        return []
    base, src = draws((3, 4), dtype, 3), draws(shape, dtype, 4)
    return [(op(0, combine), (base, src, index)) for combine in ("mul", "max", "min")]


@record
class IndexPut(Scattering):
    """``base[i1, .., ik] = or += src`` on the first k axes; ``src`` has the shape ``GatherNd`` would give."""

    combine: str

    def result_type(self, base: TensorType, src: TensorType, *indices: TensorType) -> TensorType:
        shape = GATHER_ND.result_type(base, *indices).shape
        return self._check(base, src, shape)

    def eager(self, base: Ndarray, src: Ndarray, *indices: Ndarray) -> Ndarray:
        places = tuple(wrapped(self.name, i, axis, base.shape[axis]) for axis, i in enumerate(indices))
        return write(base, places, src, self.combine)

    def gathering(self) -> Gathering:
        return GATHER_ND

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        base, src = batch_all(args[:2], batched[:2]) if any(batched[:2]) else (None, None)
        indices = args[2:]
        if any(batched[2:]):
            aligned = align_batched(indices, batched[2:])
            extent = next(i.spec.shape[0] for i, flag in zip(indices, batched[2:], strict=True) if flag)
            base, src = (
                a if flag else broadcast_to(a, (extent, *a.spec.shape))
                for a, flag in zip(args[:2], batched[:2], strict=True)
            )
            return bind(self, base, src, batch_positions(base, aligned), *aligned)
        assert base is not None and src is not None
        count = len(indices)
        index_rank = src.spec.ndim - (base.spec.ndim - count)
        moved_base = permute(base, (*range(1, count + 1), 0, *range(count + 1, base.spec.ndim)))
        moved_src = permute(src, (*range(1, index_rank + 1), 0, *range(index_rank + 1, src.spec.ndim)))
        written = bind(self, moved_base, moved_src, *indices)
        return permute(written, (count, *(a for a in range(written.spec.ndim) if a != count)))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        base = ramp((3, 4), dtype)
        rows, columns = positions([0, 2, 0]), positions([3, -1, 3])
        return [
            (IndexPut("add"), (base, ramp((3,), dtype), rows, columns)),
            (IndexPut("add"), (base, ramp((3, 4), dtype), rows)),
            (IndexPut("set"), (base, ramp((2, 2), dtype), positions([[0], [2]]), positions([1, 3]))),
        ]


def wrapped(op: str, index: Ndarray, axis: int, extent: int) -> Ndarray:
    """The index with negative entries counted from the end; IndexOutOfRangeError if any is outside."""
    if index.size == 0:
        return index
    low = int(index.min())
    if low < -extent or int(index.max()) >= extent:
        raise out_of_range(op, index, axis, extent)
    return np.where(index < 0, index + extent, index) if low < 0 else index


def write(base: Ndarray, places: tuple[Any, ...], src: Ndarray, combine: str) -> Ndarray:
    """A copy of ``base`` with ``src`` set or folded in at ``places`` (a NumPy index)."""
    if combine == "set":
        result = base.copy()
        result[places] = src
        return result
    if base.dtype in _HALVES:  # one rounding per element, not one per addition
        return write(base.astype(np.float32), places, src.astype(np.float32), combine).astype(base.dtype)
    result = base.copy()
    if combine == "add" and len(places) == 1 and src.ndim > 1 and places[0].ndim == 1 and src.size:
        _add_rows(result, places[0], src)
    else:
        _FOLDS[combine].at(result, places, src)
    return result


def _add_rows(target: Ndarray, index: Ndarray, rows: Ndarray) -> None:
    """``target[index[i]] += rows[i]``: rows of equal index summed in runs, 10x faster than ``np.add.at`` on rows."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    target[ordered[starts]] += np.add.reduceat(rows[order], starts, axis=0, dtype=rows.dtype)


def scatter(base: O, axis: int, index: O, src: O) -> O:
    """torch.scatter: ``base`` with ``src`` written along ``axis`` at ``index``; ``src`` may exceed ``index``."""
    return scatter_fold(base, axis, index, src, "set")


def scatter_add(base: O, axis: int, index: O, src: O) -> O:
    """torch.scatter_add: equal places add up."""
    return scatter_fold(base, axis, index, src, "add")


def index_fold(base: O, axis: int, index: O, src: O, combine: str) -> O:
    """``index_add`` with another fold: "mul", "max" or "min"."""
    return _update_slices(base, normalize_axis(axis, base.spec.ndim, "index_reduce"), index, src, combine)


def scatter_fold(base: O, axis: int, index: O, src: O, combine: str) -> O:
    """``scatter`` that folds: "add", "mul", "max" or "min"."""
    axis = normalize_axis(axis, base.spec.ndim, "scatter")
    if base.spec.ndim == 1:
        index, src = (reshape(x, (1,)) if x.spec.ndim == 0 else x for x in (index, src))
    if any(surely_equal(n, 0) for n in index.spec.shape):
        return _unchanged(base, axis, index, src, combine)
    if base.spec.ndim == 0:
        line, places = reshape(base, (1,)), reshape(index, (1,))
        return reshape(bind(Scatter(0, combine), line, reshape(src, (1,)), places), ())
    if src.spec.ndim != index.spec.ndim:
        raise ShapeError(
            "scatter(): Index tensor must have the same number of dimensions as src tensor",
            {"index": index, "src": src},
        )
    if any(n > m for n, m in zip(index.spec.shape, src.spec.shape, strict=True)):
        raise ShapeError("scatter(): Expected index to be no larger than src", {"index": index, "src": src})
    is_whole = surely_equal(src.spec.shape, index.spec.shape)
    used = src if is_whole else strided_slice(src, [0] * src.spec.ndim, index.spec.shape)
    return bind(Scatter(axis, combine), base, used, index)


def _unchanged(base: O, axis: int, index: O, src: O, combine: str) -> O:
    """A scatter of an index without elements: its other extents, and those of ``src``, mean nothing."""
    line = base if base.spec.ndim else reshape(base, (1,))
    shape = (*line.spec.shape[:axis], 0, *line.spec.shape[axis + 1 :])
    none = strided_slice(reshape(src, (src.spec.size,)), (0,), (0,))
    found = bind(Scatter(axis, combine), line, reshape(none, shape), reshape(index, shape))
    return found if base.spec.ndim else reshape(found, ())


def index_add(base: O, axis: int, index: O, src: O) -> O:
    """torch.index_add with alpha 1: slice ``j`` of ``src`` added to slice ``index[j]`` of ``base``."""
    return _update_slices(base, normalize_axis(axis, base.spec.ndim, "index_add"), index, src, "add")


def index_copy(base: O, axis: int, index: O, src: O) -> O:
    """torch.index_copy: slice ``j`` of ``src`` replaces slice ``index[j]`` of ``base``."""
    return _update_slices(base, normalize_axis(axis, base.spec.ndim, "index_copy"), index, src, "set")


def _update_slices(base: O, axis: int, index: O, src: O, combine: str) -> O:
    op = IndexUpdate(axis, combine)
    index = reshape(index, (1,)) if index.spec.ndim == 0 else index
    op.result_type(base.spec, src.spec, index.spec)  # NumPy would broadcast a source that does not fit
    return bind(op, base, src, index)


def index_put(base: O, indices: Sequence[Operand], src: O, accumulate: bool = False) -> O:
    """``base[indices] = src`` (or ``+=``) on the leading axes; ``src`` broadcasts."""
    shape = GATHER_ND.result_type(base.spec, *(i.spec for i in indices)).shape
    if not is_expandable(src.spec.shape, shape):
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(src.spec.shape)} cannot be broadcast to indexing result of "
            f"shape {list(shape)}",
            {"base": base, "value": src},
        )
    return bind(IndexPut("add" if accumulate else "set"), base, broadcast_to(src, shape), *indices)
