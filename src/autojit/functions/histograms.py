"""Histograms: how many elements, or how much weight, are between edges. Differentiable in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from autojit.core.dtypes import int64
from autojit.core.errors import ShapeError, UnsupportedError, UsageError
from autojit.core.sizes import seems_equal
from autojit.dispatch.declared import EXACT_OUT, declared
from autojit.dispatch.promotion import cast
from autojit.functions.comparison import where
from autojit.functions.factories import arange, zeros
from autojit.functions.index_functions import index_add, searchsorted
from autojit.functions.statistics import require_finite, widened
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


class Histogram(NamedTuple):
    """What is between the edges, and the edges."""

    hist: Tensor
    bin_edges: Tensor


class HistogramOfPoints(NamedTuple):
    """What is in the boxes between the edges, and per coordinate the edges."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


@declared(out=EXACT_OUT)
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """The elements counted between edges: ``f[..] -> f[bins], f[bins + 1]``.

    Args:
        bins: their number, or the edges in ascending order.
        range: (least, greatest) edge; those of the elements by default.
        weight: what an element counts, 1 by default.
        density: divide by the total and the widths, so that the integral is 1.

    Raises:
        RuntimeError: no bins, a range that descends, or shapes that do not fit.
        NotImplementedError: the operand is not a float.

    Example:
        >>> import autojit as aj
        >>> aj.histogram(aj.tensor([1.0, 2.0, 1.0, 4.0]), 4, range=(0.0, 4.0)).hist
        tensor([0., 2., 1., 1.])
    """
    points = input.reshape(-1, 1)
    weights = None if weight is None else _weights(weight, input)
    found = _counted(points, [bins], range, weights, density)
    return Histogram(found.hist, found.bin_edges[0])


@declared(method=False)
def histogramdd(
    input: Tensor,
    bins: int | Sequence[int | Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramOfPoints:
    """Points counted in boxes: ``f[.., d] -> f[bins_1, .., bins_d]`` and ``d`` vectors of edges.

    Args:
        bins: the number per coordinate, one for all, or a list of edges.
        range: least and greatest edge per coordinate, one after another.

    Raises:
        RuntimeError: ``bins`` or ``range`` do not fit the coordinates, or no bins.

    Example:
        >>> import autojit as aj
        >>> aj.histogramdd(aj.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), [2, 2]).hist
        tensor([[0., 1.],
                [1., 1.]])
    """
    spec = type_of(input)
    if spec.ndim < 2:
        raise ShapeError("torch.histogramdd: input tensor should have at least 2 dimensions", {"input": input})
    coordinates = spec.shape[-1]
    edges = [bins] * coordinates if isinstance(bins, int) else list(bins)
    if len(edges) != coordinates:
        raise ShapeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input.",
            {"input": input, "bins": len(edges)},
        )
    if range is not None and len(range) != 2 * coordinates:
        raise ShapeError(
            f"torch.histogramdd: for a {coordinates}-dimensional histogram range should have {2 * coordinates} "
            f"elements, but got {len(range)}",
            {"input": input},
        )
    if not coordinates:
        hist = zeros((), dtype=spec.dtype, device=spec.device)
        return HistogramOfPoints(hist / hist if density else hist, ())
    weights = None if weight is None else _weights(weight, input[..., 0])
    return _counted(input.reshape(-1, coordinates), edges, range, weights, density)


def _weights(weight: Tensor, like: Tensor) -> Tensor:
    if type_of(weight).shape != type_of(like).shape:
        raise ShapeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got {list(type_of(weight).shape)}",
            {"input": like, "weight": weight},
        )
    if type_of(weight).dtype is not type_of(like).dtype:
        raise UsageError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input {type_of(like).dtype}, and weight {type_of(weight).dtype}"
        )
    return weight.reshape(-1)


def _counted(
    points: Tensor, bins: list[Any], limits: Sequence[float] | None, weights: Tensor | None, density: bool
) -> HistogramOfPoints:
    dtype = type_of(points).dtype
    if dtype.kind != "float":
        raise UnsupportedError(f'"histogramdd" not implemented for {dtype}', {"input": points}, "convert: x.float()")
    x = points.detach()
    edges = [_edges(x[:, k], b, k, limits) for k, b in enumerate(bins)]
    sizes = [type_of(e).size - 1 for e in edges]
    box: Any = 0
    inside: Any = True
    for k, (e, n) in enumerate(zip(edges, sizes, strict=True)):
        column = x[:, k].contiguous()
        place = searchsorted(e, column, right=True) - 1
        place = where(column.eq(e[n]), n - 1, place)  # the last bin has its upper edge
        fits = (place >= 0) & (place < n) & column.isnan().logical_not()
        inside = fits if inside is True else inside & fits
        box = box * n + where(fits, place, 0)
    counted = cast(inside, dtype) if weights is None else where(inside, weights, 0)
    empty = zeros(prod(sizes), dtype=dtype, device=type_of(points).device)
    hist = index_add(empty, 0, cast(box, int64), counted).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for k, e in enumerate(edges):
            hist = hist / e.diff().reshape(-1, *[1] * (len(edges) - 1 - k))
    return HistogramOfPoints(hist, tuple(edges))


def _edges(column: Tensor, bins: Any, k: int, limits: Sequence[float] | None) -> Tensor:
    if isinstance(bins, Tensor):
        if type_of(bins).dtype is not type_of(column).dtype:
            raise UsageError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{type_of(column).dtype} and bins for dimension {k} with dtype {type_of(bins).dtype}"
            )
        if type_of(bins).ndim != 1:
            raise ShapeError(
                "torch.histogramdd: bins tensor should have one dimension, but got "
                f"{type_of(bins).ndim} dimensions in the bins tensor for dimension {k}"
            )
        if type_of(bins).size == 0:
            raise ShapeError(
                "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor "
                f"for dimension {k}"
            )
        return bins
    if bins <= 0:
        raise UsageError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension {k}")
    low: Any
    high: Any
    if limits is not None:
        low, high = limits[2 * k], limits[2 * k + 1]
        if low > high:
            raise UsageError(
                f"torch.histogramdd: min should not exceed max, but got min {low} max {high} for dimension {k}"
            )
    else:
        low, high = (0.0, 1.0) if seems_equal(type_of(column).size, 0) else (column.min(), column.max())
    require_finite(f"histogramdd: dimension {k}'s range", low, high)
    low, high = widened(low, high, 0.5)
    place = arange(bins + 1, dtype=type_of(column).dtype, device=type_of(column).device)
    step = (high - low) / bins
    return where(
        place < (bins + 1) // 2, low + step * place, high - step * (bins - place)
    )  # from the nearer end, as in torch
