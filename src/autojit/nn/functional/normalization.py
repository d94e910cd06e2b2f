"""Normalisation over trailing axes, channels and groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

import autojit as aj
from autojit.core.errors import ArgumentError, DTypeError, ShapeError, UsageError
from autojit.core.sizes import agree, seems_equal
from autojit.core.top_level import top_level
from autojit.dispatch.kernels import in_one_step
from autojit.functions.autocast import in_full_precision, in_full_precision_on_devices
from autojit.functions.formats import laid_out_as
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.refused_dtypes import refuses
from autojit.nn.functional.reduction import promoted
from autojit.tensor import Tensor
from autojit.tensor.state import state

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


def _trailing_axes(name: str, input: Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(normalized_shape)
    if not shape:
        raise ShapeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
                           f"element, but got normalized_shape = {shape}")  # fmt: skip
    if input.ndim < len(shape) or tuple(input.shape[input.ndim - len(shape) :]) != shape:
        expected = ", ".join(["*", *map(str, shape)])
        raise ShapeError(
            f"{name}: given normalized_shape={list(shape)}, expected input with shape [{expected}], "
            f"but got input of size{list(input.shape)}",
            {"input": input},
            f"normalise over the trailing axes: normalized_shape={list(input.shape[-len(shape) :])}",
        )
    return tuple(range(input.ndim - len(shape), input.ndim))


def _check_affine(weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]) -> None:
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ShapeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(tensor.shape)} and normalized_shape = {list(shape)}"
            )


def _wide(input: Tensor) -> Tensor:
    """Half precision is normalised in float32: its sums lose too much otherwise."""
    return input.to(aj.float32) if input.dtype in (aj.float16, aj.bfloat16) else input


def _check_dtypes(name: str, input: Tensor, *parameters: Tensor | None) -> None:
    """Errors for parameters that have neither the input's dtype nor, with an input of halves, float32."""
    dtype = input.dtype
    allowed = (dtype, aj.float32) if dtype.size_bytes == 2 else (dtype,)
    for parameter in parameters:
        if parameter is not None and parameter.dtype not in allowed:
            raise DTypeError(
                f"{name}: mixed dtype: expected parameters of {dtype}, but got {parameter.dtype}",
                {"input": input, "parameter": parameter},
                "convert the module: module.to(input.dtype)",
            )


@refuses("bool int complex")
@in_full_precision_on_devices
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the trailing axes ``normalized_shape``.

    The variance is of the centred values (two passes), so a large mean costs no accuracy. Source: arXiv:1607.06450.
    """
    operands = [t for t in (input, weight, bias) if t is not None]
    if _fit(operands, normalized_shape):
        axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
        options = (axes, eps, weight is not None, bias is not None)
        return in_one_step("normalized", options, *operands, node="NativeLayerNormBackward0")
    axes = _trailing_axes("layer_norm", input, normalized_shape)
    _check_affine(weight, bias, normalized_shape)
    _check_dtypes("layer_norm", input, weight, bias)
    options = (axes, eps, weight is not None, bias is not None)
    operands = _given(_wide(input), weight, bias)
    return _narrowed(in_one_step("normalized", options, *operands, node="NativeLayerNormBackward0"), input)


def _fit(operands: Sequence[Tensor], shape: object) -> bool:
    """Whether operands that are at hand, the parameters of this shape and alike, need no further look."""
    first = operands[0]._array
    if type(shape) is not tuple or not shape or type(first) is not np.ndarray or first.dtype.char not in "fd":
        return False
    for t in operands[1:]:
        array = t._array
        if type(array) is not np.ndarray or array.shape != shape or array.dtype is not first.dtype:
            return False
    return bool(first.shape[-len(shape) :] == shape)


def _given(*operands: Tensor | None) -> list[Tensor]:
    """The operands that are there: halves in float32."""
    return [_wide(t) for t in operands if t is not None]


def _narrowed(found: Tensor, input: Tensor) -> Tensor:
    """The result in the dtype of the input."""
    return found if found.dtype is input.dtype else found.to(input.dtype)


@top_level
@refuses("bool int")
@in_full_precision_on_devices
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight; ``eps`` defaults to the dtype's. Source: arXiv:1910.07467."""
    axes = _trailing_axes("rms_norm", input, normalized_shape)
    _check_affine(weight, None, normalized_shape)
    x = _wide(input)
    eps = aj.finfo(x.dtype).eps if eps is None else eps
    options = (axes, eps, weight is not None)
    given = [x] if weight is None else promoted(x, _wide(weight))
    found = in_one_step("rms_normalized", options, *given, node="MulBackward0")
    return _narrowed(found, input)


def _check_channels(input: Tensor, **parameters: Tensor | None) -> None:
    """Raise where one of the parameters has not one element per channel."""
    channels = input.shape[1] if input.ndim > 1 else 1
    for name, t in parameters.items():
        if t is not None and not agree(t.numel(), channels):
            raise ShapeError(
                f"{name} should contain {channels} elements not {t.numel()}",
                {"input": input, name: t},
                f"the layer is for {t.numel()} channels (axis 1): make it for those of the input, or move its axis",
            )


def _along_channels(x: Tensor, *parameters: Tensor | None) -> list[Tensor]:
    """The parameters that are there, with one axis per axis of ``x``."""
    if x.ndim == 2:
        return _given(*parameters)
    shape = [1, -1] + [1] * (x.ndim - 2)
    return [_wide(t).reshape(shape) for t in parameters if t is not None]


@refuses("bool int complex")
@in_full_precision_on_devices
@no_view_of_parts
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise each sample over groups of channels (axis 1) and all later axes. Source: arXiv:1803.08494."""
    if input.ndim < 2:
        raise ShapeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    _check_dtypes("group_norm", input, weight, bias)
    channels = input.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise ShapeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    if seems_equal(channels, 0):
        raise ShapeError(f"Expected number of channels to be greater than 0, got {channels}")
    if any(seems_equal(n, 0) for n in input.shape[2:]):
        raise ShapeError("Expected HxW to be greater than 0, got 0", {"input": input})
    _check_channels(input, weight=weight, bias=bias)
    per_group = channels // num_groups
    if all(seems_equal(n, 1) for n in (input.shape[0], per_group, *input.shape[2:])):
        raise ArgumentError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    x = _wide(input).reshape(input.shape[0], num_groups, per_group, prod(input.shape[2:]))
    affine = [_wide(t).reshape(num_groups, per_group, 1) for t in (weight, bias) if t is not None]
    options = ((2, 3), eps, weight is not None, bias is not None)
    found = in_one_step("normalized", options, x, *affine, node="NativeGroupNormBackward0")
    return laid_out_as(_narrowed(found.reshape(input.shape), input), input)


def _require_batched(running: list[Tensor], mean: Tensor) -> None:
    """Raise where ``vmap`` would have every element write its own statistics to what all of them share."""
    for layer in reversed(state.layers):
        full, kept = layer.full(mean), [layer.full(t) for t in running]
        if full is not None and any(whole is None for whole in kept):
            raise UsageError(
                "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated "
                "in place, were not batched",
                {"mean": mean, "running": running[0]},
                "let it use the batch alone: track_running_stats=False, or func.replace_all_batch_norm_modules_(model)",
            )
        mean = mean if full is None else full
        running = [t if whole is None else whole for t, whole in zip(running, kept, strict=True)]


def _update_running(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    var: Tensor,
    count: int,
    momentum: float | Tensor,
) -> None:
    """running = (1 - momentum) running + momentum batch, in place and outside the derivative; of unbiased variances."""
    _require_batched([t for t in (running_mean, running_var) if t is not None], mean)
    with aj.no_grad():
        if running_mean is not None:
            running_mean.mul_(1.0 - momentum).add_(mean.reshape(-1).to(running_mean.dtype) * momentum)
        if running_var is not None:
            unbiased = var.reshape(-1) * (count / (count - 1))
            running_var.mul_(1.0 - momentum).add_(unbiased.to(running_var.dtype) * momentum)


@refuses("bool int complex")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (axis 1) over batch and space; in training the running statistics follow in place.

    The running variance is unbiased, the normalising one biased, as in torch. Source: arXiv:1502.03167.
    """
    if eps < 0 or (training and eps == 0):
        bound = "positive during training" if training else "non-negative"
        raise ArgumentError(f"batch_norm eps must be {bound}, but got {eps}")
    if input.numel() == 0:
        return _empty_batch_norm(input, weight, bias)
    _check_dtypes("batch_norm", input, weight, bias)
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    x = _wide(input)
    if not training:
        if running_mean is None or running_var is None:
            raise UsageError("Expected running_mean and running_var to be defined when training=False")
        given = _along_channels(x, running_mean, running_var, weight, bias)
        options = (eps, weight is not None, bias is not None)
        found = in_one_step("shifted_and_scaled", options, x, *given, node="NativeBatchNormBackward0")
        return laid_out_as(_narrowed(found, input), input, or_dense=True)
    axes = (0, *range(2, x.ndim))
    count = prod(x.shape[axis] for axis in axes)
    if count <= 1:
        raise ArgumentError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    found, var, mean = _with_moments(x, axes, eps, weight, bias)
    _update_running(running_mean, running_var, mean, var, count, momentum)
    return laid_out_as(_narrowed(found, input), input, or_dense=True)


def _with_moments(
    x: Tensor, axes: tuple[int, ...], eps: float, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """``x`` normalised over axes, scaled and shifted by channel; the variance and the mean, without their history."""
    options = (axes, eps, weight is not None, bias is not None)
    operands = (x, *_along_channels(x, weight, bias))
    node = "NativeBatchNormBackward0"
    found, var, mean = in_one_step("normalized_with_moments", options, *operands, node=node, results=3)
    return found, var.detach(), mean.detach()


def _empty_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """No elements, in the input's shape and with its history; the statistics stay as they are. Any rank is taken."""
    found = input.clone()
    for parameter in (weight, bias):
        if parameter is not None and parameter.numel():
            found = found * parameter[0]
    return found


@refuses("bool int complex")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample over space. Source: arXiv:1607.08022."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    x = _wide(input)
    axes = tuple(range(2, x.ndim))
    count = prod(x.shape[2:])
    if count <= 1:
        raise ArgumentError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    found, var, mean = _with_moments(x, axes, eps, weight, bias)
    if running_mean is not None or running_var is not None:
        _update_running(running_mean, running_var, mean.mean(0), var.mean(0), count, momentum)
    return _narrowed(found, input)


@in_full_precision
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of x^2 over ``size`` neighbouring channels)^beta. Shapes: ``f[n, c, ...]`` kept.

    Raises:
        ValueError: fewer than 3 axes.

    Source: Krizhevsky, Sutskever and Hinton, NIPS 2012.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.local_response_norm(aj.ones(1, 2, 1), 2, alpha=2.0, beta=1.0)
        tensor([[[0.5000],
                 [0.3333]]])
    """
    if input.ndim < 3:
        raise ArgumentError(
            f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)", {"input": input}
        )
    if input.numel() == 0:
        return input
    total = channel_sum(input * input, size // 2, (size - 1) // 2)
    mean = total / size if total.is_floating_point() else aj.div(total, size, rounding_mode="trunc")
    return input / (mean * alpha + k).pow(beta)


def channel_sum(x: Tensor, before: int, after: int) -> Tensor:
    """Of every channel (axis 1) the sum over it and its neighbours; nothing beyond the first and last channel."""
    channels = x.shape[1]
    padded = x.new_zeros((x.shape[0], before, *x.shape[2:])), x, x.new_zeros((x.shape[0], after, *x.shape[2:]))
    wide = aj.cat(padded, 1)
    total = wide.narrow(1, 0, channels)
    for shift in range(1, before + after + 1):
        total = total + wide.narrow(1, shift, channels)
    return total
