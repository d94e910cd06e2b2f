"""How results lie in memory: one rule for what is computed at once and for what a captured step will compute.

- A view shows its operand's memory; ``reshape`` is one where strides allow it, else a fresh tensor in row-major order.
- An op that keeps the order of its operands (``Op.keeps_order``: the elementwise ones) lays its result out as NumPy's
  loops do: the axes as they lie in the operands, without gaps; where operands disagree, in row-major order.
- Every other result is in row-major order.

Eagerly NumPy makes the arrays, and ``dispatch`` puts those in row-major order that must be and are not. Under capture
a *stand-in* tells shape and strides: an array of the right layout, which nobody reads or writes, so that it costs
address space only; None stands for row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.types import TensorType
from autojit.ir.concrete import hinted
from autojit.ir.op import Op
from autojit.ops.loop_orders import in_order_of
from autojit.ops.reinterpret import AsStrided
from autojit.ops.shape import Reshape
from autojit.ops.views import ViewUpdate

if TYPE_CHECKING:
    from numpy.typing import NDArray

StandIn = "NDArray[Any] | None"
Order = tuple[Any, ...] | None
"""None: row-major. A permutation: the axes from the outermost in memory, without gaps. ("strides", ...): others."""

LayoutKind = tuple[tuple[int, ...], tuple[int, ...], bool] | None
"""What the order of results depends on, without steps: axes from the outermost in memory, those of step 0, has gaps."""


def kind_of(array: NDArray[Any]) -> LayoutKind:
    """The kind of an array's layout; None: row-major."""
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
    steps = [0] * len(shape)
    step = of.dtype.numpy.itemsize * (2 if has_gaps else 1)
    for axis in reversed(axes):
        if axis not in still:
            steps[axis] = step
            step *= shape[axis]
    found = stand_in(shape, tuple(steps), of.dtype.numpy)
    return row_major(of) if found is None else found


def row_major(kind: TensorType) -> NDArray[Any]:
    """A stand-in in row-major order; open sizes have the values of the capture."""
    return np.empty(hinted(kind.shape), kind.dtype.numpy)


def stand_in(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> NDArray[Any] | None:
    """A stand-in of the given strides (in bytes)."""
    low = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0 and n)
    high = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step > 0 and n)
    memory = np.empty(high - low + dtype.itemsize, np.uint8)
    made: NDArray[Any] = np.ndarray(shape, dtype, memory, -low, strides)
    return None if made.flags.c_contiguous else made


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
    return None if found is None or found.flags.c_contiguous else found


def reshaped_in_place(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The view of an array under another shape; None where there is none."""
    try:
        return array.reshape(shape, copy=False)
    except ValueError:  # a copy would touch memory that nobody has touched
        return None


def seen_through(root: NDArray[Any], chain: Sequence[Op]) -> NDArray[Any]:
    """What views show of an array."""
    for op in chain:
        root = hinted(op).eager(root)
    return root


def order_of(array: NDArray[Any]) -> Order:
    """How the elements of an array lie."""
    if array.flags.c_contiguous:
        return None
    axes = outermost_first(array)
    return axes if array.transpose(axes).flags.c_contiguous else ("strides", *array.strides)


def outermost_first(array: NDArray[Any]) -> tuple[int, ...]:
    """The axes by falling strides; of those with the same, one of size 1 lies inside the other."""
    strides, shape = array.strides, array.shape
    return tuple(sorted(range(array.ndim), key=lambda axis: (-strides[axis], shape[axis] == 1, axis)))


def places_of(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that takes ``transpose(order)`` back."""
    places = [0] * len(order)
    for place, axis in enumerate(order):
        places[axis] = place
    return tuple(places)
