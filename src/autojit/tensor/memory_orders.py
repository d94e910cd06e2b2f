"""How results are laid out in memory: one rule for what is computed at once and for what a captured step will compute.

- A view shows its operand's memory; ``reshape`` is one where strides allow it, else a fresh tensor in row-major order.
- An op that keeps the order of its operands (``Op.keeps_order``: the elementwise ones) lays its result out as
  `ops.loop_orders` says: the axes as they are in the operands, without gaps; where operands disagree, as in the first.
- Every other result is in row-major order.

Eagerly NumPy makes the arrays, and ``dispatch`` puts those in row-major order that must be and are not. Under capture
a *stand-in* tells shape and strides: an array of the right layout, which nobody reads or writes, so that it costs
address space only; None stands for row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.device_array import layout_in_memory
from autojit.core.size_recorder import asked
from autojit.core.sizes import agree, is_counted, surely_equal
from autojit.core.types import TensorType
from autojit.ir.concrete import hinted, is_open, symbols_of
from autojit.ir.op import Op
from autojit.ops.loop_orders import in_order_of
from autojit.ops.reinterpret import AsStrided
from autojit.ops.shape import Reshape, Slice
from autojit.ops.views import ViewUpdate

if TYPE_CHECKING:
    from numpy.typing import NDArray

Order = tuple[Any, ...] | None
"""None: row-major. A permutation: the axes from the outermost in memory, without gaps. ("strides", ...): others."""

LayoutKind = tuple[tuple[int, ...], tuple[int, ...], bool] | None
"""What the order of results depends on, without steps: axes from the outermost in memory, those of step 0, has gaps."""


def kind_of(array: NDArray[Any]) -> LayoutKind:
    """The kind of an array's layout; None: row-major."""
    array = layout_in_memory(array)
    if array.flags.c_contiguous:
        return None
    axes = outermost_first(array)
    still = tuple([k for k, (step, n) in enumerate(zip(array.strides, array.shape, strict=True)) if not step and n > 1])
    once = array.transpose(axes)[tuple([slice(0, 1) if axis in still else slice(None) for axis in axes])]
    return axes, still, not once.flags.c_contiguous


def of_kind(kind: LayoutKind, of: TensorType) -> NDArray[Any]:
    """A stand-in of a type whose layout is of a kind."""
    if kind is None:
        return row_major(of)
    axes, still, has_gaps = kind
    shape = hinted(of.shape)
    steps = _packed([axis for axis in axes if axis not in still], shape, of.dtype.numpy.itemsize * (1 + has_gaps))
    found = stand_in(shape, steps, of.dtype.numpy)
    return row_major(of) if found is None else found


def row_major(kind: TensorType) -> NDArray[Any]:
    """A stand-in in row-major order; open sizes have the values of the capture."""
    return np.empty(hinted(kind.shape), kind.dtype.numpy)


def stand_in(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """A stand-in of the given strides (in bytes)."""
    low = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0 and n)
    high = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step > 0 and n)
    memory = np.empty(high - low + dtype.itemsize, np.uint8)
    made: NDArray[Any] = np.ndarray(shape, dtype, memory, -low, strides)
    return None if made.flags.c_contiguous else made


def laid_alike(array: NDArray[Any], of: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of what is laid out like the array; where open sizes have other hints it is another."""
    shape, order = hinted(of.shape), order_of(array)
    if array.shape == shape or (order is not None and order[:1] == ("strides",)):
        return shape, array.strides
    return shape, _packed(range(len(shape)) if order is None else order, shape, array.itemsize)


def _packed(axes: Sequence[int], shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """The steps of axes, outermost first, without gaps between elements that are ``step`` apart; 0 of all others."""
    steps = [0] * len(shape)
    for axis in reversed(axes):
        steps[axis] = step
        step *= max(shape[axis], 1)
    return tuple(steps)


def result_order(
    op: Op, operands: Sequence[NDArray[Any] | None], types: Sequence[TensorType], result: TensorType
) -> NDArray[Any] | None:
    """The stand-in of an op's result, from those of its operands."""
    if op.is_view:
        return view_order(op, operands[0], types[0])
    if not op.keeps_order:
        return None
    if type(op) is ViewUpdate:
        operands, types = operands[:1], types[:1]
    if all(operand is None for operand in operands):
        return None
    arrays = [row_major(t) if a is None else a for a, t in zip(operands, types, strict=True)]
    for kind in types:
        _decide_extents(kind.shape)
    found = in_order_of(arrays, result.dtype.numpy)
    return None if found.flags.c_contiguous else found


def view_order(op: Op, operand: NDArray[Any] | None, kind: TensorType) -> NDArray[Any] | None:
    """The stand-in of a view; None also where the result is a copy, which is in row-major order."""
    if type(op) is Reshape:
        found = None if operand is None else reshaped_in_place(operand, hinted(op.shape))
    else:
        base = row_major(kind) if operand is None else operand
        if type(op) is AsStrided and not base.flags.c_contiguous:
            base = row_major(kind)
        found = hinted(op).eager(base)
    _decide_order(op, kind, operand, found)
    return None if found is None or found.flags.c_contiguous else found


def _decide_order(op: Op, kind: TensorType, operand: NDArray[Any] | None, found: NDArray[Any] | None) -> None:
    """Let a capture hold for sizes alone with which a view's axes are laid out in memory as they are now.

    They do so for all sizes from 2 on. An extent that is made of sizes (``n // 2``) may also be 0 or 1, and a view be
    in row-major order then that is not otherwise.
    """
    if asked.recorder is None or not (is_open(kind.shape) or symbols_of(op)):
        return
    was_row_major = operand is None or operand.flags.c_contiguous
    if was_row_major and (type(op) is Reshape or _is_part_of_first(op, kind)):
        return
    extents = (*kind.shape, *op.result_type(kind).shape)
    is_row_major = was_row_major and (found is None or found.flags.c_contiguous)
    if not is_row_major or any(n < 2 for n in hinted(extents)):
        _decide_extents(extents)


def _is_part_of_first(op: Op, kind: TensorType) -> bool:
    """Whether a view shows a part without gaps of the first axis, and the others whole."""
    return (
        type(op) is Slice
        and surely_equal(op.extents[1:], kind.shape[1:])
        and all(surely_equal(step, 1) for step in op.steps[:1])
    )


def _decide_extents(shape: Sequence[int]) -> None:
    """Let the capture hold for extents alone that are 0, 1 or more as they are now."""
    for n in shape:
        if not _decide(n, 1):
            _decide(n, 0)


def _decide(a: int, b: int) -> bool:
    """Whether two extents are equal, at which the capture answers for all sizes; those that it counts are as such."""
    return not (is_counted(a) or is_counted(b)) and agree(a, b)


def reshaped_in_place(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The view of an array under another shape; None where there is none."""
    try:
        return array.reshape(shape, copy=False)
    except ValueError:  # a copy would touch memory that nobody has touched
        return None


def seen_through(root: NDArray[Any], chain: Sequence[Op], kind: TensorType | None = None) -> NDArray[Any]:
    """What views show of an array, which stands for one of a type with open sizes."""
    for op in chain:
        found = hinted(op).eager(root)
        if kind is not None:
            _decide_order(op, kind, root, found)
            if type(op) is Slice and not _is_part_of_first(op, kind):
                _decide_gaps(op, kind)
            kind = op.result_type(kind)
        root = found
    return root


def _decide_gaps(op: Slice, kind: TensorType) -> None:
    """Let a capture hold for sizes alone with which a slice shows whole axes as it does now."""
    if asked.recorder is not None:
        for n, of, step in zip(op.extents, kind.shape, op.steps, strict=True):
            _decide(n, of)
            _decide(step, 1)


def has_steps(array: NDArray[Any], steps: tuple[int, ...]) -> bool:
    """Whether a stand-in has these strides, in elements."""
    return bool(hinted(steps) == tuple(step // array.itemsize for step in array.strides))


def order_of(array: NDArray[Any]) -> Order:
    """How the elements of an array are laid out."""
    if array.flags.c_contiguous:
        return None
    axes = outermost_first(array)
    return axes if array.transpose(axes).flags.c_contiguous else ("strides", *array.strides)


def copied_order(array: NDArray[Any], kind: TensorType) -> Order:
    """The layout of what an op makes of an array: without the gaps that the array may have."""
    found = order_of(array)
    if found is None or found[:1] != ("strides",):
        return found
    _decide_extents(kind.shape)
    return order_of(in_order_of([array], array.dtype))


def lie_alike(a: Order, b: Order, shape: Sequence[int]) -> bool:
    """Whether two orders lay elements out alike: the place of an axis of one element says nothing."""

    def axes(order: Order) -> tuple[Any, ...]:
        found: Any = range(len(shape)) if order is None else order
        return found if found[:1] == ("strides",) else tuple([axis for axis in found if shape[axis] != 1])

    return axes(a) == axes(b)


def outermost_first(array: NDArray[Any]) -> tuple[int, ...]:
    """The axes by falling strides; of those with the same, one of size 1 is inside the other."""
    strides, shape = array.strides, array.shape
    return tuple(sorted(range(array.ndim), key=lambda axis: (-strides[axis], shape[axis] == 1, axis)))


def places_of(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that takes ``transpose(order)`` back."""
    places = [0] * len(order)
    for place, axis in enumerate(order):
        places[axis] = place
    return tuple(places)
