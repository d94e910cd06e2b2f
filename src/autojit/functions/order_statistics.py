"""Quantiles of the elements that are not NaN."""

from __future__ import annotations

import numpy as np

from autojit.core.device_array import host_copy
from autojit.core.dtypes import int64
from autojit.core.errors import UsageError
from autojit.core.sizes import seems_equal
from autojit.dispatch.declared import declared
from autojit.dispatch.dispatch import number
from autojit.dispatch.promotion import Real, cast
from autojit.dispatch.requirements import is_known
from autojit.functions.autocast import in_full_precision
from autojit.functions.comparison import clamp, maximum
from autojit.functions.order import sort
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.statistics import neighbours, require_inside, require_interpolation
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


@declared(out=True)
@in_full_precision
@no_view_of_parts
def nanquantile(
    input: Tensor, q: Tensor | Real, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """``quantile`` of the elements that are not NaN; NaN where there are none. Differentiable in both operands.

    Shapes: ``f[.., n, ..] -> f[*q.shape, .., ..]``.

    Raises:
        RuntimeError: ``q`` is outside [0, 1], the dtypes differ, or the interpolation is
            unknown.

    Example:
        >>> import autojit as aj
        >>> aj.nanquantile(aj.tensor([float("nan"), 1.0, 2.0]), 0.5)
        tensor(1.5000)
    """
    spec = type_of(input)
    if spec.dtype.name not in ("float32", "float64"):
        raise UsageError("quantile() input tensor must be either float or double dtype", {"input": input})
    if seems_equal(spec.size, 0):
        raise UsageError("quantile() input tensor must be non-empty", {"input": input})
    require_interpolation(interpolation)
    points = q if isinstance(q, Tensor) else number(float(q), spec.dtype, spec.device)
    _require_points(input, points)
    x = input.reshape(-1) if dim is None or spec.ndim == 0 else input
    axis = normalize_axis(0 if dim is None else dim, type_of(x).ndim, "nanquantile")
    rows = x.movedim(axis, -1)
    ordered = sort(rows, -1).values  # NaN comes last
    last = cast(rows.isnan().logical_not().sum(-1, keepdim=True), type_of(points).dtype) - 1
    place = points.reshape(-1) * clamp(last, min=0)  # [.., points]
    low, high, weight = neighbours(place, lambda dtype: maximum(last, last * 0), interpolation)
    below = ordered.gather(-1, cast(low, int64))
    found = below if weight is None else below.lerp(ordered.gather(-1, cast(high, int64)), weight)
    found = found.movedim(-1, 0)
    if keepdim and spec.ndim:
        found = found.unsqueeze(axis + 1) if dim is not None else found.reshape((-1,) + (1,) * spec.ndim)
    return found if type_of(points).ndim else found.select(0, 0)


def _are_inside(points: Tensor) -> bool:
    known = host_copy(points._array)
    return bool(np.all((known >= 0) & (known <= 1)))


def _require_points(x: Tensor, points: Tensor) -> None:
    if type_of(points).ndim > 1:
        raise UsageError(f"quantile() q must be a scalar or 1D tensor, got {type_of(points).ndim}-D tensor")
    if type_of(points).dtype is not type_of(x).dtype:
        raise UsageError("quantile() q tensor must be same dtype as the input tensor", {"input": x, "q": points})
    if not is_known(points) or not _are_inside(points):
        require_inside(points)
