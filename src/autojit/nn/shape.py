"""Layers that rearrange, pad or compare, without parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import ArgumentError
from autojit.nn import functional as F
from autojit.nn.declared_layer import DeclaredLayer
from autojit.nn.module import Module
from autojit.tensor import Tensor

__all__ = [
    "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "CosineSimilarity", "Flatten", "PairwiseDistance", "PixelShuffle", "PixelUnshuffle",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "Unflatten", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class Flatten(DeclaredLayer, shows="start_dim end_dim"):
    """Merge the axes ``start_dim`` to ``end_dim``."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(DeclaredLayer, shows="dim unflattened_size"):
    """Split one axis into several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("invalid argument type for dim parameter")
        given: Any = unflattened_size
        for place, size in enumerate(given):
            if not isinstance(size, int):
                kind = type(size).__name__
                raise TypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {kind} at pos {place}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, tuple(self.unflattened_size))


class PixelShuffle(DeclaredLayer, shows="upscale_factor"):
    """Channels to pixels."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(DeclaredLayer, shows="downscale_factor"):
    """Pixels to channels."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(DeclaredLayer, shows="groups"):
    """Interleave the channels of ``groups`` groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)


class CosineSimilarity(Module):
    """``F.cosine_similarity`` along ``dim``."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """``F.pairwise_distance`` along the last axis."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class _Pad(DeclaredLayer, shows="*padding"):
    """Pad the last ``ndim`` axes; one width means the same on every side."""

    _mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        count = 2 * self._ndim
        self.padding = (padding,) * count if isinstance(padding, int) else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)


class _ConstantPad(_Pad, shows="padding value"):
    _mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)


class ConstantPad1d(_ConstantPad, ndim=1):
    """Pad the last axis with a constant."""


class ConstantPad2d(_ConstantPad, ndim=2):
    """Pad the last two axes with a constant."""


class ConstantPad3d(_ConstantPad, ndim=3):
    """Pad the last three axes with a constant."""


class _ZeroPad(_Pad):
    _mode = "constant"
    value = 0.0


class ZeroPad1d(_ZeroPad, ndim=1):
    """Pad the last axis with zeros."""


class ZeroPad2d(_ZeroPad, ndim=2):
    """Pad the last two axes with zeros."""


class ZeroPad3d(_ZeroPad, ndim=3):
    """Pad the last three axes with zeros."""


class _ReflectionPad(_Pad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPad, ndim=1):
    """Pad the last axis with its reflection."""


class ReflectionPad2d(_ReflectionPad, ndim=2):
    """Pad the last two axes with their reflections."""


class ReflectionPad3d(_ReflectionPad, ndim=3):
    """Pad the last three axes with their reflections."""


class _ReplicationPad(_Pad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPad, ndim=1):
    """Pad the last axis with its edge values."""


class ReplicationPad2d(_ReplicationPad, ndim=2):
    """Pad the last two axes with their edge values."""


class ReplicationPad3d(_ReplicationPad, ndim=3):
    """Pad the last three axes with their edge values."""


class _CircularPad(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        ranks = (self._ndim + 1, self._ndim + 2)
        if input.ndim not in ranks:
            raise ArgumentError(
                f"expected {ranks[0]}D or {ranks[1]}D input (got {input.ndim}D input)", {"input": input}
            )
        return super().forward(input)


class CircularPad1d(_CircularPad, ndim=1):
    """Pad the last axis with its other end."""


class CircularPad2d(_CircularPad, ndim=2):
    """Pad the last two axes with their other ends."""


class CircularPad3d(_CircularPad, ndim=3):
    """Pad the last three axes with their other ends."""
