"""Whether what a view op gave is a view: ``reshape`` copies where strides allow none."""

from __future__ import annotations

from autojit.core.device_array import Array, share_memory
from autojit.ir.concrete import hinted
from autojit.ir.op import Op
from autojit.ops.shape import Reshape
from autojit.tensor.memory_orders import reshaped_in_place
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, layout_of

__all__ = ["shows_memory_of"]


def shows_memory_of(op: Op, operand: Tensor, array: Array | None) -> bool:
    """Whether a view op that may copy shows the memory of its operand; ``array`` is its result, None if traced."""
    if array is None:
        if operand._view is None and operand._array is None and _is_row_major(operand):
            return True
        base = layout_of(operand)
        if base.flags.c_contiguous:
            return True
        if isinstance(op, Reshape):
            return reshaped_in_place(base, hinted(op.shape)) is not None
        return _aliases(base, hinted(op).eager(base))
    return _aliases(operand._array, array)


def _is_row_major(t: Tensor) -> bool:
    """Whether a traced tensor that is not a view is in row-major order."""
    value = t._value if t._storage is None or t._storage.value is None else t._storage.value
    return state.trace is None or value is None or state.trace.order_of(value) is None


def _aliases(base: Array, piece: Array) -> bool:
    return base.flags.c_contiguous or share_memory(base, piece)
