"""Filling parameters with their first values, in place and outside the derivative. torch.nn.init's functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.user_warnings import warn
from autojit.functions.argument_errors import name_arguments_in_errors
from autojit.tensor import Tensor

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor that keeps variances through a nonlinearity; ``param`` is leaky ReLU's slope."""
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif not isinstance(param, bool) and isinstance(param, int | float):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    with aj.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal."""
    with aj.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal, restricted to [a, b], by inverting its distribution function."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
            "incorrect.",
        )
    with aj.no_grad():
        low, high = _normal_cdf((a - mean) / std), _normal_cdf((b - mean) / std)
        tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
        return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """``val`` everywhere."""
    with aj.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with aj.no_grad():
        return tensor.copy_(aj.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution weights that copy as many input channels as they can."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    outputs, inputs, *kernel = tensor.shape
    if outputs % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = outputs // groups
    centre = tuple(size // 2 for size in kernel)
    with aj.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, inputs)):
                tensor[(group * per_group + channel, channel, *centre)] = 1.0
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with variance gain^2 2 / (fan_in + fan_out). Source: Glorot and Bengio, AISTATS 2010."""
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance gain^2 2 / (fan_in + fan_out). Source: Glorot and Bengio, AISTATS 2010."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    """The standard deviation; None for an empty tensor, which needs none."""
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform with variance gain^2 / fan. Source: arXiv:1502.01852."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with variance gain^2 / fan. Source: arXiv:1502.01852."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A matrix (later axes flattened) with orthonormal rows or columns. Source: arXiv:1312.6120."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with aj.no_grad():
        drawn = aj.empty((rows, columns), dtype=aj.float64, device="cpu").normal_(0, 1, generator=generator).numpy()
        q, r = np.linalg.qr(drawn.T if rows < columns else drawn)
        q = q * np.sign(np.diagonal(r))  # the unique factor with a positive diagonal makes q uniform
        q = (q.T if rows < columns else q).reshape(tuple(tensor.shape))
        return tensor.copy_(aj.tensor(q, device=tensor.device) * gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal with a share ``sparsity`` of each column set to zero."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    with aj.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            zeros = aj.randperm(rows, generator=generator, device=tensor.device)[: math.ceil(sparsity * rows)]
            tensor[zeros, column] = 0.0
    return tensor


def _older(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function under its name without the underscore, with a warning."""
    new = function.__name__
    old = new[:-1]

    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning)
        return function(*args, **kwargs)

    deprecated.__name__ = old
    deprecated.__doc__ = f"``{new}`` under its older name."
    return deprecated


name_arguments_in_errors(globals(), [name for name in globals() if name.endswith("_") and name[0] != "_"])
uniform = _older(uniform_)
normal = _older(normal_)
constant = _older(constant_)
eye = _older(eye_)
dirac = _older(dirac_)
xavier_uniform = _older(xavier_uniform_)
xavier_normal = _older(xavier_normal_)
kaiming_uniform = _older(kaiming_uniform_)
kaiming_normal = _older(kaiming_normal_)
orthogonal = _older(orthogonal_)
sparse = _older(sparse_)
