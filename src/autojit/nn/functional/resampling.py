"""Resampling of grids: ``interpolate`` by nearest neighbours, linearly, by cubic splines or by averages of areas.

Every mode works on one axis after the other: neighbours are picked along it and summed with weights, so derivatives of
every order follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit import ops
from autojit.core.errors import ArgumentError, ShapeError, UnsupportedDTypeError, UnsupportedError, UsageError
from autojit.core.sizes import as_extent, is_symbolic
from autojit.functions.formats import laid_out_as
from autojit.history.lasting import with_lasting_constants
from autojit.history.op_node import rename_node
from autojit.nn.functional.windows import in_single
from autojit.tensor import Tensor

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

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
        antialias: for ``"bilinear"`` and ``"bicubic"``: average over what a coarser sample covers.

    Raises:
        ValueError: neither or both of ``size`` and ``scale_factor`` are given or they do not fit the axes, or an option
            does not apply to the mode.
        NotImplementedError: the mode is unknown or does not fit the number of axes.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.interpolate(aj.tensor([[[0.0, 1.0]]]), size=4, mode="linear")
        tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
    """
    axes, dtype = input.ndim - 2, input.dtype
    _check_options(mode, axes, align_corners, antialias)
    sizes, scales = _grid(input, axes, size, scale_factor)
    _check_mode(input, mode)
    if any(n < 1 for n in sizes):
        raise ShapeError(f"Input and output sizes should be greater than 0, but got {sizes}", {"input": input})
    if recompute_scale_factor:
        scales = [None] * axes
    if not dtype.is_floating_point and (dtype is not aj.uint8 or mode not in _OF_BYTES):
        raise UnsupportedDTypeError(f'"interpolate" with mode {mode!r} not implemented for {dtype}', {"input": input})
    if mode == "area":
        found = _averaged(in_single(input), sizes).to(dtype)
        return rename_node(laid_out_as(found, input), f"AdaptiveAvgPool{axes}DBackward0")
    found = _resampled(input, sizes, scales, mode, bool(align_corners), antialias)
    arguments: dict[str, Any] = {"output_size": None if size is None else tuple(sizes)}
    arguments["scale_factors"] = None if scale_factor is None else tuple(scales)
    arguments |= {"align_corners": bool(align_corners)} if mode in _LINEAR_BY_AXES else {}
    arguments |= dict(zip(_SCALE_NAMES[axes], scales, strict=True)) if axes in _SCALE_NAMES else {}
    return rename_node(laid_out_as(found, input), _node_name(mode, axes, antialias), **arguments)


def _resampled(
    input: Tensor, sizes: list[int], scales: list[float | None], mode: str, align_corners: bool, antialias: bool
) -> Tensor:
    """One axis after the other; halves in float32."""
    found, dtype = in_single(input) if mode in _LINEAR_BY_AXES else input, input.dtype
    is_bytes = dtype is aj.uint8 and mode in ("bilinear", "bicubic")
    for k in reversed(range(len(sizes))):
        old = input.shape[2 + k]
        found = found.float() if is_bytes else found
        if antialias:
            step = _step(found, old, sizes[k], scales[k], align_corners)
            found = _smoothed(found, 2 + k, step, sizes[k], mode)
        else:
            found = _along(found, 2 + k, old, sizes[k], scales[k], mode, align_corners)
        if is_bytes:  # as in torch, rounded after each axis
            found = (found + 0.5).floor().clamp(0, 255).to(dtype)
    return with_lasting_constants(found if found.dtype is dtype else found.to(dtype), input)


def _node_name(mode: str, axes: int, antialias: bool) -> str:
    return f"Upsample{mode.replace('-', ' ').title().replace(' ', '')}{axes}D{'Aa' if antialias else ''}Backward0"


_OF_BYTES = ("nearest", "nearest-exact", "bilinear", "bicubic")
_SCALE_NAMES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _check_options(mode: str, axes: int, align_corners: bool | None, antialias: bool) -> None:
    if mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ArgumentError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias and not (mode in ("bilinear", "bicubic") and axes == 2):
        raise ArgumentError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )


def _check_mode(input: Tensor, mode: str) -> None:
    axes = input.ndim - 2
    known = (*_LINEAR_BY_AXES, "nearest", "nearest-exact", "area")
    if mode not in known or axes not in (1, 2, 3) or _LINEAR_BY_AXES.get(mode, axes) != axes:
        raise UnsupportedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact "
            f"(got {mode})",
            {"input": input},
            "linear takes 3D inputs, bilinear and bicubic 4D, trilinear 5D",
        )


def _grid(input: Tensor, axes: int, size: Any, scale_factor: Any) -> tuple[list[int], list[float | None]]:
    if size is not None and scale_factor is not None:
        raise ArgumentError("only one of size or scale_factor should be defined")
    given = size if size is not None else scale_factor
    if given is None:
        raise ArgumentError("either size or scale_factor should be defined")
    each = list(given) if isinstance(given, Sequence) else [given] * axes
    if len(each) != axes:
        name = "output size" if size is not None else "scale_factor"
        raise ArgumentError(
            f"Input and {name} must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {list(input.shape[2:])} and {name} of {each}.",
            fix="give one value per spatial axis; batch and channels have none",
        )
    if size is not None:
        if not all(isinstance(n, int | np.integer) for n in each):
            raise TypeError(f"expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], "
                            f"but got size with types {[type(n) for n in each]}")  # fmt: skip
        return [as_extent(n) for n in each], [None] * axes
    return [_scaled(n, float(s)) for n, s in zip(input.shape[2:], each, strict=True)], [float(s) for s in each]


_MOST = 2.0**63  # elements along an axis, which an int64 counts


def _scaled(extent: int, factor: float) -> int:
    if not abs(extent * factor) < _MOST:
        raise UsageError(
            f"interpolate: {extent} * {factor}: value cannot be converted to type int64_t without overflow",
            fix="scale_factor multiplies the extents; size gives the new ones",
        )
    return extent * int(factor) if factor.is_integer() else math.floor(float(extent) * factor)


def _exact(x: Tensor) -> Any:
    """NumPy's type in which positions are computed: float64 for float64, else float32."""
    return np.float64 if x.dtype is aj.float64 else np.float32


def _step(x: Tensor, old: int, new: int, scale: float | None, align: bool) -> float:
    """From one new sample to the next, counted in old samples."""
    if align:
        return float(_exact(x)(old - 1) / _exact(x)(new - 1)) if new > 1 else 0.0
    return float(_exact(x)(1.0 / scale) if scale is not None else _exact(x)(old) / _exact(x)(new))


def _along(x: Tensor, axis: int, old: int, new: int, scale: float | None, mode: str, align: bool) -> Tensor:
    """Resample one axis."""
    if is_symbolic(old) or is_symbolic(new):
        return _along_open(x, axis, old, new, scale, mode, align)
    if mode.startswith("nearest"):
        ratio = np.float32(1.0 / scale) if scale is not None else np.float32(old) / np.float32(new)
        shift = np.float32(0.5 if mode == "nearest-exact" else 0.0)
        nearest = np.floor((np.arange(new, dtype=np.float32) + shift) * ratio).astype(np.int64).clip(max=old - 1)
        return ops.index_select(x, axis, aj.tensor(nearest, device=x.device))
    kind = _exact(x)
    steps, step = np.arange(new, dtype=kind), kind(_step(x, old, new, scale, align))
    positions = steps * step if align else (steps + kind(0.5)) * step - kind(0.5)
    return _weighted(x, axis, old, positions.astype(np.float64), mode)


def _along_open(x: Tensor, axis: int, old: int, new: int, scale: float | None, mode: str, align: bool) -> Tensor:
    """`_along` where an extent is open: positions and weights are computed in the step."""
    kind = aj.float32 if mode.startswith("nearest") or x.dtype is not aj.float64 else aj.float64
    steps = aj.arange(new, dtype=kind, device=x.device)
    lengths = [aj.tensor(n, dtype=kind, device=x.device) for n in (old, new)]
    if align and not mode.startswith("nearest"):
        positions = steps * ((lengths[0] - 1) / (lengths[1] - 1).clamp(min=1))  # of one sample: the first
    else:
        ratio = lengths[0] / lengths[1] if scale is None else aj.tensor(1.0 / scale, dtype=kind, device=x.device)
        if mode.startswith("nearest"):
            nearest = ((steps + (0.5 if mode == "nearest-exact" else 0.0)) * ratio).floor().long()
            return ops.index_select(x, axis, nearest.clamp(max=old - 1))
        positions = (steps + 0.5) * ratio - 0.5
    positions = positions if mode == "bicubic" else positions.clamp(min=0)
    base = positions.floor()
    offsets = (-1, 0, 1, 2) if mode == "bicubic" else (0, 1)
    weights: Sequence[Tensor] = (
        cubic_weights(positions - base) if mode == "bicubic" else (1 - (positions - base), positions - base)
    )
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    terms = [
        ops.index_select(x, axis, (base + offset).long().clamp(0, old - 1)) * weight.to(x.dtype).reshape(shape)
        for offset, weight in zip(offsets, weights, strict=True)
    ]
    return sum(terms[1:], terms[0])


def _smoothed(x: Tensor, axis: int, step: float, new: int, mode: str) -> Tensor:
    """Resample one axis by averages: a sample weighs what is within the filter's support, scaled to ``step``."""
    reach, weight_of = (1.0, lambda d: max(1.0 - abs(d), 0.0)) if mode == "bilinear" else (2.0, _sharp_cubic)
    old, width = x.shape[axis], max(step, 1.0)
    matrix = np.zeros((new, old))
    for k in range(new):
        centre = step * (k + 0.5)
        start = max(int(centre - reach * width + 0.5), 0)
        stop = min(int(centre + reach * width + 0.5), old)
        weights = [weight_of((place - centre + 0.5) / width) for place in range(start, stop)]
        matrix[k, start:stop] = np.asarray(weights) / sum(weights)
    return _mixed(x, axis, aj.tensor(matrix, device=x.device).to(x.dtype))


def _mixed(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """The product with a matrix along one axis, laid out in memory in the order of the axes."""
    if axis == x.ndim - 1:
        return x @ matrix.mT
    lead, rest = x.shape[:axis], x.shape[axis + 1 :]
    return (matrix @ x.flatten(axis + 1)).reshape(*lead, matrix.shape[0], *rest)


def _sharp_cubic(distance: float) -> Any:
    d = abs(distance)
    return 0.0 if d >= 2 else _cubic_near(d, -0.5) if d <= 1 else _cubic_far(d, -0.5)


def _cubic_near(d: Any, a: float = _CUBIC) -> Any:
    """The kernel at distances up to 1."""
    return ((a + 2) * d - (a + 3)) * d * d + 1


def _cubic_far(d: Any, a: float = _CUBIC) -> Any:
    """The kernel at distances from 1 to 2."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def cubic_weights(share: Any) -> tuple[Any, Any, Any, Any]:
    """The weights of the four neighbours of a place that is ``share`` (0 ... 1) behind the second one."""
    return _cubic_far(share + 1), _cubic_near(share), _cubic_near(1 - share), _cubic_far(2 - share)


def _weighted(x: Tensor, axis: int, old: int, positions: Any, mode: str) -> Tensor:
    """Sum of neighbours (held at the border) with weights by their distance."""
    positions = positions if mode == "bicubic" else np.maximum(positions, 0.0)
    base = np.floor(positions)
    share = positions - base
    weights = zip((-1, 0, 1, 2), cubic_weights(share)) if mode == "bicubic" else ((0, 1.0 - share), (1, share))
    shape = [1] * x.ndim
    shape[axis] = -1
    terms = []
    for offset, weight in weights:
        places = np.clip(base + offset, 0, old - 1).astype(np.int64)
        share_of = aj.tensor(weight, dtype=x.dtype, device=x.device).reshape(shape)
        terms.append(ops.index_select(x, axis, aj.tensor(places, device=x.device)) * share_of)
    return sum(terms[1:], terms[0])


def _averaged(x: Tensor, sizes: list[int]) -> Tensor:
    """Means over equal areas, which overlap by one sample where extents do not divide."""
    for axis, new in enumerate(sizes, start=2):
        old = x.shape[axis]
        rows = [[0.0] * old for _ in range(new)]
        for k in range(new):
            start, stop = (k * old) // new, -((-(k + 1) * old) // new)
            for place in range(start, stop):
                rows[k][place] = 1.0 / (stop - start)
        x = _mixed(x, axis, aj.tensor(rows, dtype=x.dtype, device=x.device))
    return with_lasting_constants(x, input)


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """``interpolate`` under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """``interpolate`` with ``mode="nearest"``, under its older name."""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """``interpolate`` with ``mode="bilinear"`` and aligned corners, under its older name."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
