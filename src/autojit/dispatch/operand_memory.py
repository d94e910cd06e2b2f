"""How the elements of an operand are in the memory of a device, as kernels of eager mode are compiled for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.core.device_array import Array, layout_in_memory, on_layout
from autojit.core.errors import UsageError
from autojit.core.strided_views import as_strided
from autojit.core.types import TensorType
from autojit.ir.concrete import hinted
from autojit.ops.reinterpret import AsStrided
from autojit.tensor.memory_orders import order_of, places_of
from autojit.tensor.tensor import array_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

Axes = tuple[int, ...]


class Memory(NamedTuple):
    """How the elements of an operand are in memory: what a kernel is compiled for.

    Args:
        axes: from the outermost in memory to the innermost, where they fill it in another order than row-major.
        steps: of each axis, in elements, where there are gaps between elements or some are shared.
    """

    type: TensorType
    axes: Axes | None = None
    steps: tuple[int, ...] | None = None


def is_packed(layout: NDArray[Any]) -> bool:
    """Whether elements fill their memory without gaps, in any order of the axes."""
    order = order_of(layout)
    return order is None or order[:1] != ("strides",)


def memory_of(array: Array) -> Memory:
    """How the elements of an array are in memory."""
    layout, kind = layout_in_memory(array), array_type(array)
    order = order_of(layout)
    if order is None:
        return Memory(kind)
    if order[:1] != ("strides",):
        return Memory(kind, axes=order)
    if any(step % layout.itemsize for step in layout.strides):
        raise UsageError(
            "the elements of the tensor are not at multiples of their size",
            {"tensor": kind, "strides in bytes": layout.strides},
            "take the view of a contiguous tensor",
        )
    return Memory(kind, steps=tuple([step // layout.itemsize for step in layout.strides]))


def base_of(array: Array, memory: Memory) -> Any:
    """The memory of an array as a kernel takes it: axes by falling strides; with gaps, all from first to last."""
    if memory.axes is not None:
        return array.transpose(memory.axes)
    if memory.steps is None:
        return array
    layout = layout_in_memory(array)
    lowest = layout[tuple([slice(None, None, -1 if step < 0 else 1) for step in layout.strides])]
    return on_layout(array, as_strided(lowest, (span(memory),), (layout.itemsize,)))


def span(memory: Memory) -> int:
    """From the first element in memory to behind the last one, in elements."""
    assert memory.steps is not None
    return 1 + sum((n - 1) * abs(step) for n, step in zip(memory.type.shape, memory.steps, strict=True))


def view_of(memory: Memory) -> AsStrided:
    """The view that an operand with gaps is of the line of memory that it is in."""
    steps = memory.steps
    assert steps is not None
    lowest = sum((n - 1) * step for n, step in zip(memory.type.shape, steps, strict=True) if step < 0)
    return AsStrided(memory.type.shape, steps, -lowest, span(memory))


def hinted_memory(memory: Memory) -> Memory:
    """The same with open extents at the values of the call that a kernel is made for: orders of axes are the same."""
    return memory._replace(type=memory.type.with_shape(hinted(memory.type.shape)))


def stand_in(memory: Memory) -> NDArray[Any]:
    """An array of the same layout that nobody reads."""
    size, shape = memory.type.dtype.size_bytes, memory.type.shape
    if memory.axes is not None:
        packed = np.empty([shape[axis] for axis in memory.axes], memory.type.dtype.numpy)
        return packed.transpose(places_of(memory.axes))
    flat = np.empty(span(memory), memory.type.dtype.numpy)
    view = view_of(memory)
    return as_strided(flat[view.offset :], shape, [step * size for step in view.strides])
