"""Reductions of consecutive segments of an axis."""

from __future__ import annotations

import math

from autojit.core.dtypes import int64
from autojit.core.errors import ShapeError, UsageError
from autojit.dispatch.declared import declared
from autojit.dispatch.promotion import Real, cast
from autojit.dispatch.requirements import require
from autojit.functions.comparison import where
from autojit.functions.factories import arange, full
from autojit.functions.index_functions import searchsorted
from autojit.functions.order import cumsum
from autojit.functions.scatter import scatter_reduce
from autojit.ops.base import normalize_axis
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

_FOLDS = {"sum": ("sum", 0.0), "mean": ("sum", 0.0), "prod": ("prod", 1.0), "max": ("amax", -math.inf),
          "min": ("amin", math.inf), "amax": ("amax", -math.inf), "amin": ("amin", math.inf)}  # fmt: skip


@declared(aliases="_segment_reduce", method=False)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Real | None = None,
) -> Tensor:
    """Consecutive pieces of an axis folded: ``f[.., n, ..], i64[.., segments] -> f[.., segments, ..]``.

    Args:
        reduce: "sum", "mean", "prod", "max" or "min".
        lengths: of the segments, along ``axis`` and for every position of the axes before it; or
        offsets: their beginnings and, last, their end.
        unsafe: do not check that the lengths add up.
        initial: what a fold starts from, and what an empty segment gives (by default 0, 1, an infinity, or NaN for
            the mean).

    Raises:
        RuntimeError: neither or both of lengths and offsets, lengths that do not add up, or an unknown fold.

    Example:
        >>> import autojit as aj
        >>> aj.segment_reduce(aj.tensor([1.0, 2.0, 3.0]), "sum", lengths=aj.tensor([2, 1]))
        tensor([3., 3.])
    """
    spec = type_of(data)
    if reduce not in _FOLDS:
        raise UsageError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if spec.dtype.kind != "float":
        raise UsageError(f'"segment_reduce" not implemented for {spec.dtype}', {"data": data}, "convert: x.float()")
    if indices is not None:
        raise UsageError("segment_reduce(): indices based reduction is not supported yet.", fix="pass lengths=")
    if lengths is None and offsets is None:
        raise UsageError("segment_reduce(): Either lengths or offsets must be defined.")
    along = normalize_axis(axis, spec.ndim, "segment_reduce")
    ends, counts = _ends(data, lengths, offsets, along, unsafe)
    fold, neutral = _FOLDS[reduce]
    start = neutral if initial is None else float(initial)
    found = _folded(data, ends, along, fold, start)
    if reduce != "mean":
        return found
    shaped = counts.reshape(*type_of(counts).shape, *[1] * (spec.ndim - along - 1))
    empty = math.nan if initial is None else start
    return where(shaped > 0, found / cast(where(shaped > 0, shaped, 1), spec.dtype), empty)


def _ends(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, along: int, unsafe: bool
) -> tuple[Tensor, Tensor]:
    """Where segments end, and how long they are, per position of the axes before ``along``."""
    if lengths is not None:
        given = lengths
        found = cumsum(cast(lengths, int64), -1), cast(lengths, int64)
    else:
        assert offsets is not None
        given = offsets
        found = cast(offsets[..., 1:], int64), cast(offsets, int64).diff(dim=-1)
    if type_of(given).ndim != along + 1 or type_of(given).shape[:along] != type_of(data).shape[:along]:
        raise ShapeError(
            f"segment_reduce(): Expected lengths or offsets of shape {[*type_of(data).shape[:along], 'segments']} for "
            f"a reduction along axis {along}, but got {list(type_of(given).shape)}",
            {"data": data},
        )
    if lengths is not None and not unsafe:
        extent, valid = type_of(data).shape[along], "the size of data along the axis"
        refusal = "segment_reduce(): lengths contains negative value!"
        require(found[1], lambda n: n >= 0, refusal, "0 and more", named="lengths", kind="argument")
        require(found[1].sum(-1), lambda n: n.eq(extent), _OTHER_SUM, valid, named="the sums of lengths")
    return found


_OTHER_SUM = (
    "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
)


def _folded(data: Tensor, ends: Tensor, along: int, fold: str, start: float) -> Tensor:
    shape = type_of(data).shape
    segments = type_of(ends).shape[-1]
    before, after = shape[:along], shape[along + 1 :]
    place = type_of(data).device
    places = arange(shape[along], device=place).expand(*before, shape[along])
    which = searchsorted(ends.contiguous(), places.contiguous(), right=True)  # ``segments`` beyond the last one
    index = which.reshape(*before, shape[along], *[1] * len(after)).expand(shape)
    base = full((*before, segments + 1, *after), start, dtype=type_of(data).dtype, device=place)
    return scatter_reduce(base, along, index, data, fold).narrow(along, 0, segments)
