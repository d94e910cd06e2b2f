"""Subscripts: ``x[...]`` and ``x[...] = value`` with NumPy's and torch's whole repertoire.

A subscript is normalised once into (1) a chain of views for integers, slices, None and Ellipsis and (2) index tensors
for lists, arrays, masks. Views come first, the indexed axes are brought to the front, then one GatherNd or IndexPut
follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from autojit import ops
from autojit.core.device_array import host_copy
from autojit.core.dtypes import bool_, int64, uint8
from autojit.core.errors import (
    ArgumentError,
    DTypeError,
    IndexingError,
    IndexOutOfRangeError,
    ShapeError,
)
from autojit.core.sizes import agree, as_extent, is_symbolic, seems_equal, surely_equal
from autojit.core.tracebacks import trim
from autojit.core.types import TensorType
from autojit.core.user_warnings import warn
from autojit.dispatch.dispatch import number
from autojit.dispatch.inplace import copy_into, in_place
from autojit.dispatch.on_device import moved, placed
from autojit.dispatch.promotion import NUMBERS, Operand, as_operand, cast
from autojit.dispatch.view_memo import keep, recall
from autojit.dispatch.view_nodes import one_node
from autojit.functions.comparison import clamp, where
from autojit.functions.shape import stack
from autojit.functions.slice_places import constant_subscript, counted_span, slice_bound
from autojit.history.node_arguments import KeptBy
from autojit.history.op_node import rename_node
from autojit.ir.op import bind
from autojit.ops.base import is_expandable
from autojit.ops.counted_positions import LEAST, NO_PLACE
from autojit.ops.shape import Slice, permute, reshape
from autojit.ops.slice_bounds import slice_span
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of, wrap


def getitem(x: Tensor, key: object) -> Tensor:
    """``x[key]``: a view for integers, slices, None and Ellipsis; a copy with index tensors, lists or masks."""
    index = key
    what = constant_subscript(index)
    if what is not None:
        memo, found = recall(what, x)
        if found is None:
            seen = _view(x, normalize(x, index))
            found = one_node(seen if seen is not x else x.view(x.shape), x, _node_name(index))
            keep(memo, x, found, index)
        return found
    if isinstance(index, list):
        index = _as_tuple(index)
    if type(index) is Tensor and type_of(index).dtype is bool_ and type_of(index).shape == type_of(x).shape:
        return x.masked_select(index)
    try:
        if type(index) is Tensor and _are_rows(type_of(x), type_of(index)):
            return _rows(x, index)
        subscript = normalize(x, index)
        seen = _view(x, subscript)
        if not subscript.is_advanced:
            return seen if seen is not x else x.view(x.shape)
        found = _gather(seen, subscript)
    except Exception as error:
        trim(error)
        raise
    if state.trace is not None and all(i is None or type_of(i).ndim == 0 for i in subscript.indices):
        found.__dict__["write_back"] = partial(setitem, x, index)  # as with ints, it is a view
    return found


def _are_rows(t: TensorType, index: TensorType) -> bool:
    """Whether an index tensor is one that picks along the first axis as it is."""
    return index.dtype is int64 and len(index.shape) > 0 and len(t.shape) > 0 and index.device == t.device


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """``x[index]`` of an index tensor for the first axis: what the general form comes to."""
    found = ops.gather_nd(x, index)
    if found._grad_fn is not None:
        rename_node(found, "IndexBackward0", indices=(KeptBy(None, 1),), self_sym_sizes=type_of(x).shape)
    return found


def _as_tuple(index: list[Any]) -> Any:
    """A list that holds more than numbers means a tuple, as in old NumPy; longer ones are index arrays."""
    if len(index) >= 32 or not any(
        i is None or i is Ellipsis or isinstance(i, Tensor | Sequence | slice | np.ndarray) for i in index
    ):
        return index
    warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], "
        "or x[tensor(seq)] for an index array",
        UserWarning,
    )
    return tuple(index)


def _node_name(index: object) -> str:
    """The last thing a subscript does, by torch's name."""
    items = index if isinstance(index, tuple) else (index,)
    for item in reversed(items):
        if item is None:
            return "UnsqueezeBackward0"
        if type(item) is int:
            return "SelectBackward0"
        if isinstance(item, slice) and item != slice(None):
            return "SliceBackward0"
    return "SliceBackward0" if isinstance(index, slice) else "AliasBackward0"


def setitem(x: Tensor, key: object, value: Operand) -> None:
    """``x[key] = value``; the value is broadcast and converted to the dtype of ``x``."""
    given, value = value, _value(x, value)
    index: Any = _as_tuple(key) if isinstance(key, list) else key
    row = _row_for_mask(x, (index,), value)
    if row is not None:
        _require_dtype(x, given, least_rank=1)
        aligned = _aligned_mask(x, index)
        in_place(x, "index_put_", lambda old: where(aligned, row, old), (), {})
        return
    what = constant_subscript(index)
    memo, known = (None, None) if what is None else recall(what, x)
    if known is not None and known._array.size < x._array.size:  # a part: all of ``x`` is written as ``x``
        copy_into(known, _fitted(value, type_of(known).shape), "setitem")
        return
    subscript = normalize(x, index)
    seen = _view(x, subscript)
    if not subscript.is_advanced:
        target = one_node(seen, x, _node_name(index)) if seen._grad_fn is not None else seen
        if known is None:
            keep(memo, x, target, index)
        copy_into(target, _fitted(value, type_of(target).shape), "setitem")
        return
    written = _put(seen, subscript, value, False)  # says first, as torch does, that the shapes do not fit
    _require_dtype(x, given)
    copy_into(seen, written, "index_put_")


def _require_dtype(x: Tensor, value: object, least_rank: int = 0) -> None:
    """DTypeError where places chosen by tensors or lists are written with a tensor of another dtype, as in torch."""
    if isinstance(value, Tensor) and type_of(value).dtype is not type_of(x).dtype and value.ndim >= least_rank:
        raise DTypeError(
            f"Index put requires the source and destination dtypes match, got {type_of(x).dtype.scalar_type} for the "
            f"destination and {type_of(value).dtype.scalar_type} for the source.",
            {"x": x, "value": value},
            "convert it: x[index] = value.to(x.dtype)",
        )


def _row_for_mask(x: Tensor, index: tuple[Any, ...], value: Tensor) -> Tensor | None:
    """The value when the index is one mask and every chosen place gets the same value (or row): such a write keeps its
    shape and needs no data-dependent index, so it can be captured. None otherwise.
    """
    if len(index) != 1 or not isinstance(index[0], Tensor) or type_of(index[0]).dtype is not bool_:
        return None
    rest = type_of(x).shape[type_of(index[0]).ndim :]
    shape = type_of(value).shape
    if len(shape) == len(rest) + 1 and seems_equal(shape[0], 1):
        shape = shape[1:]
    return reshape(value, shape) if is_expandable(shape, rest) else None


def _aligned_mask(x: Tensor, mask: Tensor) -> Tensor:
    """The mask with axes of extent 1 for those of ``x`` it does not cover."""
    shape, ndim = type_of(mask).shape, type_of(x).ndim
    if shape != type_of(x).shape[: len(shape)]:
        raise IndexingError(
            f"The shape of the mask {list(shape)} does not match the shape of the indexed tensor "
            f"{list(type_of(x).shape)}"
        )
    return mask.reshape((*shape, *(1,) * (ndim - len(shape))))


def put(x: Tensor, index: Any, value: Operand, accumulate: bool) -> Tensor:
    """``x`` with ``value`` written or added at ``x[index]``, as a new tensor."""
    value = _value(x, value)
    row = _row_for_mask(x, index, value)
    if row is not None:
        return where(_aligned_mask(x, index[0]), x + row if accumulate else row, x)
    subscript = normalize(x, index)
    if not subscript.is_advanced:
        raise ShapeError("index_put: no index is given, so there is no shape to which the value could be broadcast")
    if tuple(subscript.shape) != type_of(x).shape or any(subscript.starts):
        raise ArgumentError("index_put: indices must be tensors", {"x": x})
    return _put(x, subscript, value, accumulate)


def _value(x: Tensor, value: Operand) -> Tensor:
    if isinstance(value, NUMBERS):
        kind = type_of(x)
        return number(value, kind.dtype, kind.device)
    if not isinstance(value, Tensor):
        value = placed(wrap(np.asarray(value)), type_of(x).device)
    return cast(as_operand(value), type_of(x).dtype)


def _fitted(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    have = type_of(value).shape
    while len(have) > len(shape) and seems_equal(have[0], 1):
        have = have[1:]
    return reshape(value, have)


def _view(x: Tensor, s: Subscript) -> Tensor:
    t = type_of(x)
    whole = all(
        seems_equal(a, 0) and surely_equal(b, n) and c == 1
        for a, b, c, n in zip(s.starts, s.stops, s.steps, t.shape, strict=True)
    )
    found = x if whole else bind(Slice(tuple(s.starts), tuple(s.stops), tuple(s.steps)), x)
    return reshape(found, s.shape)


def _front(x: Tensor, s: Subscript) -> tuple[list[int], list[Tensor], int]:
    """(order that brings the indexed axes to the front, their index tensors, where the result's index axes go)."""
    places = [axis for axis, i in enumerate(s.indices) if i is not None]
    rest = [axis for axis in range(type_of(x).ndim) if axis not in places]
    picked = [axis for axis, i in enumerate(s.indices) if i is not None and not type_of(i).ndim]  # as by a number:
    kept = [axis for axis in range(type_of(x).ndim) if axis not in picked]  # the axis is gone before the others count
    spread = [k for k, axis in enumerate(kept) if axis in places]
    adjacent = bool(spread) and spread == list(range(spread[0], spread[0] + len(spread)))
    device = type_of(x).device
    indices = [i if type_of(i).device == device else moved(i, device) for i in s.indices if i is not None]
    return [*places, *rest], indices, spread[0] if adjacent else 0


def _check_indices(indices: Sequence[Tensor]) -> None:
    """IndexError where index tensors do not broadcast."""
    shapes = [tuple(type_of(i).shape) for i in indices]
    for n, shape in enumerate(shapes[1:], 1):
        for k, extent in enumerate(reversed(shape), 1):
            others = [other[-k] for other in shapes[:n] if len(other) >= k]
            if any(not agree(o, extent) and not agree(o, 1) and not agree(extent, 1) for o in others):
                told = ", ".join(str(list(each)) for each in shapes)
                raise IndexingError(
                    f"shape mismatch: indexing tensors could not be broadcast together with shapes {told}"
                )


def _gather(x: Tensor, s: Subscript) -> Tensor:
    order, indices, where_to = _front(x, s)
    if len(indices) > 1:
        _check_indices(indices)
    found = ops.gather_nd(permute(x, order), *indices)
    node = found._grad_fn
    seen = _back(found, type_of(found).ndim - (type_of(x).ndim - len(indices)), where_to)
    if node is not None:
        owner = None if seen._grad_fn is node else node
        given = [KeptBy(owner, order.index(axis) + 1) if i is not None else None for axis, i in enumerate(s.indices)]
        while given and given[-1] is None:
            given.pop()
        rename_node(seen, "IndexBackward0", indices=tuple(given), self_sym_sizes=type_of(x).shape)
    return seen


def _back(found: Tensor, count: int, where_to: int) -> Tensor:
    """Move the first ``count`` axes (the index's) behind ``where_to`` others."""
    if where_to == 0:
        return found
    ndim = type_of(found).ndim
    order = [*range(count, count + where_to), *range(count), *range(count + where_to, ndim)]
    return permute(found, order)


def _put(x: Tensor, s: Subscript, value: Tensor, accumulate: bool) -> Tensor:
    order, indices, where_to = _front(x, s)
    if len(indices) > 1:
        _check_indices(indices)
    front = permute(x, order)
    shape = ops.GatherNd().result_type(type_of(front), *[type_of(i) for i in indices]).shape
    count = len(shape) - (type_of(x).ndim - len(indices))
    wanted = (*shape[count : count + where_to], *shape[:count], *shape[count + where_to :])
    value = _fitted(value, wanted)
    if where_to:
        value = value.expand(wanted)
        ndim = len(wanted)
        value = permute(value, [*range(where_to, where_to + count), *range(where_to), *range(where_to + count, ndim)])
    done = ops.index_put(front, indices, value, accumulate)
    inverse = [order.index(axis) for axis in range(len(order))]
    return permute(done, inverse)


def normalize(x: Tensor, index: object) -> Subscript:
    """Resolve a subscript against a tensor; IndexError as torch when it does not fit."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [_item(i) for i in items]
    shape = type_of(x).shape
    _expand_ellipsis(items, len(shape))
    found = Subscript(shape)
    for item in items:
        found.take(item)
    return found


def _item(item: Any) -> Any:
    """Sequences and arrays become index tensors, masks of Python values arrays; 0-d integer tensors stay tensors."""
    if isinstance(item, bool | np.bool_):
        return wrap(np.asarray(bool(item)))
    if isinstance(item, list | range | tuple):
        if state.trace is not None and any(type(i) is not int for i in item) and all(map(_is_place, item)):
            return stack([as_operand(i).reshape(()) for i in item])  # what a step computes is not baked in
        item = np.asarray([int(i) if isinstance(i, Tensor) else i for i in item])
        item = item if item.size else item.astype(np.int64)
    if isinstance(item, np.ndarray):
        return item if item.dtype == np.bool_ and item.ndim else wrap(item)
    return item


def _is_place(item: object) -> bool:
    """Whether it is an integer number, or a tensor or a number of a step that is one."""
    if type(item) is int:
        return True
    is_operand = type(item) is Tensor or hasattr(type(item), "as_operand")
    return is_operand and type_of(found := as_operand(item)).dtype is int64 and type_of(found).size == 1


def _consumed(item: object) -> int:
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, np.ndarray):
        return item.ndim
    if isinstance(item, Tensor) and type_of(item).dtype in (bool_, uint8):
        return type_of(item).ndim
    return 1


def _expand_ellipsis(items: list[Any], ndim: int) -> None:
    used = sum(_consumed(i) for i in items)
    if used > ndim == 0:
        taken = next(item for item in items if _consumed(item))
        raise IndexingError(
            "slice() cannot be applied to a 0-dim tensor."
            if isinstance(taken, slice)
            else "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number"
        )
    if used > ndim:
        raise IndexingError(f"too many indices for tensor of dimension {ndim}")
    places = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(places) > 1:
        raise IndexingError("an index can only have a single ellipsis ('...')")
    fill = [slice(None)] * (ndim - used)
    if places:
        items[places[0] : places[0] + 1] = fill
    else:
        items.extend(fill)


class Subscript:
    """A subscript resolved against a shape, item by item.

    ``starts``, ``stops``, ``steps`` give the slice per axis; ``shape`` the shape after dropping integer axes and adding
    new ones; ``indices`` the index tensor per axis of that shape, or None.
    """

    def __init__(self, extents: tuple[int, ...]) -> None:
        self.extents = extents
        self.axis = 0
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.steps: list[int] = []
        self.shape: list[int] = []
        self.indices: list[Tensor | None] = []

    @property
    def is_advanced(self) -> bool:
        return any(i is not None for i in self.indices)

    def take(self, item: Any) -> None:
        if item is None:
            self.shape.append(1)
            self.indices.append(None)
        elif isinstance(item, slice):
            self._slice(item)
        elif isinstance(item, Tensor):
            self._tensor(item)
        elif isinstance(item, np.ndarray):
            self._check_mask(item.shape)
            for places in np.nonzero(item):  # of a mask of Python values they are known, also inside a capture
                self._whole_axis(wrap(places))
        elif hasattr(type(item), "as_size"):
            self._number(item)
        elif hasattr(type(item), "__index__"):
            self._integer(item if is_symbolic(item) else int(item.__index__()))
        else:
            raise IndexingError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                f"(got {type(item).__name__})"
            )

    def _push(self, start: int, stop: int, step: int) -> None:
        self.starts.append(start)
        self.stops.append(stop)
        self.steps.append(step)
        self.axis += 1

    def _slice(self, item: slice) -> None:
        extent = self.extents[self.axis]
        start, stop = slice_bound(item.start), slice_bound(item.stop)
        step = 1 if item.step is None else as_extent(slice_bound(item.step))
        if step == 0:
            raise ArgumentError("slice step cannot be zero", {"slice": item})
        if step < 0:
            raise ArgumentError("step must be greater than zero", {"slice": item}, "use flip() for a reversed order")
        if step == 1 and (hasattr(type(start), "as_size") or hasattr(type(stop), "as_size")):
            first, end = counted_span(start, stop, extent)
        else:
            start, stop = (None if b is None else as_extent(b) for b in (start, stop))
            first, end = slice_span(start, stop, step, extent)
        self._push(first, end, step)
        self.shape.append(-(-(end - first) // step))
        self.indices.append(None)

    def _integer(self, place: int) -> None:
        extent = self.extents[self.axis]
        if not -extent <= place < extent:
            raise IndexOutOfRangeError(
                f"index {place} is out of bounds for dimension {self.axis} with size {extent}",
                {"shape": list(self.extents)},
            )
        place += extent if place < 0 else 0
        self._push(place, place + 1, 1)

    def _number(self, item: Any) -> None:
        """A number that a step computes: where the row begins is a size it counts, so that the result is a view."""
        extent = self.extents[self.axis]
        place = as_operand(item)
        refusal = f"{NO_PLACE} is out of bounds for dimension {self.axis} with size {extent}"
        fits = (place >= -extent) & (place < extent)
        refused = where(place < 0, place, clamp(place, 0) + LEAST)  # negative, and the error tells the number
        place = where(fits, where(place < 0, place + extent, place), refused)
        first = place.item().as_size(extent - 1, refusal, is_place=True)
        self._push(first, first + 1, 1)

    def _tensor(self, item: Tensor) -> None:
        t = type_of(item)
        if t.dtype in (bool_, uint8):
            if t.dtype is uint8:
                warn("indexing with dtype uint8 is now deprecated, please use a dtype bool instead.", UserWarning)
            self._mask(item)
            return
        if t.dtype.category != 1:
            raise IndexingError("tensors used as indices must be long, int, byte or bool tensors")
        if t.ndim == 0 and item._array is not None and state.trace is None:
            self._integer(int(host_copy(item._array)))
            return
        self._whole_axis(cast(item, int64))

    def _whole_axis(self, index: Tensor) -> None:
        extent = self.extents[self.axis]
        self._push(0, extent, 1)
        self.shape.append(extent)
        self.indices.append(index)

    def _mask(self, mask: Tensor) -> None:
        t = type_of(mask)
        if t.ndim == 0:
            self.shape.append(1)
            chosen = bool(mask)
            self.indices.append(wrap(np.zeros(int(chosen), np.int64)))
            return
        self._check_mask(t.shape)
        for places in mask.nonzero(as_tuple=True):
            self._whole_axis(places)

    def _check_mask(self, shape: tuple[int, ...]) -> None:
        for k, n in enumerate(shape):
            if not agree(self.extents[self.axis + k], n):
                raise IndexingError(
                    f"The shape of the mask {list(shape)} at index {k} does not match the shape of the indexed tensor "
                    f"{list(self.extents)} at index {self.axis + k}"
                )
