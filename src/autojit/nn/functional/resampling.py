"""Resampling of grids: ``interpolate`` by nearest neighbours, linearly, by cubic splines or by averages of areas.

Every mode works on one axis after the other: neighbours are picked along it and summed with weights, so derivatives of
every order follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.tensor import Tensor
from autojit.tensor.op_node import rename_node

_LINEAR_BY_AXES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_CUBIC = -0.75  # the parameter of the convolution kernel: Keys, IEEE Trans. ASSP 29(6), 1981


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Samples on a finer or coarser grid. Shapes: ``f[batch, channels, *grid] -> f[batch, channels, *new grid]``.

    Args:
        size: the new grid, one extent or one per axis.
        scale_factor: the factors in place of ``size``.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"``, ``"bilinear"``, ``"trilinear"``, ``"bicubic"`` or
            ``"area"``.
        align_corners: whether the outermost samples of both grids coincide (not for nearest and area).
        recompute_scale_factor: positions follow from the extents in place of ``scale_factor``.

    Raises:
        UsageError: neither or both of ``size`` and ``scale_factor`` are given, or ``align_corners`` does not apply.
        ArgumentError: the mode is unknown or antialiasing is asked for.
        ShapeError: the mode does not fit the number of axes.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.interpolate(aj.tensor([[[0.0, 1.0]]]), size=4, mode="linear")
        tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
    """
    axes = input.ndim - 2
    if antialias:
        raise ArgumentError("interpolate: antialiasing is not supported", fix="blur the samples before")
    if mode not in (*_LINEAR_BY_AXES, "nearest", "nearest-exact", "area"):
        raise ArgumentError(f"interpolate: unknown mode {mode!r}")
    if axes < 1 or _LINEAR_BY_AXES.get(mode, axes) != axes:
        raise ShapeError(f"interpolate: mode {mode!r} does not fit an input with {axes} spatial axes", {"input": input})
    if align_corners is not None and mode not in _LINEAR_BY_AXES:
        raise UsageError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    sizes, scales = _grid(input, axes, size, scale_factor)
    if mode == "area":
        return rename_node(_averaged(input, sizes), f"AdaptiveAvgPool{axes}DBackward0")
    found = input
    for k in range(axes):
        old, scale = input.shape[2 + k], None if recompute_scale_factor else scales[k]
        found = _along(found, 2 + k, old, sizes[k], scale, mode, bool(align_corners))
    arguments: dict[str, Any] = {"align_corners": bool(align_corners)} if mode in _LINEAR_BY_AXES else {}
    arguments |= dict(zip(_SCALE_NAMES[axes], scales, strict=True)) if axes in _SCALE_NAMES else {}
    given = None if size is None else tuple(sizes)
    scale_factors = None if scale_factor is None else tuple(scales)
    name = f"Upsample{mode.replace('-', ' ').title().replace(' ', '')}{axes}DBackward0"
    return rename_node(found, name, output_size=given, scale_factors=scale_factors, **arguments)


_SCALE_NAMES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _grid(input: Tensor, axes: int, size: Any, scale_factor: Any) -> tuple[list[int], list[float | None]]:
    if (size is None) == (scale_factor is None):
        raise UsageError("only one of size or scale_factor should be defined")
    given = size if size is not None else scale_factor
    each = list(given) if isinstance(given, Sequence) else [given] * axes
    if len(each) != axes:
        raise UsageError(f"interpolate: {len(each)} values for {axes} spatial axes")
    if size is not None:
        return [int(n) for n in each], [None] * axes
    return [math.floor(float(n) * float(s)) for n, s in zip(input.shape[2:], each, strict=True)], [
        float(s) for s in each
    ]


def _along(x: Tensor, axis: int, old: int, new: int, scale: float | None, mode: str, align: bool) -> Tensor:
    """Resample one axis."""
    ratio = old / new if scale is None else 1.0 / scale
    if mode.startswith("nearest"):
        shift = 0.5 if mode == "nearest-exact" else 0.0
        places = [min(math.floor((k + shift) * ratio), old - 1) for k in range(new)]
        return x.index_select(axis, aj.tensor(places, dtype=aj.int64))
    if align:
        ratio = (old - 1) / (new - 1) if new > 1 else 0.0
    positions = [k * ratio if align else (k + 0.5) * ratio - 0.5 for k in range(new)]
    if mode == "bicubic":
        return _weighted(x, axis, old, positions, (-1, 0, 1, 2), _cubic_weight)
    return _weighted(x, axis, old, [max(p, 0.0) for p in positions], (0, 1), lambda d: 1.0 - abs(d))


def _cubic_weight(distance: float) -> float:
    d, a = abs(distance), _CUBIC
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _weighted(
    x: Tensor, axis: int, old: int, positions: list[float], offsets: tuple[int, ...], weight_of: Any
) -> Tensor:
    """Sum of neighbours (held at the border) with weights by their distance."""
    shape = [1] * x.ndim
    shape[axis] = -1
    total: Any = None
    for offset in offsets:
        base = [math.floor(p) for p in positions]
        places = [min(max(b + offset, 0), old - 1) for b in base]
        weights = [weight_of(p - b - offset) for p, b in zip(positions, base, strict=True)]
        picked = x.index_select(axis, aj.tensor(places, dtype=aj.int64))
        term = picked * aj.tensor(weights, dtype=x.dtype).reshape(shape)
        total = term if total is None else total + term
    found: Tensor = total
    return found


def _averaged(x: Tensor, sizes: list[int]) -> Tensor:
    """Means over equal areas, which overlap by one sample where extents do not divide."""
    for axis, new in enumerate(sizes, start=2):
        old = x.shape[axis]
        rows = [[0.0] * old for _ in range(new)]
        for k in range(new):
            start, stop = (k * old) // new, -((-(k + 1) * old) // new)
            for place in range(start, stop):
                rows[k][place] = 1.0 / (stop - start)
        mixed = aj.tensor(rows, dtype=x.dtype) @ x.movedim(axis, -1).unsqueeze(-1)
        x = mixed.squeeze(-1).movedim(-1, axis)
    return x


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """``interpolate`` under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)
