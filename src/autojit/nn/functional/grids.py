"""Sampling images and volumes where a grid of positions points: ``affine_grid`` and ``grid_sample``.

How to read: positions of a grid run over -1 ... 1; ``_unnormalized`` turns them into places in samples along one axis,
``_inside`` brings those outside back by the padding mode. The value at a place is a weighted sum of neighbours
(``_taps`` along each axis, ``_look_up`` for one corner), so derivatives of every order, of values and of positions,
follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError, UnsupportedError, UsageError
from autojit.core.user_warnings import warn
from autojit.functions.autocast import in_full_precision, in_lower_precision
from autojit.functions.refused_dtypes import refuses
from autojit.nn.functional.resampling import cubic_weights
from autojit.tensor import Tensor

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
Taps = list[tuple[Tensor, Tensor | None]]
"""Per neighbour along one axis its place (a whole number) and its weight, None for 1."""


@in_lower_precision
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions of an image's or volume's samples under affine maps. ``grid_sample`` takes them.

    Shapes: ``f[n, 2, 3]``, size ``(n, c, h, w) -> f[n, h, w, 2]``; ``f[n, 3, 4]``, size ``(n, c, d, h, w) ->
    f[n, d, h, w, 3]``. The last axis is x, y(, z).

    Args:
        align_corners: whether -1 and 1 are the centres of the outermost samples (False: their outer edges).

    Raises:
        ValueError: ``theta`` is not a float tensor or does not fit the size, or an extent is not positive.
        NotImplementedError: the size has neither 4 nor 5 numbers.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.affine_grid(aj.tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), (1, 1, 2, 3), align_corners=True)
        tensor([[[[-0.5000, -1.0000],
                  [ 0.5000, -1.0000],
                  [ 1.5000, -1.0000]],
        <BLANKLINE>
                 [[-0.5000,  1.0000],
                  [ 0.5000,  1.0000],
                  [ 1.5000,  1.0000]]]])
    """
    aligned = _alignment(align_corners)
    size = [int(n) for n in size]
    if not theta.is_floating_point():
        raise ArgumentError(f"Expected theta to have floating point type, but got {theta.dtype}", {"theta": theta})
    axes = len(size) - 2
    if axes not in (2, 3):
        raise UnsupportedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
            f"{size}."
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (axes, axes + 1):
        raise ArgumentError(
            f"Expected a batch of {axes}D affine matrices of shape Nx{axes}x{axes + 1} for size {tuple(size)}. Got "
            f"{theta.shape!r}.",
            {"theta": theta},
        )
    if min(size) <= 0:
        raise ArgumentError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    extents = size[2:]
    if aligned and 1 in extents:
        warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids with align_corners=True: the "
            "only sample of an axis is at its middle. See the documentation of affine_grid for details.",
            UserWarning,
        )
    columns = []
    for k, n in enumerate(reversed(extents)):
        line = _positions(n, theta, aligned).reshape(*[1] * (axes - 1 - k), n, *[1] * k)
        columns.append(line.expand(extents))
    columns.append(aj.ones(extents, dtype=theta.dtype, device=theta.device))
    base = aj.stack(columns, -1).reshape(-1, axes + 1)
    found = aj.matmul(base, theta.transpose(1, 2))
    return found.reshape(size[0], *extents, axes)


def _positions(n: int, like: Tensor, aligned: bool) -> Tensor:
    """The positions of ``n`` samples along one axis."""
    if n == 1:
        return aj.zeros(1, dtype=like.dtype, device=like.device)
    line = aj.linspace(-1, 1, n, dtype=like.dtype, device=like.device)
    return line if aligned else line * ((n - 1) / n)


def _alignment(align_corners: bool | None) -> bool:
    if align_corners is None:
        warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired. See the documentation of grid_sample for "
            "details.",
            UserWarning,
        )
    return bool(align_corners)


@refuses("bool int")
@in_full_precision
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The values of an image or volume at given positions.

    Shapes: ``f[n, c, h, w], f[n, h', w', 2] -> f[n, c, h', w']``; ``f[n, c, d, h, w], f[n, d', h', w', 3] ->
    f[n, c, d', h', w']``. The last axis of the grid is x, y(, z), from -1 to 1 across the image.

    Args:
        mode: ``"bilinear"``, ``"nearest"``, or, for images, ``"bicubic"``.
        padding_mode: what is outside: ``"zeros"``, the ``"border"`` or a ``"reflection"``.
        align_corners: whether -1 and 1 are the centres of the outermost samples (False: their outer edges).

    Raises:
        ValueError: an unknown mode.
        RuntimeError: shapes or dtypes do not fit.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> image = aj.tensor([[[[0.0, 1.0], [2.0, 3.0]]]])
        >>> F.grid_sample(image, aj.tensor([[[[0.0, 0.0], [1.0, -1.0]]]]), align_corners=True)
        tensor([[[[1.5000, 1.0000]]]])
    """
    if mode not in _MODES:
        raise ArgumentError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ArgumentError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    aligned = _alignment(align_corners)
    _check(input, grid, mode)
    extents = input.shape[2:]
    axes = len(extents)
    taps = []
    for k, n in enumerate(extents):
        place = _unnormalized(grid[..., axes - 1 - k], n, aligned)
        taps.append(_taps(place, n, mode, padding_mode, aligned))
    flat = input.reshape(*input.shape[:2], prod(extents))
    total: Tensor | None = None
    for corner in product(*taps):
        term = _look_up(flat, [place for place, _ in corner], extents)
        for _, weight in corner:
            term = term if weight is None else term * weight.unsqueeze(1)
        total = term if total is None else total + term
    assert total is not None
    if mode == "nearest":  # the value does not move with the position: its derivative is zero, not absent
        never = aj.zeros((), dtype=aj.bool, device=grid.device)
        total = aj.where(never, grid[..., 0].unsqueeze(1), total)
    return total


def _check(input: Tensor, grid: Tensor, mode: str) -> None:
    shown = f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if input.dtype is not grid.dtype:
        raise UsageError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {input.dtype} and grid has "
            f"{grid.dtype}"
        )
    if input.shape[0] != grid.shape[0]:
        raise ShapeError(f"grid_sampler(): expected grid and input to have same batch size, but got {shown}")
    if grid.shape[-1] != input.ndim - 2:
        raise ShapeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    if input.ndim not in (4, 5) or input.ndim != grid.ndim:
        raise ShapeError(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got {shown}"
        )
    if prod(input.shape[2:]) == 0:
        raise ShapeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
            f"{list(input.shape)} with dimension {2 + list(input.shape[2:]).index(0)} being empty"
        )
    if mode == "bicubic" and input.ndim != 4:
        raise UsageError("grid_sampler(): bicubic interpolation only supports 4D input")


def _unnormalized(position: Tensor, n: int, aligned: bool) -> Tensor:
    """-1 ... 1 as places among ``n`` samples."""
    return (position + 1) * ((n - 1) / 2) if aligned else ((position + 1) * n - 1) * 0.5


def _inside(place: Tensor, n: int, padding: str, aligned: bool) -> Tensor:
    """A place brought back among ``n`` samples; with zeros outside it stays where it is."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        place = _reflected(place, n, aligned)
    last = float(n - 1)
    return aj.where(place <= 0, 0.0, aj.where(place >= last, last, place))  # no derivative at the border itself


def _reflected(place: Tensor, n: int, aligned: bool) -> Tensor:
    low, span = (0.0, float(n - 1)) if aligned else (-0.5, float(n))
    if span == 0:
        return place * 0
    offset = place - low
    offset = aj.where(offset < 0, -offset, offset)
    extra = aj.fmod(offset, span)
    is_even = aj.fmod(aj.floor(offset.detach() / span), 2) == 0
    return aj.where(is_even, extra + low, span - extra + low)


def _taps(place: Tensor, n: int, mode: str, padding: str, aligned: bool) -> Taps:
    if mode == "nearest":
        return [(aj.round(_inside(place, n, padding, aligned)).detach(), None)]
    if mode == "bilinear":
        place = _inside(place, n, padding, aligned)
        below = aj.floor(place.detach())
        share = place - below
        return [(below, 1 - share), (below + 1, share)]
    below = aj.floor(place.detach())
    weights = cubic_weights(place - below)
    return [(_inside(below + k, n, padding, aligned), weight) for k, weight in enumerate(weights, start=-1)]


def _look_up(flat: Tensor, places: Sequence[Tensor], extents: Sequence[int]) -> Tensor:
    """``f[n, c, samples]`` at whole places along each axis, 0 outside: ``f[n, c, *positions]``."""
    index: Tensor | None = None
    is_inside: Tensor | None = None
    for place, n in zip(places, extents, strict=True):
        fits = (place >= 0) & (place <= n - 1)  # also false for NaN, which is not an index
        whole = aj.where(fits, place, 0.0).to(aj.int64)
        index = whole if index is None else index * n + whole
        is_inside = fits if is_inside is None else is_inside & fits
    assert index is not None and is_inside is not None
    shape = (*flat.shape[:2], *index.shape[1:])
    rows = index.reshape(index.shape[0], 1, prod(index.shape[1:])).expand(*flat.shape[:2], -1)
    found = flat.gather(2, rows).reshape(shape)
    return aj.where(is_inside.unsqueeze(1), found, 0.0)
