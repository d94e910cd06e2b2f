"""Concatenation, and the shape functions composed of reindexing ops: stack, split, tile, roll, moveaxis, ..."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, AxisError, DTypeError, IndexOutOfRangeError, ShapeError
from autojit.core.records import record
from autojit.core.sizes import agree, agree_on, is_symbolic, size_max, size_min
from autojit.core.types import TensorType
from autojit.ir.op import Ndarray, O, Op, Operand, Operands, bind
from autojit.ops.base import Structured, normalize_axes, normalize_axis
from autojit.ops.samples import Samples, ramp
from autojit.ops.shape import Slice, batch_all, broadcast_to, jointly_linear_jvp, permute, reshape, slice_axis

__all__ = [
    "Concatenate", "chunk", "concatenate", "expand", "flatten", "moveaxis", "narrow", "repeat", "repeat_interleave",
    "roll", "select", "split", "squeeze", "stack", "tensor_split", "tile", "transpose", "unbind", "unflatten",
    "unsqueeze",
]  # fmt: skip


@record
class Concatenate(Structured):
    """Operands one after the other along ``axis``; equal extents elsewhere, equal dtypes."""

    masks_cotangents: ClassVar[bool] = False
    axis: int
    node_class: ClassVar[str] = "CatBackward0"

    def result_type(self, *types: TensorType) -> TensorType:
        first = types[0]
        for k, other in enumerate(types):
            if other.dtype is not first.dtype:
                raise DTypeError("cat: operands differ in dtype", {"first": first, f"operand {k}": other})
            if other.ndim != first.ndim:
                raise ShapeError(
                    f"Tensors must have same number of dimensions: got {first.ndim} and {other.ndim}",
                    {"first": first, f"operand {k}": other},
                )
            if not agree_on(other.drop((self.axis,)).shape, first.drop((self.axis,)).shape):
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {self.axis}",
                    {"first": first, f"operand {k}": other},
                )
        shape = list(first.shape)
        shape[self.axis] = sum(t.shape[self.axis] for t in types)
        return first.with_shape(tuple(shape))

    def eager(self, *arrays: Ndarray) -> Ndarray:
        return np.concatenate(arrays, self.axis)

    def offsets(self, types: Sequence[TensorType]) -> list[int]:
        """Where each operand begins along the axis, and the end."""
        found = [0]
        for type_ in types:
            found.append(found[-1] + type_.shape[self.axis])
        return found

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        offsets = self.offsets([x.spec for x in primals])

        def part(k: int) -> Any:
            return lambda: slice_axis(y_bar, self.axis, offsets[k], offsets[k + 1])

        return tuple(part(k) for k in range(len(primals)))

    jvp = jointly_linear_jvp

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return bind(Concatenate(self.axis + 1), *batch_all(args, batched))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [
            (Concatenate(0), (ramp((2, 3), dtype), ramp((1, 3), dtype), ramp((0, 3), dtype))),
            (Concatenate(1), (ramp((3, 2), dtype), ramp((4, 3), dtype).T)),
            (Concatenate(0), (ramp((3,), dtype),)),
        ]


def concatenate(operands: Sequence[O], axis: int = 0) -> O:
    """torch.cat on operands of one dtype; one-dimensional empty operands are skipped, as torch does."""
    if not operands:
        raise ArgumentError("torch.cat(): expected a non-empty list of Tensors")
    for k, x in enumerate(operands):
        if x.spec.ndim == 0:
            raise ShapeError(f"zero-dimensional tensor (at position {k}) cannot be concatenated", {"operand": x})
    others = any(x.spec.ndim > 1 for x in operands)  # beside them an empty vector does not count
    kept = [x for x in operands if not others or x.spec.shape != (0,)]
    axis = normalize_axis(axis, kept[0].spec.ndim, "cat")
    return kept[0] if len(kept) == 1 else bind(Concatenate(axis), *kept)


def stack(operands: Sequence[O], axis: int = 0) -> O:
    """Join operands of one shape along a new axis."""
    if not operands:
        raise ArgumentError("stack expects a non-empty TensorList")
    first = operands[0].spec
    for k, x in enumerate(operands):
        if not agree_on(x.spec.shape, first.shape):
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 and "
                f"{list(x.spec.shape)} at entry {k}",
                {"operand": x},
            )
    axis = normalize_axis(axis, first.ndim + 1, "stack")
    return bind(Concatenate(axis), *(unsqueeze(x, axis) for x in operands))


def squeeze(x: O, axes: int | Sequence[int] | None = None) -> O:
    """Drop axes of extent 1: all of them, or those given that have extent 1."""
    shape = x.spec.shape
    chosen = range(len(shape)) if axes is None else (() if axes == () else normalize_axes(axes, len(shape), "squeeze"))
    return reshape(x, [n for axis, n in enumerate(shape) if axis not in chosen or not agree(n, 1)])


def unsqueeze(x: O, axis: int) -> O:
    """Insert an axis of extent 1; ``axis`` counts in the result."""
    axis = normalize_axis(axis, x.spec.ndim + 1, "unsqueeze")
    shape = x.spec.shape
    return reshape(x, (*shape[:axis], 1, *shape[axis:]))


def flatten(x: O, start: int = 0, end: int = -1) -> O:
    """Merge the axes ``start`` to ``end`` (both included) into one; rank 0 becomes rank 1."""
    shape = x.spec.shape
    first, last = (normalize_axis(a, len(shape), "flatten") for a in (start, end))
    if first > last:
        raise ShapeError("flatten() has invalid args: start_dim cannot come after end_dim", {"x": x})
    return reshape(x, (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))


def unflatten(x: O, axis: int, sizes: Sequence[int]) -> O:
    """Split one axis into several; one size may be -1."""
    axis = normalize_axis(axis, x.spec.ndim, "unflatten")
    shape, extent = x.spec.shape, x.spec.shape[axis]
    known = prod(n for n in sizes if n != -1)
    inferred = [extent // max(known, 1) if n == -1 else n for n in sizes]
    if prod(inferred) != extent:
        raise ShapeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {axis} ({extent})", {"x": x}
        )
    return reshape(x, (*shape[:axis], *inferred, *shape[axis + 1 :]))


def transpose(x: O, axis0: int, axis1: int) -> O:
    """Exchange two axes."""
    ndim = x.spec.ndim
    first, second = (normalize_axis(a, ndim, "transpose") for a in (axis0, axis1))
    order = list(range(ndim))
    if ndim:
        order[first], order[second] = second, first
    return permute(x, order)


def moveaxis(x: O, source: int | Sequence[int], destination: int | Sequence[int]) -> O:
    """Move axes to new places; the others keep their order."""
    ndim = x.spec.ndim
    origins = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(origins) != len(targets):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source ({origins} dims) should contain the same number of "
            f"dims as destination ({targets} dims)",
            {"x": x},
        )
    moved = [("source", origins), ("destination", targets)]
    origins = [normalize_axis(a, ndim, "movedim") for a in origins]
    targets = [normalize_axis(a, ndim, "movedim") for a in targets]
    for (what, given), axes in zip(moved, (origins, targets), strict=True):
        if len(set(axes)) < len(axes):
            raise ShapeError(f"movedim: repeated dim in `{what}` ({given})", {"x": x})
    order = [a for a in range(ndim) if a not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return permute(x, order[:ndim])  # of a number: the one axis it may name is none


def select(x: O, axis: int, index: int) -> O:
    """One position of an axis, which goes away; a view."""
    axis = normalize_axis(axis, x.spec.ndim, "select")
    if x.spec.ndim == 0:
        raise AxisError("select() cannot be applied to a 0-dim tensor.", {"x": x})
    extent = x.spec.shape[axis]
    if not -extent <= index < extent:
        raise IndexOutOfRangeError(f"index {index} is out of bounds for dimension {axis} with size {extent}", {"x": x})
    place = index % extent
    piece = slice_axis(x, axis, place, place + 1)
    return reshape(piece, (*x.spec.shape[:axis], *x.spec.shape[axis + 1 :]))


def one_by_one(op: Op, args: Operands, batched: tuple[bool, ...]) -> Any:
    """An op on the examples of a batch one after the other: they are few, so they stay separate nodes."""
    pairs = list(zip(args, batched, strict=True))
    extent = next(a.spec.shape[0] for a, flag in pairs if flag)
    return stack([bind(op, *[select(a, 0, k) if flag else a for a, flag in pairs]) for k in range(extent)])


def narrow(x: O, axis: int, start: int, length: int) -> O:
    """``length`` positions of an axis from ``start`` on; a view."""
    if x.spec.ndim == 0:
        raise ShapeError("narrow() cannot be applied to a 0-dim tensor.", {"x": x})
    axis = normalize_axis(axis, x.spec.ndim, "narrow")
    extent = x.spec.shape[axis]
    if length < 0:
        raise ShapeError("narrow(): length must be non-negative.", {"x": x, "length": length})
    if not -extent <= start <= extent:
        raise IndexOutOfRangeError(
            f"start out of range (expected to be in range of [-{extent}, {extent}], but got {start})",
            {"x": x, "axis": axis},
        )
    first = start + extent if start < 0 else start
    if not (0 <= first <= extent and 0 <= length <= extent - first):
        raise ShapeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({extent}).",
            {"x": x, "axis": axis},
        )
    return slice_axis(x, axis, first, first + length)


def split(x: Operand, sizes: int | Sequence[int], axis: int = 0) -> tuple[Any, ...]:
    """Views of consecutive pieces: all of one size (the last may be shorter), or of the given sizes."""
    axis = normalize_axis(axis, x.spec.ndim, "split")
    extent = x.spec.shape[axis]
    if isinstance(sizes, int):
        if sizes <= 0 and not (sizes == 0 and extent == 0):
            raise ShapeError(f"split: expects split_size to be positive, but got split_size={sizes}", {"x": x})
        step = max(sizes, 1)
        lengths = [min(step, extent - start) for start in range(0, extent, step)] or [0]
    else:
        lengths = list(sizes)
    if sum(lengths) != extent or min(lengths, default=0) < 0:
        raise ShapeError(
            f"split_with_sizes expects split_sizes to sum exactly to {extent} (input tensor's size at dimension "
            f"{axis}), but got split_sizes={lengths}",
            {"x": x},
        )
    if any([is_symbolic(n) for n in (*x.spec.shape, *lengths)]):  # noqa: C419  (a list is faster than a generator)
        starts = [sum(lengths[:k]) for k in range(len(lengths))]
        return tuple(slice_axis(x, axis, start, start + n) for start, n in zip(starts, lengths, strict=True))
    return tuple([x if op is None else bind(op, x) for op in _cuts(x.spec.shape, tuple(lengths), axis)])


@lru_cache(maxsize=1024)
def _cuts(shape: tuple[int, ...], lengths: tuple[int, ...], axis: int) -> tuple[Slice | None, ...]:
    """The slices of consecutive lengths along an axis; None is all."""
    found: list[Slice | None] = []
    first = 0
    for n in lengths:
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = first, first + n
        found.append(None if n == shape[axis] else Slice(tuple(starts), tuple(stops), (1,) * len(shape)))
        first += n
    return tuple(found)


def chunk(x: Operand, count: int, axis: int = 0) -> tuple[Any, ...]:
    """At most ``count`` equal pieces (the last may be shorter), as torch.chunk."""
    if count <= 0:
        raise ShapeError("chunk expects `chunks` to be greater than 0", {"x": x, "chunks": count})
    extent = x.spec.shape[normalize_axis(axis, x.spec.ndim, "chunk")]
    if is_symbolic(extent):
        return _open_chunks(x, count, normalize_axis(axis, x.spec.ndim, "chunk"))
    return split(x, -(-extent // count) if extent else [0] * count, axis)


def _open_chunks(x: Operand, count: int, axis: int) -> tuple[Any, ...]:
    """``chunk`` of an open extent: how many pieces there are is asked, not how long they are."""
    extent = x.spec.shape[axis]
    length = -(-extent // count)
    starts = [k * length for k in range(count) if k == 0 or k * length < extent]
    return tuple(slice_axis(x, axis, start, size_min(start + length, extent)) for start in starts)


def tensor_split(x: Operand, sections: int | Sequence[int], axis: int = 0) -> tuple[Any, ...]:
    """Pieces whose sizes differ by at most one, or cut at the given positions, as torch.tensor_split."""
    if not x.spec.ndim:
        raise ShapeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims", {"x": x}
        )
    axis = normalize_axis(axis, x.spec.ndim, "tensor_split")
    extent = x.spec.shape[axis]
    if isinstance(sections, int):
        if sections <= 0:
            raise ShapeError(f"number of sections must be larger than 0, got {sections}", {"x": x})
        small, extra = divmod(extent, sections)
        return split(x, [small + (k < extra) for k in range(sections)], axis)
    cuts = [0, *sections, extent]
    return tuple(slice_axis(x, axis, start, stop) for start, stop in pairwise(cuts))


def unbind(x: Operand, axis: int = 0) -> tuple[Any, ...]:
    """A view for every position of an axis."""
    if x.spec.ndim == 0:
        raise AxisError("Dimension specified as 0 but tensor has no dimensions", {"x": x})
    axis = normalize_axis(axis, x.spec.ndim, "unbind")
    return tuple(select(x, axis, k) for k in range(x.spec.shape[axis]))


def expand(x: O, sizes: Sequence[int]) -> O:
    """torch.Tensor.expand: broadcast to ``sizes``; -1 keeps an extent."""
    missing = len(sizes) - x.spec.ndim
    if missing < 0:
        raise ShapeError(
            f"expand: the number of sizes provided ({len(sizes)}) must be greater or equal to the number of dimensions "
            f"in the tensor ({x.spec.ndim})",
            {"x": x},
        )
    if any(n == -1 for n in sizes[:missing]):
        raise ShapeError(
            f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension "
            f"{list(sizes).index(-1)}",
            {"x": x, "sizes": list(sizes)},
        )
    old = (*(1,) * missing, *x.spec.shape)
    return broadcast_to(x, [have if n == -1 else n for n, have in zip(sizes, old, strict=True)])


def tile(x: O, repeats: Sequence[int]) -> O:
    """The whole operand repeated along each axis, as NumPy's tile: a copy made of a broadcast and a reshape."""
    ndim = max(len(repeats), x.spec.ndim)
    times = (*(1,) * (ndim - len(repeats)), *repeats)
    shape = (*(1,) * (ndim - x.spec.ndim), *x.spec.shape)
    if min(times, default=1) < 0:
        raise ShapeError("repeats cannot be negative", {"x": x, "repeats": list(repeats)})
    spread = reshape(x, [n for extent in shape for n in (1, extent)])
    wide = broadcast_to(spread, [n for count, extent in zip(times, shape, strict=True) for n in (count, extent)])
    return reshape(wide, [count * extent for count, extent in zip(times, shape, strict=True)])


def repeat(x: O, repeats: Sequence[int]) -> O:
    """torch.Tensor.repeat: ``tile`` with at least one number per axis."""
    if len(repeats) < x.spec.ndim:
        raise ShapeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor", {"x": x}
        )
    return tile(x, repeats)


def repeat_interleave(x: O, count: int, axis: int | None = None) -> O:
    """Each element repeated ``count`` times in place along an axis (of the flattened operand by default)."""
    if axis is None:
        return repeat_interleave(reshape(x, (x.spec.size,)), count, 0)
    axis = normalize_axis(axis, x.spec.ndim, "repeat_interleave")
    shape = x.spec.shape
    spread = reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    wide = broadcast_to(spread, (*shape[: axis + 1], count, *shape[axis + 1 :]))
    return reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


def roll(x: O, shifts: int | Sequence[int], axes: int | Sequence[int] | None = None) -> O:
    """Rotate along axes (along the flattened operand without ``axes``), as torch.roll."""
    if axes is None or axes == ():
        if not isinstance(shifts, int):
            if len(shifts) != 1:
                raise ShapeError(
                    f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0"
                    if shifts
                    else "`shifts` required",
                    {"x": x},
                )
            (shifts,) = shifts
        return reshape(roll(reshape(x, (x.spec.size,)), shifts, 0), x.spec.shape)
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    places = [axes] if isinstance(axes, int) else list(axes)
    if len(moves) != len(places):
        raise ShapeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(places)}", {"x": x})
    if not moves:
        raise ShapeError("`shifts` required", {"x": x})
    for move, axis in zip(moves, places, strict=True):
        x = _rolled(x, move, normalize_axis(axis, x.spec.ndim, "roll"))
    return x


def _rolled(x: O, move: int, axis: int) -> O:
    if x.spec.ndim == 0:
        raise AxisError("Dimension specified as 0 but tensor has no dimensions", {"x": x})
    extent = x.spec.shape[axis]
    cut = (extent - move) % size_max(extent, 1)
    if cut == 0:
        return x
    return bind(Concatenate(axis), slice_axis(x, axis, cut, extent), slice_axis(x, axis, 0, cut))
