"""Tensors of NumPy arrays: with the elements of one that nobody else has, or on the memory of one.

Inside a capture a tensor that the function makes begins again at every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.dtypes import dtype_of_numpy
from autojit.ops.sources import Constant
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, wrap, wrap_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TABLE_LIMIT = 64  # elements; larger arrays inside a capture are kept beside the graph instead of being written into it


def constant(array: NDArray[Any]) -> Tensor:
    """A tensor of an array that nobody else has: inside a capture, what every call begins with."""
    if state.trace is None or array.size > _TABLE_LIMIT:
        return wrap(array) if state.trace is None else wrap_value(state.trace.begin_with(array))
    table = np.ascontiguousarray(array)
    op = Constant(table.tobytes().hex(), dtype_of_numpy(array.dtype), array.shape)
    return wrap_value(state.trace.apply(op, ())[0])


def on_memory_of(array: NDArray[Any]) -> Tensor:
    """A tensor on an array's memory; inside a capture, one that the function has made is made again at every call."""
    trace = state.trace
    is_made = trace is not None and array.flags.writeable and trace.begins(array)
    return trace.begin_on(array) if trace is not None and is_made else wrap(array)


__all__ = ["constant", "on_memory_of"]
