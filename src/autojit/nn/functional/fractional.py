"""Maximum pooling over windows whose places are drawn: the output may be any share of the input.

Source: Graham, arXiv:1412.6071.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.functions.own_memory import no_view_of_parts
from autojit.nn.functional.windows import Extents, flat_places, numbers
from autojit.tensor import Tensor

__all__ = [
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]  # fmt: skip

Ratios = float | Sequence[float]


@no_view_of_parts
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Extents,
    output_size: Extents | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``fractional_max_pool2d`` and where the maxima are in the image, counted row by row."""
    return _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)


@no_view_of_parts
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Extents,
    output_size: Extents | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``fractional_max_pool3d`` and where the maxima are in the volume."""
    return _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)


@no_view_of_parts
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Extents,
    output_size: Extents | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima over windows at drawn places. Shapes: ``f[(n,) c, h, w] -> f[(n,) c, h', w']``.

    Args:
        output_size: ``(h', w')``, or ``output_ratio``: their share of ``(h, w)``, between 0 and 1.
        return_indices: also return where the maxima are.

    Raises:
        ValueError: neither size nor ratio is given.
        RuntimeError: wrong rank, or the windows do not fit.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.fractional_max_pool2d(aj.ones(1, 9, 9), 2, output_ratio=0.7).shape
        autojit.Size([1, 6, 6])
    """
    found = _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


@no_view_of_parts
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Extents,
    output_size: Extents | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima over windows of a volume at drawn places; see ``fractional_max_pool2d``.

    Shapes: ``f[(n,) c, d, h, w] -> f[(n,) c, d', h', w']``.
    """
    found = _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def _pool(
    ndim: int,
    input: Tensor,
    kernel_size: Extents,
    output_size: Extents | None,
    output_ratio: Ratios | None,
    samples: Tensor | None,
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{ndim}d"
    if input.ndim not in (ndim + 1, ndim + 2) or 0 in input.shape[-ndim - 1 :]:
        raise ShapeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions and {ndim + 1} or {ndim + 2} "
            f"(batch mode) of them, but got {list(input.shape)}"
        )
    _check_extents(name, ndim, "kernel_size", kernel_size)
    kernel = numbers(kernel_size, ndim, name, "kernel_size")
    outputs = _output_size(name, ndim, input, output_size, output_ratio)
    extents = input.shape[-ndim:]
    for k, (n, out, size) in enumerate(zip(extents, outputs, kernel, strict=True)):
        if out < 0 or out + size - 1 > n:
            axis = ("time", "height", "width")[k + 3 - ndim]
            raise ShapeError(
                f"{name}(): pool {axis} {size} too large relative to input {axis} {n} for an output of {out}"
            )
    shape = (*input.shape[:-ndim], *outputs)
    if 0 in outputs:
        return input.new_empty(shape), input.new_empty(shape, dtype=aj.int64)
    rows = input.reshape(prod(input.shape[: -ndim - 1]), input.shape[-ndim - 1], prod(extents))
    batch, channels = rows.shape[0], rows.shape[1]
    if samples is None:
        samples = aj.rand(batch, channels, ndim, dtype=input.dtype, device=input.device)
    elif samples.ndim != 3 or samples.shape[0] < batch or tuple(samples.shape[1:]) != (channels, ndim):
        raise ShapeError(
            f"{name}(): Expect _random_samples.size(0) no less then input batch size, and of shape "
            f"{(batch, channels, ndim)}",
            {"_random_samples": samples},
        )
    else:
        samples = samples[:batch]
    places = _places(samples, ndim, extents, outputs, kernel)
    seen = rows.gather(2, places.flatten(2)).reshape(places.shape)
    best, tap = seen.max(-1)
    at = places.gather(-1, tap.unsqueeze(-1)).squeeze(-1)
    return best.reshape(shape), at.reshape(shape)


def _check_extents(name: str, ndim: int, what: str, given: Extents) -> None:
    if isinstance(given, Sequence) and len(given) != ndim:
        count = {2: "Ints", 3: "three Ints"}[ndim]
        raise UsageError(f"{name}: {what} must either be a single Int or tuple of {count}", {what: tuple(given)})


def _output_size(
    name: str, ndim: int, input: Tensor, output_size: Extents | None, output_ratio: Ratios | None
) -> tuple[int, ...]:
    if output_size is not None:
        _check_extents(name, ndim, "output_size", output_size)
        return tuple(numbers(output_size, ndim, name, "output_size"))
    if output_ratio is None:
        raise ArgumentError(f"{name} requires specifying either an output_size or an output_ratio")
    ratios = list(output_ratio) if isinstance(output_ratio, Sequence) else [output_ratio] * ndim
    if len(ratios) != ndim:
        raise ArgumentError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
    return tuple(int(n * ratio) for n, ratio in zip(input.shape[-ndim:], ratios, strict=True))


def _places(
    samples: Tensor, ndim: int, extents: Sequence[int], outputs: Sequence[int], kernel: Sequence[int]
) -> Tensor:
    """Of every window's every tap the place in the flat image: ``i64[batch, channels, *outputs, taps]``."""
    starts = []
    for k, (n, out, size) in enumerate(zip(extents, outputs, kernel, strict=True)):
        drawn = samples[..., ndim - 1 - k if ndim == 2 else k].unsqueeze(-1)  # torch draws x before y, but z, y, x
        starts.append(_starts(drawn, n, out, size))
    shaped = [
        start.reshape(*start.shape[:2], *(start.shape[2] if axis == k else 1 for axis in range(ndim)))
        for k, start in enumerate(starts)
    ]
    offsets = [flat_places(tap, extents) for tap in product(*map(range, kernel))]
    return flat_places(shaped, extents).unsqueeze(-1) + aj.tensor(offsets, dtype=aj.int64, device=samples.device)


def _starts(drawn: Tensor, n: int, out: int, size: int) -> Tensor:
    """Where the windows of one axis begin: steps of about ``n / out``, shifted by the number drawn."""
    last = drawn.detach().new_full((*drawn.shape[:-1], 1), n - size).to(aj.int64)
    if out == 1:
        return last
    step = (n - size) / (out - 1)
    order = aj.arange(out - 1, dtype=drawn.dtype, device=drawn.device)
    shifted = ((order + drawn.detach()) * step).to(aj.int64) - (drawn.detach() * step).to(aj.int64)
    return aj.cat([shifted, last], -1)
