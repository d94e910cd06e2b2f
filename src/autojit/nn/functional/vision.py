"""Rearranging channels and pixels."""

from __future__ import annotations

from autojit.core.errors import ShapeError, UsageError
from autojit.core.top_level import top_level
from autojit.functions.formats import laid_out_as
from autojit.functions.own_memory import own_memory
from autojit.tensor import Tensor

__all__ = ["channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


@top_level
@own_memory
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels to pixels. Shapes: ``f[..., c r r, h, w] -> f[..., c, h r, w r]``."""
    _check_image("pixel_shuffle", input)
    _require_positive("pixel_shuffle", "upscale_factor", r := upscale_factor)
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise ShapeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    parts = input.reshape(*lead, channels // (r * r), r, r, height, width)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return laid_out_as(parts.permute(*order).reshape(*lead, channels // (r * r), height * r, width * r), input)


def _require_positive(name: str, argument: str, factor: int) -> None:
    if factor <= 0:
        raise UsageError(f"{name} expects a positive {argument}, but got {factor}")


def _check_image(name: str, input: Tensor) -> None:
    if input.ndim < 3:
        raise ShapeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)",
            {"input": input},
        )


@top_level
@own_memory
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels to channels, the inverse of ``pixel_shuffle``."""
    _check_image("pixel_unshuffle", input)
    _require_positive("pixel_unshuffle", "downscale_factor", r := downscale_factor)
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise ShapeError(
            "pixel_unshuffle expects height and width to be divisible by downscale_factor, but input.size(-2)="
            f"{height}, input.size(-1)={width} are not divisible by {r}"
        )
    n = len(lead)
    parts = input.reshape(*lead, channels, height // r, r, width // r, r)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return laid_out_as(parts.permute(*order).reshape(*lead, channels * r * r, height // r, width // r), input)


@top_level
@own_memory
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the channels (axis 1) of ``groups`` groups."""
    batch, channels, *rest = input.shape
    if channels % groups:
        raise UsageError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    parts = input.reshape(batch, groups, channels // groups, *rest)
    return laid_out_as(parts.transpose(1, 2).reshape(input.shape), input)


native_channel_shuffle = channel_shuffle
