"""Pooling into as many windows as asked for. ``F`` in the examples.

Window i of o along an axis of n covers [floor(i n / o), ceil((i + 1) n / o)).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import autojit as aj
from autojit import ops
from autojit.core.errors import ArgumentError, DTypeError, ShapeError, UsageError
from autojit.core.top_level import top_level
from autojit.functions.autocast import in_full_precision
from autojit.functions.formats import laid_out_as
from autojit.functions.refused_dtypes import refuses
from autojit.history.lasting import with_lasting_constants
from autojit.nn.functional.windows import flat_places, in_single, lowest
from autojit.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices",
]  # fmt: skip

_MOST = 1 << 48
"""Windows of more than this no machine has memory for: addresses have fewer bits."""

OutputSize = int | None | Sequence[int | None]


def _adaptive(ndim: int, kind: str, input: Tensor, output_size: OutputSize) -> list[list[tuple[int, int]]]:
    """The windows (start, stop) along each axis."""
    name = f"adaptive_{kind}_pool{ndim}d"
    given = list(output_size) if isinstance(output_size, Sequence) else [output_size] * ndim
    if len(given) != ndim:
        raise UsageError(f"{name}: output_size must be {ndim}")
    if ndim > 1 and isinstance(output_size, Sequence) and input.ndim <= len(output_size):
        raise ArgumentError(f"Input dimension should be at least {len(output_size) + 1}", {"input": input})
    if input.ndim not in (ndim + 1, ndim + 2):
        raise ShapeError(f"{name}(): Expected {ndim + 1}D or {ndim + 2}D tensor, but got {list(input.shape)}")
    if 0 in input.shape[1:]:
        raise ShapeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
            f"{list(input.shape)}"
        )
    sizes = [n if o is None else int(o) for n, o in zip(input.shape[-ndim:], given, strict=True)]
    if min(sizes) < 0:
        raise UsageError(f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}")
    if prod(sizes) >= _MOST:
        raise UsageError(f"{name}: Storage size calculation overflowed with output_size={sizes}", {"input": input})
    pairs = zip(input.shape[-ndim:], sizes, strict=True)
    return [[(i * n // o, -(-(i + 1) * n // o)) for i in range(o)] for n, o in pairs]


def _spread(x: Tensor, axis: int, spans: list[tuple[int, int]], fill: Any) -> Tensor:
    """The windows as a new axis behind ``axis``; what is beyond the shorter ones is ``fill``."""
    longest = max((stop - start for start, stop in spans), default=1)
    flat = [min(start + k, stop - 1) for start, stop in spans for k in range(longest)]
    shape = (*x.shape[:axis], len(spans), longest, *x.shape[axis + 1 :])
    if flat == list(range(x.shape[axis])):
        return x.reshape(shape)
    found = ops.index_select(x, axis, aj.tensor(flat, dtype=aj.int64, device=x.device)).reshape(shape)
    if all(stop - start == longest for start, stop in spans):
        return found
    inside = [[start + k < stop for k in range(longest)] for start, stop in spans]
    mask = aj.tensor(inside, device=x.device).reshape(len(spans), longest, *(1,) * (x.ndim - 1 - axis))
    return aj.where(mask, found, aj.tensor(fill, dtype=x.dtype, device=x.device))


def _adaptive_avg_pool(ndim: int, input: Tensor, output_size: OutputSize) -> Tensor:
    lines = _adaptive(ndim, "avg", input, output_size)
    if not input.is_floating_point():
        raise DTypeError(f'"adaptive_avg_pool{ndim}d" not implemented for {input.dtype}', {"input": input})
    found = in_single(input)
    for place in reversed(range(ndim)):
        axis, spans = input.ndim - ndim + place, lines[place]
        total = _spread(found, axis, spans, 0).sum(axis + 1)
        lengths = [stop - start for start, stop in spans]
        if len(set(lengths)) <= 1:
            found = total / (lengths[0] if lengths else 1)
        else:
            divisor = aj.tensor(lengths, dtype=found.dtype, device=input.device)
            found = total / divisor.reshape(-1, *(1,) * (ndim - 1 - place))
    found = with_lasting_constants(found if found.dtype is input.dtype else found.to(input.dtype), input)
    return laid_out_as(found, input)


def _adaptive_max_pool(ndim: int, input: Tensor, output_size: OutputSize, return_indices: bool) -> Any:
    lines = _adaptive(ndim, "max", input, output_size)
    best, places = input, list[Tensor]()
    for place in reversed(range(ndim)):
        axis, spans = input.ndim - ndim + place, lines[place]
        windows_of = [_spread(p, axis, spans, 0) for p in places]
        best, tap = _spread(best, axis, spans, lowest(input)).max(axis + 1)
        starts = aj.tensor([start for start, _ in spans], dtype=aj.int64, device=input.device)
        chosen = tap.unsqueeze(axis + 1)
        places = [w.gather(axis + 1, chosen).squeeze(axis + 1) for w in windows_of]
        places.insert(0, tap + starts.reshape(-1, *(1,) * (ndim - 1 - place)))
    best = laid_out_as(best, input)
    return (best, laid_out_as(flat_places(places, input.shape[-ndim:]), input)) if return_indices else best


@top_level
def adaptive_avg_pool1d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Means of as many even windows as asked for. Shapes: ``f[(n,) c, length] -> f[(n,) c, output_size]``.

    Raises:
        RuntimeError: wrong rank, an extent of zero, or a negative size.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.adaptive_avg_pool1d(aj.tensor([[1.0, 2.0, 3.0]]), 2)
        tensor([[1.5000, 2.5000]])
    """
    return _adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The same over images; None in ``output_size`` keeps an axis. See ``adaptive_avg_pool1d``."""
    return _adaptive_avg_pool(2, input, output_size)


@in_full_precision
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The same over volumes; see ``adaptive_avg_pool1d``."""
    return _adaptive_avg_pool(3, input, output_size)


@refuses("bool int complex")
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """The greatest elements of as many even windows as asked for; see ``max_pool1d`` about ``return_indices``.

    Example:
        >>> import autojit as aj
        >>> from autojit.nn import functional as F
        >>> F.adaptive_max_pool1d(aj.tensor([[1.0, 2.0, 3.0]]), 2, return_indices=True)
        (tensor([[2., 3.]]), tensor([[1, 2]]))
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


@refuses("bool int complex")
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """The same over images; see ``adaptive_max_pool1d``."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


@refuses("bool int complex")
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """The same over volumes; see ``adaptive_max_pool1d``."""
    return _adaptive_max_pool(3, input, output_size, return_indices)


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """``adaptive_max_pool1d`` and where the maxima are; ``return_indices`` is accepted and has no meaning."""
    found: tuple[Tensor, Tensor] = adaptive_max_pool1d(input, output_size, True)
    return found


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """``adaptive_max_pool2d`` and where the maxima are; ``return_indices`` is accepted and has no meaning."""
    found: tuple[Tensor, Tensor] = adaptive_max_pool2d(input, output_size, True)
    return found


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """``adaptive_max_pool3d`` and where the maxima are; ``return_indices`` is accepted and has no meaning."""
    found: tuple[Tensor, Tensor] = adaptive_max_pool3d(input, output_size, True)
    return found
