"""Images with the channels innermost in memory: layers and `cat` that get theirs so give theirs so, as in torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autojit.functions.memory import channels_last, channels_last_3d, is_contiguous, laid_out, order_in
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import layout_of

_FORMATS = {4: channels_last, 5: channels_last_3d}


def laid_out_as(found: Tensor, input: Tensor, *, or_dense: bool = False) -> Tensor:
    """A fresh result, moved so that the channels (axis 1) are innermost in memory where they are so in the input.

    Args:
        or_dense: also where that is only a way to see it, as steps along axes of one element say nothing.
    """
    array = input._array
    if type(array) is np.ndarray and array.flags.c_contiguous:
        return found
    wanted = _FORMATS.get(input.ndim)
    if wanted is None or found.ndim != input.ndim or found is input:
        return found
    if not (has_channels_innermost(input) or (or_dense and is_contiguous(input, memory_format=wanted))):
        return found
    return found if is_contiguous(found, memory_format=wanted) else laid_out(found, order_in(found, wanted))


def in_their_format(found: Tensor, inputs: Sequence[Tensor], dim: int | None = None) -> Tensor:
    """What joins inputs, laid out as they are where the channels are innermost in all of them, as in torch.

    Args:
        dim: of a stack, which is laid out as ``cat`` along that axis would be, taken apart.
    """
    array, ndim = inputs[0]._array, inputs[0].ndim
    if ndim not in _FORMATS or (type(array) is np.ndarray and array.flags.c_contiguous):
        return found
    axis = None if dim is None else normalize_axis(dim, ndim + 1, "stack")
    if axis == ndim or not all([x.ndim in _FORMATS and has_channels_innermost(x) for x in inputs]):  # noqa: C419
        return found
    if axis is None:
        return laid_out_as(found, inputs[0])
    order: list[int] = []
    for k in (0, *range(2, ndim), 1):
        order += [axis, k + 1] if k == axis else [k + (k > axis)]
    return laid_out(found, order)


def has_channels_innermost(x: Tensor) -> bool:
    """torch's rule, which gaps in memory do not matter to: steps grow from the channels outwards."""
    layout = layout_of(x)  # of a step with open sizes one that stands for all: digits are not asked for
    shape, steps, least = layout.shape, layout.strides, 0
    if layout.flags.c_contiguous or steps[1] == 0:
        return False
    for axis in (1, *range(x.ndim - 1, 1, -1), 0):
        if shape[axis] == 0 or steps[axis] < least or (axis == 0 and least == steps[1]):
            return False
        least = steps[axis] * shape[axis]
    return True
