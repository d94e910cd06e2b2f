"""Convolutions over one, two and three spatial axes, and their transposes. ``F`` in the examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from autojit import ops
from autojit.core.dtypes import HALVES, DType, float32
from autojit.core.errors import DTypeError, ShapeError, UsageError
from autojit.core.top_level import top_level
from autojit.dispatch.call_programs import by_calls
from autojit.functions.autocast import in_lower_precision
from autojit.functions.formats import laid_out_as
from autojit.history.op_node import rename_node
from autojit.nn.functional.windows import Extents
from autojit.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


@top_level
@in_lower_precision
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Extents | str = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve signals with a bank of kernels (cross-correlation: kernels are not turned round).

    Shapes: ``f[(n,) c, length], f[o, c / groups, k] (, f[o]) -> f[(n,) o, places]``.

    Args:
        padding: zeros on both sides, ``"valid"`` for none, ``"same"`` for a result as long as the input.

    Raises:
        RuntimeError: ranks, channels or groups do not fit, dtypes differ, or the kernel is longer than the input.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv1d(aj.tensor([[[1.0, 2.0, 3.0, 4.0]]]), aj.tensor([[[1.0, -1.0]]]))
        tensor([[[-1., -1., -1.]]])
    """
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


@top_level
@in_lower_precision
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Extents | str = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve images with a bank of kernels; see ``conv1d``.

    Shapes: ``f[(n,) c, h, w], f[o, c / groups, kh, kw] (, f[o]) -> f[(n,) o, h', w']``.

    Raises:
        RuntimeError: as ``conv1d``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv2d(aj.ones(1, 1, 3, 3), aj.ones(1, 1, 2, 2), padding="same")
        tensor([[[[4., 4., 2.],
                  [4., 4., 2.],
                  [2., 2., 1.]]]])
    """
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


@top_level
@in_lower_precision
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Extents | str = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve volumes with a bank of kernels; see ``conv1d``.

    Shapes: ``f[(n,) c, d, h, w], f[o, c / groups, kd, kh, kw] (, f[o]) -> f[(n,) o, d', h', w']``.

    Raises:
        RuntimeError: as ``conv1d``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv3d(aj.ones(1, 2, 3, 3, 3), aj.ones(4, 2, 2, 2, 2)).shape
        autojit.Size([1, 4, 2, 2, 2])
    """
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups)


@top_level
@in_lower_precision
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
    groups: int = 1,
    dilation: Extents = 1,
) -> Tensor:
    """The transposed convolution: what the derivative of ``conv1d`` by its input does to ``input``.

    Shapes: ``f[(n,) c, length], f[c, o / groups, k] (, f[o]) -> f[(n,) o, (length - 1) stride - 2 padding + dilation
    (k - 1) + output_padding + 1]``.

    Raises:
        RuntimeError: ranks, channels, groups or paddings do not fit, or dtypes differ.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv_transpose1d(aj.tensor([[[1.0, 2.0]]]), aj.tensor([[[1.0, 10.0]]]), stride=2)
        tensor([[[ 1., 10.,  2., 20.]]])
    """
    return _convolve_transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@top_level
@in_lower_precision
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
    groups: int = 1,
    dilation: Extents = 1,
) -> Tensor:
    """The transposed convolution of images; see ``conv_transpose1d``.

    Shapes: ``f[(n,) c, h, w], f[c, o / groups, kh, kw] (, f[o]) -> f[(n,) o, h', w']``.

    Raises:
        RuntimeError: as ``conv_transpose1d``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv_transpose2d(aj.ones(1, 3, 4, 4), aj.ones(3, 2, 3, 3), stride=2, padding=1, output_padding=1).shape
        autojit.Size([1, 2, 8, 8])
    """
    return _convolve_transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@top_level
@in_lower_precision
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
    groups: int = 1,
    dilation: Extents = 1,
) -> Tensor:
    """The transposed convolution of volumes; see ``conv_transpose1d``.

    Shapes: ``f[(n,) c, d, h, w], f[c, o / groups, kd, kh, kw] (, f[o]) -> f[(n,) o, d', h', w']``.

    Raises:
        RuntimeError: as ``conv_transpose1d``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv_transpose3d(aj.ones(3, 2, 2, 2), aj.ones(3, 1, 2, 2, 2)).shape
        autojit.Size([1, 3, 3, 3])
    """
    return _convolve_transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def extents(value: Extents, ndim: int, what: str) -> tuple[int, ...]:
    """One number per spatial axis from a number, a sequence of one number, or a sequence of ``ndim``."""
    if isinstance(value, Sequence):
        given = tuple(int(n) for n in value)
        if len(given) not in (1, ndim):
            raise UsageError(
                f"expected {what} to be a single integer value or a list of {ndim} values to match the convolution "
                f"dimensions, but got {what}={list(given)}"
            )
        return given * (ndim // len(given))
    return (int(value),) * ndim


@top_level
@in_lower_precision
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """``conv1d`` of sequences stored by time, batch, channel. Shapes: ``f[t, n, c], f[k, c, o], f[o] -> f[t', n, o]``.

    Raises:
        RuntimeError: wrong ranks or extents.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.conv_tbc(aj.ones(3, 1, 1), aj.ones(2, 1, 1), aj.zeros(1)).flatten()
        tensor([2., 2.])
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise ShapeError("conv_tbc: input and weight must have 3 dims: time, batch, channel", {"input": input})
    found = _convolve(1, input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1)
    return found.permute(2, 0, 1)


def _convolve(
    ndim: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Extents,
    padding: Extents | str,
    dilation: Extents,
    groups: int,
) -> Tensor:
    images = _stack(input, weight, ndim, f"conv{ndim}d")
    steps, spacing = extents(stride, ndim, "stride"), extents(dilation, ndim, "dilation")
    low, high = _paddings(padding, weight, steps, spacing)
    _check_bias(input, weight, bias, weight.shape[0], "")
    wide = _kept_wide(input, weight, bias)
    found = by_calls(
        ("convolve", *steps, *low, *high, *spacing, groups, "" if wide is None else wide.name),
        lambda x, w: ops.convolve(x, w, steps, low, spacing, groups, high=high, result=wide),
        images,
        weight,
    )
    return _finish(input, weight, found, bias)


def _convolve_transposed(
    ndim: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Extents,
    padding: Extents,
    output_padding: Extents,
    groups: int,
    dilation: Extents,
) -> Tensor:
    images = _stack(input, weight, ndim, f"conv_transpose{ndim}d")
    steps, low = extents(stride, ndim, "stride"), extents(padding, ndim, "padding")
    extra, spacing = extents(output_padding, ndim, "output_padding"), extents(dilation, ndim, "dilation")
    _check_bias(input, weight, bias, weight.shape[1] * groups, "transposed=1, ")
    wide = _kept_wide(input, weight, bias)
    found = ops.convolve_transposed(images, weight, steps, low, extra, spacing, groups, result=wide)
    return _finish(input, weight, found, bias)


def _stack(input: Tensor, weight: Tensor, ndim: int, name: str) -> Tensor:
    """The input as a stack of images; a single image becomes a stack of one."""
    if weight.ndim != ndim + 2:
        raise ShapeError(f"{name}: expected a {ndim + 2}D weight, but got weight of size: {list(weight.shape)}")
    if input.ndim not in (ndim + 1, ndim + 2):
        raise ShapeError(
            f"Expected {ndim + 1}D (unbatched) or {ndim + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    return input.unsqueeze(0) if input.ndim == ndim + 1 else input


def _paddings(
    padding: Extents | str, weight: Tensor, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Zeros (before, after) each axis."""
    ndim = len(stride)
    if not isinstance(padding, str):
        low = extents(padding, ndim, "padding")
        return low, low
    if padding == "valid":
        return (0,) * ndim, (0,) * ndim
    if padding != "same":
        raise UsageError(f"Invalid padding string: '{padding}'", fix="use 'valid' or 'same'")
    if any(step != 1 for step in stride):
        raise UsageError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    return tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)


def _check_bias(input: Tensor, weight: Tensor, bias: Tensor | None, outputs: int, what: str) -> None:
    if bias is None:
        return
    if bias.dtype is not input.dtype:
        raise DTypeError(f"Input type ({input.dtype}) and bias type ({bias.dtype}) should be the same")
    if tuple(bias.shape) != (outputs,):
        raise ShapeError(
            f"Given {what}weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {outputs} "
            f"elements, but got bias of size {list(bias.shape)} instead"
        )


def _kept_wide(input: Tensor, weight: Tensor, bias: Tensor | None) -> DType | None:
    """Halves that a bias is added to are rounded with it, once."""
    return float32 if bias is not None and input.dtype is weight.dtype and input.dtype in HALVES else None


def _finish(input: Tensor, weight: Tensor, found: Any, bias: Tensor | None) -> Tensor:
    """Add the bias; a single image stays one. Channels are innermost where they are so in the image or the weight."""
    result = found
    if bias is not None:
        summand = bias.reshape(-1, *(1,) * (found.ndim - 2))
        wide = found.dtype is not bias.dtype
        result = (found + summand.to(found.dtype)).to(bias.dtype) if wide else found + summand
    rename_node(result, "ConvolutionBackward0", bias_sym_sizes_opt=(0,) if bias is None else tuple(bias.shape))
    if input.ndim != found.ndim:
        return cast(Tensor, result.squeeze(0))
    return laid_out_as(laid_out_as(cast(Tensor, result), input), weight)
