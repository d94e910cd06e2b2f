"""Normalisation layers over trailing axes and groups; those over the batch are in batchnorm.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError
from autojit.nn import functional as F
from autojit.nn import init
from autojit.nn.declared_layer import AffineLayer, DeclaredLayer
from autojit.nn.functional.normalization import channel_sum
from autojit.nn.parameter import Parameter
from autojit.tensor import Tensor

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _shape_of(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(AffineLayer, shows="*normalized_shape eps elementwise_affine bias"):
    """Normalise over the trailing axes ``normalized_shape``, then scale and shift."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_affine(self.normalized_shape if elementwise_affine else None, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(DeclaredLayer, shows="*normalized_shape eps elementwise_affine"):
    """Divide by the root mean square over the trailing axes, then scale."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_parameters(device, dtype, weight=None)
        if elementwise_affine:
            self._add_parameters(device, dtype, weight=self.normalized_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class GroupNorm(AffineLayer, shows="*num_groups *num_channels eps affine bias"):
    """Normalise each sample over groups of channels, then scale and shift per channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._add_affine((num_channels,) if affine else None, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _AcrossChannels(DeclaredLayer, shows="*size alpha beta k"):
    """Options of layers that look at the channels around each."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k


class LocalResponseNorm(_AcrossChannels):
    """Divide by a power of the mean square of ``size`` neighbouring channels; see ``F.local_response_norm``.

    Example:
        >>> import autojit as aj
        >>> aj.nn.LocalResponseNorm(2, alpha=2.0, beta=1.0)(aj.ones(1, 2, 1)).flatten()
        tensor([0.5000, 0.3333])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(_AcrossChannels):
    """x / (k + alpha / size * sum of x^2 over the channels around)^beta, of images ``f[n, c, h, w]``.

    The window reaches ``(size - 1) // 2`` channels to either side, so an even size counts as the odd one below it. As
    in torch, the first channel counts in the windows of all channels.

    Example:
        >>> import autojit as aj
        >>> aj.nn.CrossMapLRN2d(1, alpha=3.0, beta=1.0)(aj.ones(1, 1, 1, 1)).item()
        0.25
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ArgumentError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead", {"input": input})
        reach = (self.size - 1) // 2
        squares = input * input
        is_beyond = aj.arange(input.shape[1], device=input.device).reshape(-1, 1, 1) > reach
        total = channel_sum(squares, reach, reach) + aj.where(is_beyond, squares[:, :1], 0.0)
        return input * (total * (self.alpha / self.size) + self.k).pow(-self.beta)
