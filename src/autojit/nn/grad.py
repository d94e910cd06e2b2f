"""torch.nn.grad: the derivatives of convolutions by their input and by their weight, as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.nn import functional as F
from autojit.nn.functional.windows import Extents
from autojit.tensor import Tensor


def _pulled(convolve: Callable[[Tensor], Any], like: Tensor, size: Sequence[int], grad_output: Tensor) -> Tensor:
    """What the cotangent of a convolution is for the operand of the given size; linear, so any operand will do."""
    from autojit.func import vjp  # it loads the compiler, which not every model needs

    _, pull = vjp(convolve, like.new_zeros(tuple(size)))
    pulled: tuple[Tensor, ...] = pull(grad_output)
    return pulled[0]


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """The cotangent of the input of ``conv1d`` for that of its output.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn.grad import conv1d_input
        >>> conv1d_input((1, 1, 3), aj.tensor([[[1.0, 2.0]]]), aj.ones(1, 1, 2)).flatten()
        tensor([1., 3., 2.])
    """
    return _pulled(lambda x: F.conv1d(x, weight, None, stride, padding, dilation, groups), weight, input_size,
                   grad_output)  # fmt: skip


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """The cotangent of the weight of ``conv1d`` for that of its output."""
    return _pulled(lambda w: F.conv1d(input, w, None, stride, padding, dilation, groups), input, weight_size,
                   grad_output)  # fmt: skip


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """The cotangent of the input of ``conv2d`` for that of its output."""
    return _pulled(lambda x: F.conv2d(x, weight, None, stride, padding, dilation, groups), weight, input_size,
                   grad_output)  # fmt: skip


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """The cotangent of the weight of ``conv2d`` for that of its output."""
    return _pulled(lambda w: F.conv2d(input, w, None, stride, padding, dilation, groups), input, weight_size,
                   grad_output)  # fmt: skip


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """The cotangent of the input of ``conv3d`` for that of its output."""
    return _pulled(lambda x: F.conv3d(x, weight, None, stride, padding, dilation, groups), weight, input_size,
                   grad_output)  # fmt: skip


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """The cotangent of the weight of ``conv3d`` for that of its output."""
    return _pulled(lambda w: F.conv3d(input, w, None, stride, padding, dilation, groups), input, weight_size,
                   grad_output)  # fmt: skip
