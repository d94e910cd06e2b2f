"""Functions whose results are as long as the data say: what a mask chooses, distinct values, counts, repetitions.

Eagerly the length is known when the result is. In a capture it is a size that the step counts itself
(``ops.counted_positions``): `true_positions` gives the positions of a mask's true elements, `extent` a size that is a
number; the rest is composed of these and of ops that keep sizes.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from autojit import ops
from autojit.core.device import CPU
from autojit.core.dtypes import bool_, float32, float64, int32, int64
from autojit.core.errors import AxisError, DTypeError, ShapeError, UnsupportedDTypeError, UsageError
from autojit.core.sizes import agree, as_extent, seems_equal
from autojit.dispatch.declared import Out, declared
from autojit.dispatch.dispatch import value_of
from autojit.dispatch.on_device import placed
from autojit.dispatch.promotion import as_operand, cast
from autojit.dispatch.view_nodes import no_view
from autojit.functions.comparison import clamp, maximum, where
from autojit.functions.conversion import array_of
from autojit.functions.elementwise import clone, floor_divide, remainder
from autojit.functions.factories import arange
from autojit.functions.index_functions import index_add, index_select, scatter
from autojit.ir.graph import Value
from autojit.ir.op import bind
from autojit.ops.base import broadcast_shapes, normalize_axis
from autojit.ops.counted_positions import Extent
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of, wrap, wrap_value

_NEGATIVE_COUNTS = "bincount only supports 1-d non-negative integral inputs."
_NEGATIVE_REPEATS = "repeats can not be negative"
_OTHER_SIZE = "allocated size does not match required size"


# -- sizes that a step counts


def true_positions(mask: Tensor) -> Tensor:
    """In a capture: the flat positions of a mask's true elements."""
    assert state.trace is not None
    return wrap_value(state.trace.true_positions(_value_of_all(mask, "nonzero", "shapes")))


def extent(number: Tensor, most: int | None, refusal: str) -> int:
    """In a capture: a size that is the value of an int64 tensor of rank 0, at most ``most``.

    ``refusal``: the message of the error if the number is negative.
    """
    assert state.trace is not None
    return state.trace.size_of_number(_value_of_all(number, "a size", "lengths"), most, refusal)


def _value_of_all(t: Tensor, name: str, differing: str) -> Value:
    """The value of a tensor that the examples of a batch share.

    Raises:
        ShapeError: every example has its own.
    """
    if t._array is None and t._value is None and t._storage is None:
        raise ShapeError(
            f"{name}: examples of a batch would have results of different {differing}",
            {"self": t},
            "use where(condition, x, y), or call it outside the batched function",
        )
    return value_of(t)


# -- what a mask chooses


@declared(out=Out(is_apart=True, is_exact=True))
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, as a vector."""
    if type_of(mask).dtype is not bool_:
        raise UsageError("masked_select: expected BoolTensor for mask", {"mask": mask})
    shape = broadcast_shapes(type_of(input).shape, type_of(mask).shape, op="masked_select")
    if state.trace is not None:
        places = true_positions(mask if type_of(mask).shape == shape else mask.expand(shape))
        return index_select(input.expand(shape).reshape(-1), 0, places)
    return ops.masked_select(input, mask)


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
@overload
def nonzero(input: Tensor, *, as_tuple: bool) -> Tensor | tuple[Tensor, ...]: ...
@declared(out=Out(is_exact=True, refuses=("as_tuple",)))
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Positions of the non-zero elements: one row each, or one vector per axis."""
    if state.trace is not None:
        return _captured_nonzero(input, as_tuple)
    if type_of(input).ndim == 0 and not as_tuple:
        return ops.nonzero(input.reshape(1))[:, :0]
    if as_tuple:
        source = input if type_of(input).ndim else input.reshape(1)
        rows = ops.nonzero(source)
        return tuple(ops.select(rows, 1, k).clone() for k in range(type_of(source).ndim))  # side by side, as in torch
    return no_view(ops.nonzero(input), input)


def _captured_nonzero(input: Tensor, as_tuple: bool) -> Any:
    """Flat positions taken apart into one vector per axis."""
    shape = type_of(input).shape if type_of(input).ndim or not as_tuple else (1,)
    places = true_positions(cast(input, bool_))
    columns: list[Tensor] = []
    step = 1
    for n in reversed(shape):
        columns.insert(0, remainder(floor_divide(places, step), n) if len(shape) > 1 else places)
        step = step * n
    if as_tuple:
        return tuple(columns)
    return ops.stack(columns, 1) if columns else places.reshape(-1, 1)[:, :0]


@declared()
def argwhere(input: Tensor) -> Tensor:
    """``nonzero``, one row each."""
    return nonzero(input)


# -- distinct values


@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any: ...
@declared()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Distinct elements in order (slices along ``dim``, in lexicographic order), on request with inverse and counts."""
    rows = _compared("unique", input, dim)
    if state.trace is None:
        return _chosen(ops.unique(input, dim), return_inverse, return_counts)
    order = ops.argsort(rows, 0) if type_of(rows).ndim == 1 else ops.row_order(rows)
    return _captured_unique(input, dim, order, rows, (return_inverse, return_counts))


@overload
def unique_consecutive(
    input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False, dim: int | None = None
) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any: ...
@declared()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The flattened elements (or the slices along ``dim``) without repeated neighbours."""
    rows = _compared("unique_consecutive", input, dim)
    if state.trace is None:
        return _chosen(ops.unique_consecutive(input, dim), return_inverse, return_counts)
    return _captured_unique(input, dim, None, rows, (return_inverse, return_counts))


def _compared(name: str, input: Tensor, dim: int | None) -> Tensor:
    """What is compared: the flattened operand, or a matrix with a row for each slice."""
    spec = type_of(input)
    if spec.dtype.is_complex:
        raise UnsupportedDTypeError(f'"{name}" not implemented for {spec.dtype}', {"input": input})
    if dim is None:
        return input.reshape(-1)
    if spec.ndim == 0:
        raise AxisError("Dimension specified as 0 but tensor has no dimensions", {"input": input})
    axis = normalize_axis(dim, spec.ndim, name)
    others = [n for a, n in enumerate(spec.shape) if a != axis]
    if not seems_equal(spec.shape[axis], 0) and any(seems_equal(n, 0) for n in others):
        raise UsageError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied", {"input": input}
        )
    return input.movedim(axis, 0).reshape(spec.shape[axis], prod(others))


def _chosen(found: tuple[Any, Any, Any], inverse: bool, counts: bool) -> Any:
    parts = (found[0], *((found[1],) if inverse else ()), *((found[2],) if counts else ()))
    return parts[0] if len(parts) == 1 else parts


def _captured_unique(
    input: Tensor, dim: int | None, order: Tensor | None, rows: Tensor, wanted: tuple[bool, bool]
) -> Any:
    """Neighbours in ``order`` that differ begin a new value; how many do is a size that the step counts."""
    rows = rows.detach()
    count = type_of(rows).shape[0]
    line = rows if order is None else index_select(rows, 0, order)
    place = arange(count, device=type_of(rows).device)
    before = index_select(line, 0, clamp(place - 1, min=0))
    differs = line.ne(before)
    starts = (differs if type_of(differs).ndim == 1 else differs.any(1)) | place.eq(0)
    first = true_positions(starts)
    numbers = cast(starts, int64).cumsum(0) - 1
    chosen = first if order is None else index_select(order, 0, first)
    values = index_select(input.reshape(-1), 0, chosen) if dim is None else index_select(input, dim, chosen)
    inverse = numbers if order is None else scatter(numbers, 0, order, numbers)
    inverse = inverse.reshape(type_of(input).shape) if dim is None else inverse
    counts = index_add(first * 0, 0, numbers, numbers * 0 + 1) if wanted[1] else None
    return _chosen((bind(ops.UniqueValues(), values), inverse, counts), *wanted)


# -- counts


@declared()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each value of a vector of non-negative integers occurs, or the sum of its weights.

    The result has ``minlength`` elements, or as many as the greatest value asks for: ``i64[n] -> i64[count]``; with
    weights of their dtype (float64 unless they are float32).

    Raises:
        RuntimeError: the operand is not a vector or holds negative numbers, or there are not as many weights.
    """
    spec = type_of(input)
    if spec.dtype.category != 1:
        raise UnsupportedDTypeError(f'"bincount" not implemented for {spec.dtype}', {"input": input})
    if minlength < 0:
        raise UsageError("minlength should be >= 0", {"minlength": minlength})
    array = input._array if state.trace is None and isinstance(input._array, np.ndarray) else None
    if spec.ndim != 1:
        raise ShapeError(_NEGATIVE_COUNTS, {"input": input})
    if array is not None and array.size and int(array.min()) < 0:
        raise UsageError(_NEGATIVE_COUNTS, {"input": input})
    if weights is not None and (type_of(weights).ndim != 1 or not agree(type_of(weights).size, spec.size)):
        raise ShapeError(
            "weights should be 1-d and have the same length as input", {"weights": weights, "input": input}
        )
    if state.trace is None:
        return ops.bincount(input, weights, minlength)
    places = cast(input, int64)
    greatest = ops.concatenate([places, places.new_full((1,), -1)]).amax(0)
    length = where((places < 0).any(), -1, maximum(greatest + 1, as_operand(minlength)))
    count = extent(length, None, _NEGATIVE_COUNTS)
    if weights is None:
        weights = places * 0 + 1
    elif type_of(weights).dtype not in (float32, float64):
        weights = cast(weights, float64)
    return index_add(weights.new_zeros((count,)), 0, places, weights)


# -- repetitions


@declared()
def repeat_interleave(
    input: Tensor,
    repeats: Tensor | SupportsIndex | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element along ``dim`` (of the flattened operand without it) repeated in place.

    ``repeats`` is a number, or a vector with a number for every element. The operand alone is such a vector: its
    positions are repeated. ``output_size``, the length of the result, spares a captured step from counting it.

    Raises:
        RuntimeError: a number of repetitions is negative, there are not as many as elements, or ``output_size`` is
            not their sum.
    """
    if repeats is None:
        return _repeated_positions(input, output_size)
    if not isinstance(repeats, Tensor):
        count = as_extent(repeats)
        if count < 0:
            raise UsageError("Repeats must be non-negative", {"repeats": repeats})
        found: Tensor = ops.repeat_interleave(input, count, dim)
        return clone(found) if found is input or found._is_view() else found
    x, axis = (input.reshape(-1), 0) if dim is None else (input, normalize_axis(dim, type_of(input).ndim, "repeat"))
    if type_of(repeats).ndim > 1:
        raise UsageError("repeats must be 0-dim or 1-dim tensor", {"repeats": repeats})
    length = type_of(x).shape[axis]
    if seems_equal(type_of(repeats).size, 1):
        repeats = repeats.reshape(1).expand(length)
    elif not agree(type_of(repeats).size, length):
        raise UsageError(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{type_of(repeats).size} and input.size({axis}) = {length}",
            {"repeats": repeats},
        )
    return index_select(x, axis, _repeated_positions(repeats, output_size))


def _repeated_positions(repeats: Tensor, output_size: int | None) -> Tensor:
    """0, 1, 2, ... each that many times: ``i64[n] -> i64[sum]``."""
    spec = type_of(repeats)
    if spec.dtype not in (int32, int64):
        raise UnsupportedDTypeError(f'"repeat_interleave_cpu" not implemented for {spec.dtype}', {"repeats": repeats})
    if spec.ndim != 1:
        raise DTypeError("repeat_interleave only accept 1D vector as repeat", {"repeats": repeats})
    ends = cast(repeats, int64).cumsum(0)
    if state.trace is None and spec.device == CPU:
        return _known_positions(repeats, output_size)
    total = cast(repeats, int64).sum()
    is_negative = (repeats < 0).any()
    if state.trace is None:
        length = _checked_length(where(is_negative, -1, total), repeats, output_size)
        return _spread(ends, length)
    length = extent(where(is_negative, -1, total), None, _NEGATIVE_REPEATS) if output_size is None else output_size
    if output_size is not None:
        for holds, refusal in ((is_negative.logical_not(), _NEGATIVE_REPEATS), (total == output_size, _OTHER_SIZE)):
            check = Extent(output_size, refusal=refusal)
            state.trace.apply(check, (value_of(where(holds, output_size, -1)),))
    return _spread(ends, length)


def _spread(ends: Tensor, length: int) -> Tensor:
    """Which range a position is in, from where ranges end."""
    steps = index_add(ends.new_zeros((length + 1,)), 0, ends, ends * 0 + 1)
    return steps.cumsum(0)[:length]


def _checked_length(number: Tensor, repeats: Tensor, output_size: int | None) -> int:
    """In eager mode on a device: how many positions there are, of which only the sum is read."""
    length = int(number.item())
    if length < 0:
        raise UsageError(_NEGATIVE_REPEATS, {"repeats": repeats})
    if output_size not in (None, length):
        raise UsageError(_OTHER_SIZE, {"repeats": repeats, "output_size": output_size})
    return length


def _known_positions(repeats: Tensor, output_size: int | None) -> Tensor:
    counts = array_of(repeats)
    if counts.size and int(counts.min()) < 0:
        raise UsageError(_NEGATIVE_REPEATS, {"repeats": repeats})
    if output_size is not None and int(counts.sum()) != output_size:
        raise UsageError(_OTHER_SIZE, {"repeats": repeats, "output_size": output_size})
    return placed(wrap(np.repeat(np.arange(counts.size), counts)), type_of(repeats).device)
