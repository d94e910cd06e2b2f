"""Statistics of values: medians without NaN, the most frequent value, histograms, differences on a grid, integrals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite
from typing import Any, NamedTuple, overload

import numpy as np

from autojit import ops
from autojit.core.device_array import host_copy
from autojit.core.dtypes import DType, bool_, int64
from autojit.core.errors import AxisError, ShapeError, UsageError, tensors_expected
from autojit.core.sizes import is_counted, seems_equal
from autojit.dispatch.declared import EXACT_OUT, Out, declared
from autojit.dispatch.dispatch import number
from autojit.dispatch.promotion import Real, cast, together
from autojit.dispatch.requirements import is_known, require
from autojit.functions.comparison import clamp, eq, ge, isnan, le, logical_and, minimum, where
from autojit.functions.elementwise import add, div, floor, mul, sub
from autojit.functions.index_functions import gather, scatter_add
from autojit.functions.order import cumsum, kept, sort
from autojit.functions.own_memory import no_view_of_parts
from autojit.functions.products import matmul, outer
from autojit.functions.reduction import ValuesIndices, amax, amin
from autojit.functions.reduction import sum as _sum
from autojit.functions.refused_dtypes import refuse_kinds, refuses
from autojit.functions.shape import cat, movedim, reshape, squeeze, unsqueeze
from autojit.functions.views import narrow
from autojit.history.lasting import with_lasting_constants
from autojit.history.op_node import rename_node
from autojit.history.recording import shows_grad
from autojit.ops.base import normalize_axis
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of


class MinMax(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


@declared(out=Out(is_exact=True))
@refuses("complex")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """(smallest, largest) element, of all or along ``dim``.

    Example:
        >>> import autojit as aj
        >>> aj.aminmax(aj.tensor([1.0, 3.0])).max
        tensor(3.)
    """
    dims: Any = () if dim is None else dim
    return MinMax(amin(input, dims, keepdim), amax(input, dims, keepdim))


@overload
def median(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@declared(out=EXACT_OUT)
@refuses("bool complex")
@no_view_of_parts
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median; with ``dim``, (values, indices) along it."""
    if dim is None:
        flat = input.reshape(-1)
        if type_of(flat).size == 0 and type_of(flat).dtype.is_floating_point:
            return _sum(flat) + float("nan")
        return _shared_among_equals(flat, ops.median(flat, 0)[0], "MedianBackward0")
    return kept(ops.median(input, dim), dim, keepdim, input.ndim > 0)


def _shared_among_equals(x: Tensor, value: Tensor, name: str) -> Tensor:
    """An element of ``x`` whose gradient goes in equal shares to all elements equal to it (NaN equals NaN)."""
    is_recorded = state.grad_enabled and shows_grad(x)
    if not (is_recorded or state.layers) or not type_of(x).dtype.is_differentiable:  # a layer may carry tangents
        return value
    value = value.detach()
    equal = where(isnan(value), isnan(x), eq(x, value))
    count = _sum(cast(equal, type_of(x).dtype))
    return rename_node(add(value, div(_sum(where(equal, sub(x, value), 0)), count)), name)


@overload
def nanmedian(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@declared(out=True)
@refuses("bool complex")
@no_view_of_parts
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN (NaN when all are); with ``dim``, (values, indices) along it.

    Example:
        >>> import autojit as aj
        >>> aj.nanmedian(aj.tensor([1.0, float("nan"), 3.0]))
        tensor(1.)
    """
    if dim is None:
        flat = reshape(input, -1)
        if seems_equal(type_of(flat).size, 0):
            return _sum(flat) + float("nan")
        return _shared_among_equals(flat, nanmedian(flat, 0)[0], "NanmedianBackward0")
    x = reshape(input, 1) if type_of(input).ndim == 0 else input
    axis = normalize_axis(dim, type_of(x).ndim, "nanmedian")
    if seems_equal(type_of(x).shape[axis], 0):
        raise ShapeError("nanmedian(): Expected reduction dim to have non-zero size.", {"input": input})
    values, places = sort(x, axis)  # NaN last
    counted = _sum(cast(isnan(x).logical_not(), int64), axis, keepdim=True)
    middle = clamp(counted - 1, min=0).div(2, rounding_mode="floor")
    return _sought(input, (gather(values, axis, middle), gather(places, axis, middle)), axis, keepdim)


def _sought(input: Tensor, found: Iterable[Tensor], axis: int, keepdim: bool) -> ValuesIndices:
    """What was found along an axis, which is left with extent 1; it goes away, or is kept."""
    if type_of(input).ndim == 0:
        return ValuesIndices(*(reshape(t, ()) for t in found))
    return ValuesIndices(*(found if keepdim else (squeeze(t, axis) for t in found)))


@declared(out=True)
@refuses("complex")
@no_view_of_parts
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent value along ``dim``, the least of several, and where it is last.

    Example:
        >>> import autojit as aj
        >>> aj.mode(aj.tensor([3, 1, 3, 2])).values
        tensor(3)
    """
    x = reshape(input, 1) if type_of(input).ndim == 0 else input
    axis = normalize_axis(dim, type_of(x).ndim, "mode")
    values, places = sort(x, axis, stable=True)
    line, order = movedim(values, axis, -1), movedim(places, axis, -1)
    equal = eq(unsqueeze(line, -1), unsqueeze(line, -2))
    often = clamp(_sum(cast(equal, int64), -1), min=1)  # a NaN, which equals nothing, is there once
    first = unsqueeze(often.argmax(-1), -1)
    last = gather(order, -1, first + gather(often, -1, first) - 1)
    value = gather(movedim(x, axis, -1), -1, last)  # where it is last, there its derivative goes
    return _sought(input, [movedim(t, -1, axis) for t in (value, last)], axis, keepdim)


@declared(out=True)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of ``bins`` equal intervals of [min, max]; equal ends mean those of the elements.

    Raises:
        RuntimeError: no bins, or a range that descends or is not finite.

    Example:
        >>> import autojit as aj
        >>> aj.histc(aj.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
        tensor([0., 2., 1., 0.])
    """
    x = reshape(input.detach(), -1)
    low: Any = min
    high: Any = max
    if min > max:
        raise UsageError("torch.histc: max must be larger than min")
    if bins <= 0:
        raise UsageError(f"torch.histc(): bins must be > 0, but got {bins}", {"input": input})
    refuse_kinds(input, "histc", frozenset(("bool", "int", "uint")))
    if min == max and not seems_equal(type_of(x).size, 0):
        of_some = is_counted(type_of(x).size)  # or of none, which are in no range
        low, high = (ops.pad(x, (0,), (1,), inf).amin(), ops.pad(x, (0,), (1,), -inf).amax()) if of_some else aminmax(x)
    require_finite("histc: range", low, high)
    start, end = widened(low, high, 1)
    place = cast(clamp(floor(mul(div(sub(x, start), sub(end, start)), bins)), 0, bins - 1), int64)
    inside = logical_and(ge(x, start), le(x, end))
    return scatter_add(x.new_zeros((bins,)), 0, where(inside, place, 0), cast(inside, type_of(x).dtype))


def require_finite(what: str, low: Any, high: Any) -> None:
    """UsageError for a range without an end; what a step computes is not asked."""
    if state.trace is None and not all(isfinite(float(end)) for end in (low, high)):
        raise UsageError(f"torch.{what} of [{float(low):g}, {float(high):g}] is not finite")


def widened(low: Any, high: Any, by: float) -> tuple[Any, Any]:
    """The ends of a range, put apart where they are equal."""
    if isinstance(low, Tensor):
        flat = eq(low, high)
        return where(flat, low - by, low), where(flat, high + by, high)
    return (low - by, high + by) if low == high else (low, high)


@declared(method=False, out=True)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Operands side by side: vectors as columns, matrices as they are."""
    given: object = tensors
    if isinstance(given, Tensor):
        raise tensors_expected("column_stack")
    return cat([reshape(t, (-1, 1)) if type_of(t).ndim < 2 else t for t in tensors], 1)


@declared(method=False)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Running integral by the trapezoidal rule along ``dim``, one element fewer.

    Example:
        >>> import autojit as aj
        >>> aj.cumulative_trapezoid(aj.tensor([1.0, 5.0, 10.0]))
        tensor([ 3.0000, 10.5000])
    """
    axis = normalize_axis(dim, type_of(y).ndim, "cumulative_trapezoid")
    n = type_of(y).shape[axis]
    if x is None:
        found = cumsum(narrow(y, axis, 1, n - 1) + narrow(y, axis, 0, n - 1), axis) * (dx / 2)
        return with_lasting_constants(found, y)
    return cumsum(_trapezoids(y, x, axis), axis) / 2


@declared(method=False)
@no_view_of_parts
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Derivatives of samples on a grid along each axis, by central differences, one-sided at the edges.

    Args:
        spacing: the distance of samples, one per axis, or a vector of coordinates per axis.
        edge_order: 1 or 2, the order of accuracy at the edges.

    Example:
        >>> import autojit as aj
        >>> aj.gradient(aj.tensor([1.0, 2.0, 4.0, 8.0]))[0]
        tensor([1.0000, 1.5000, 3.0000, 4.0000])
    """
    if edge_order not in (1, 2):
        raise UsageError(f"torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}")
    ndim = type_of(input).ndim
    asked = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    axes = [normalize_axis(axis, ndim, "gradient") for axis in asked]
    for axis in axes:
        if axes.count(axis) > 1:
            raise UsageError(f"dim {axis} appears multiple times in the list of dims")
    several = isinstance(spacing, list | tuple)
    if several and len(spacing) != len(axes):
        raise UsageError(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(axes)}, got "
            f"{len(spacing)}"
        )
    steps = spacing if several else [1 if spacing is None else spacing] * len(axes)
    found = tuple([_along(input, axis, step, edge_order) for axis, step in zip(axes, steps, strict=True)])
    return with_lasting_constants(found, input)


def _along(y: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    line = movedim(y, axis, -1)
    n = type_of(line).shape[-1]
    if n < edge_order + 1:
        raise ShapeError(
            "torch.gradient expected each dimension size to be at least edge_order+1", {"input": y}, "add samples"
        )
    is_uneven = isinstance(spacing, Tensor) and type_of(spacing).ndim == 1
    if is_uneven:
        h = narrow(spacing, 0, 1, n - 1) - narrow(spacing, 0, 0, n - 1)
    else:
        h = cast(line.detach().new_ones((n - 1,)), type_of(line).dtype) * spacing
    rise = narrow(line, -1, 1, n - 1) - narrow(line, -1, 0, n - 1)
    slope = rise / h
    if n == 2:
        return movedim(cat([slope, slope], -1), -1, axis)
    before, after = narrow(h, 0, 0, n - 2), narrow(h, 0, 1, n - 2)
    left, right = narrow(slope, -1, 0, n - 2), narrow(slope, -1, 1, n - 2)
    between = narrow(line, -1, 2, n - 2) - narrow(line, -1, 0, n - 2)
    inner = (left * after + right * before if is_uneven else between) / (before + after)
    first, last = narrow(slope, -1, 0, 1), narrow(slope, -1, n - 2, 1)
    if edge_order == 2:
        bend = (right - left) / (before + after)
        first = first - narrow(bend, -1, 0, 1) * narrow(h, 0, 0, 1)
        last = last + narrow(bend, -1, n - 3, 1) * narrow(h, 0, n - 2, 1)
    return movedim(cat([first, inner, last], -1), -1, axis)


@declared(out=True)
@refuses("int")
@no_view_of_parts
def quantile(
    input: Tensor, q: Tensor | Real, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Quantiles along ``dim`` (of the flattened operand by default); ``q`` in [0, 1]: a number, a 0-d or 1-d tensor.

    Shapes: ``f[..., n, ...] -> f[*q.shape, ..., ...]``. A row with a NaN gives NaN. Differentiable in both.

    Raises:
        RuntimeError: ``q`` is outside [0, 1], or the interpolation is unknown.
    """
    require_interpolation(interpolation)
    x = input.reshape(-1) if dim is None else input
    axis = normalize_axis(0 if dim is None else dim, type_of(x).ndim, "quantile")
    ordered = sort(x.reshape(1) if type_of(x).ndim == 0 else x, axis).values.movedim(axis, -1)
    points = q if isinstance(q, Tensor) else number(float(q), type_of(x).dtype, type_of(x).device)
    points = _require_quantiles(q, points)
    last = type_of(ordered).shape[-1] - 1
    low, high, weight = neighbours(points.reshape(-1) * last, lambda dtype: number(last, dtype), interpolation)
    found = ordered.index_select(-1, low.long())
    found = found if weight is None else found.lerp(ordered.index_select(-1, high.long()), weight)
    greatest = ordered.narrow(-1, last, 1)  # NaN sorts last
    found = where(isnan(greatest), greatest, found)
    found = found.movedim(-1, 0)
    if type_of(x).ndim == 0:
        found = found.reshape(-1)
    elif keepdim:
        found = found.unsqueeze(axis + 1) if dim is not None else found.reshape((-1,) + (1,) * input.ndim)
    return found if type_of(points).ndim else found.select(0, 0)


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def require_interpolation(interpolation: str) -> None:
    """RuntimeError for an unknown one."""
    if interpolation not in _INTERPOLATIONS:
        raise UsageError(f"quantile() interpolation must be one of {', '.join(_INTERPOLATIONS)}, got {interpolation}")


def _require_quantiles(q: Tensor | Real, points: Tensor) -> Tensor:
    """The points, those outside [0, 1] refused; where a step will do that they are moved inside for its look-ups."""
    if isinstance(q, Tensor) and type_of(q).ndim > 1:
        raise UsageError(f"quantile() q must be a scalar or 1D tensor, got {type_of(q).ndim}-D tensor")
    if isinstance(q, Tensor) and not is_known(q):
        require_inside(points)
        return where((points >= 0) & (points <= 1), points, 0.0)
    known = np.asarray(host_copy(q._array) if isinstance(q, Tensor) else q)
    if not np.all((known >= 0) & (known <= 1)):
        require_inside(points)
    return points


def require_inside(points: Tensor) -> None:
    """RuntimeError for points outside [0, 1]."""
    refusal = "quantile() q values must be in the range [0, 1]"
    require(points, lambda q: (q >= 0) & (q <= 1), refusal, "0 to 1", named="q")


def neighbours(
    place: Tensor, last: Callable[[DType], Tensor], interpolation: str
) -> tuple[Tensor, Tensor, Tensor | float | None]:
    """The whole places below and above fractional ones, and the weight of those above; None: those below are meant."""
    if interpolation == "linear":
        low = place.detach().floor()
        return low, minimum(low + 1, last(type_of(low).dtype)), place - low
    if interpolation == "midpoint":
        return place.floor().detach(), place.ceil().detach(), 0.5
    nearest = {"lower": place.floor, "higher": place.ceil, "nearest": place.round}[interpolation]().detach()
    return nearest, nearest, None


@declared(method=False)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral along an axis by the trapezoidal rule, at points ``x`` or ``dx`` apart."""
    axis = normalize_axis(dim, type_of(y).ndim, "trapezoid")
    if not type_of(y).ndim:
        raise AxisError(f"Dimension specified as {dim} but tensor has no dimensions", {"y": y})
    if any(t is not None and type_of(t).dtype is bool_ for t in (x, y)):
        raise UsageError("trapezoid: received a bool input for `x` or `y`, but bool is not supported", {"y": y})
    if x is not None:
        return _trapezoids(y, x, axis).sum(axis) / 2
    extent = type_of(y).shape[axis]
    if seems_equal(extent, 0):
        return with_lasting_constants(y.sum(axis) * dx, y)
    found = (y.sum(axis) - (y.select(axis, 0) + y.select(axis, extent - 1)) * 0.5) * dx
    return with_lasting_constants(found, y)


def _trapezoids(y: Tensor, x: Tensor, axis: int) -> Tensor:
    """Twice the areas between neighbouring samples, one fewer than there are, at the points ``x``."""
    ndim, extent = type_of(y).ndim, type_of(y).shape[axis]
    if type_of(x).ndim == 1:
        x = reshape(x, [-1 if k == axis else 1 for k in range(ndim)])
    along = axis - ndim
    steps = x.diff(dim=along)
    kept = 0 if seems_equal(extent, 0) else extent - 1
    return (y.narrow(axis, extent - kept, kept) + y.narrow(axis, 0, kept)) * steps


@declared(method=False)
def trapz(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """``trapezoid`` under its old name."""
    return trapezoid(y, x, dx=dx, dim=dim)


@declared()
def cov(input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Covariances of the rows: ``f[k, n] -> f[k, k]``.

    Args:
        correction: subtracted from the number of observations.
        fweights: how often each observation was made, integers.
        aweights: how much each observation counts.

    Example:
        >>> import autojit as aj
        >>> aj.cov(aj.tensor([1.0, 3.0]), fweights=aj.tensor([1, 3]))
        tensor(1.)
    """
    if (n := type_of(input).ndim) > 2:
        raise UsageError(f"cov(): expected input to have two or fewer dimensions but got an input with {n} dimensions")
    if type_of(input).dtype is bool_:
        raise UsageError("cov(): bool dtype is not supported for input")
    x = input if type_of(input).ndim == 2 else reshape(input, (1, -1))
    count = type_of(x).shape[1]
    weight: Any = None if fweights is None else _weights_of_observations("fweights", fweights, count)
    if aweights is not None:
        relative = _weights_of_observations("aweights", aweights, count)
        weight = relative if weight is None else mul(weight, relative)
    total: Any = count if weight is None else weight.sum()
    freedom = total - correction
    if aweights is not None and correction:
        freedom = total - correction * (weight * aweights).sum() / total
    centred = x - (x if weight is None else x * weight).sum(1, keepdim=True) / total
    turned = (centred if weight is None else centred * weight).transpose(0, 1).conj()
    freedom = freedom.clamp(min=0) if isinstance(freedom, Tensor) else max(freedom, 0)
    found = matmul(*together(centred, turned, "cov")) / freedom
    return found.squeeze()


def _weights_of_observations(name: str, weights: Tensor, count: int) -> Tensor:
    """The weights of ``cov``, checked."""
    t, is_frequency = type_of(weights), name == "fweights"
    if t.ndim > 1:
        raise UsageError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {t.ndim} dimensions"
        )
    if (t.dtype.category != 1) if is_frequency else not t.dtype.is_floating_point:
        kind = "integral" if is_frequency else "floating point"
        raise UsageError(f"cov(): expected {name} to have {kind} dtype but got {name} with {t.dtype.scalar_type} dtype")
    if t.size != count:
        raise UsageError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got {t.size} != "
            f"{count}"
        )
    require(weights, lambda w: ~(w < 0), f"cov(): {name} cannot be negative", "0 and more", named=name)
    return weights


@declared()
def corrcoef(input: Tensor) -> Tensor:
    """Correlation coefficients of the rows: ``f[k, n] -> f[k, k]``."""
    found = cov(input)
    if type_of(found).ndim == 0:
        return found / found
    deviation = found.diagonal().real.sqrt()
    return found / outer(deviation, deviation)
