"""NumPy's reductions over tensors: sums, extremes, means, quantiles, with ``where=``, ``initial=`` and several axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import autojit as aj
from autojit.interop.registry import (
    NO_VALUE,
    axes_of,
    axis_of,
    delivered,
    dtype_of,
    implements,
    inexact,
    tensor_of,
)  # fmt: skip


def _is_given(value: Any) -> bool:
    return value is not NO_VALUE and value is not None


def _masked(x: Any, where: Any, neutral: Any) -> Any:
    return x if where is True or where is NO_VALUE else aj.where(tensor_of(where), x, neutral)


def _kept(result: Any, keepdims: Any, axes: tuple[int, ...], ndim: int) -> Any:
    """The axes that were reduced, back with extent 1 (ascending, so that the places hold)."""
    if keepdims is True or (keepdims is not False and keepdims is not NO_VALUE and bool(keepdims)):
        for axis in sorted(axes):
            result = result.unsqueeze(axis)
    return result


@implements("sum")
def _sum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:  # fmt: skip
    x = tensor_of(a)
    axes = axes_of(axis, x.ndim)
    masked = _masked(x, where, 0)
    wide = summed_in(masked.dtype, dtype)
    found = masked.sum(axes, dtype=wide) if axes else masked.to(wide)
    found = _kept(found, keepdims, axes, x.ndim)
    return delivered(found + _first(initial, wide) if _is_given(initial) else found, out, "np.sum")


def summed_in(given: Any, dtype: Any) -> Any:
    """The dtype of a sum: small integers are summed in 64 bits of their kind."""
    wanted = dtype_of(dtype)
    if wanted is not None or given.category > 1:
        return wanted or given
    return aj.uint64 if given.kind == "uint" else aj.int64


def _first(initial: Any, dtype: Any) -> Any:
    return tensor_of(initial).to(dtype)


@implements("prod")
def _prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:  # fmt: skip
    x = tensor_of(a)
    axes = axes_of(axis, x.ndim)
    wide = summed_in(x.dtype, dtype)
    found = _masked(x, where, 1).to(wide)
    for place in sorted(axes, reverse=True):
        found = found.prod(place, dtype=found.dtype)
    found = _kept(found, keepdims, axes, x.ndim)
    return delivered(found * _first(initial, wide) if _is_given(initial) else found, out, "np.prod")


def _extreme(name: str) -> Callable[..., Any]:
    def extreme(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True,
        dtype: Any = None,
    ) -> Any:  # fmt: skip
        x = tensor_of(a)
        axes = axes_of(axis, x.ndim)
        is_masked = where is not True and where is not NO_VALUE
        if is_masked and not _is_given(initial):
            raise ValueError(
                f"reduction operation '{name[1:]}imum' does not have an identity, so to use a where mask one has to "
                "specify 'initial'"
            )
        if any(x.shape[axis] == 0 for axis in axes):
            if not _is_given(initial):
                raise ValueError(f"zero-size array to reduction operation {name[1:]}imum which has no identity")
            kept = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
            return delivered(_kept(aj.full(kept, initial, dtype=x.dtype), keepdims, axes, x.ndim), out, name)
        x = aj.where(tensor_of(where), x, _first(initial, x.dtype)) if is_masked else x
        found = _kept(getattr(aj, name)(x, axes) if axes else x, keepdims, axes, x.ndim)
        if _is_given(initial):
            first = _first(initial, found.dtype)
            found = aj.maximum(found, first) if name == "amax" else aj.minimum(found, first)
        return delivered(found, out, f"np.{name}")

    return extreme


_amax, _amin = _extreme("amax"), _extreme("amin")
implements("max", "amax")(_amax)
implements("min", "amin")(_amin)


def _truth(name: str, neutral: bool) -> Callable[..., Any]:
    def truth(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True, initial: Any = None,
        dtype: Any = None,
    ) -> Any:  # fmt: skip
        x = tensor_of(a)
        axes = axes_of(axis, x.ndim)
        found = _masked(x != 0 if x.dtype is not aj.bool else x, where, neutral)
        for place in sorted(axes, reverse=True):
            found = getattr(found, name)(place)
        return delivered(_kept(found, keepdims, axes, x.ndim), out, f"np.{name}")

    return truth


_all, _any = _truth("all", True), _truth("any", False)
implements("all")(_all)
implements("any")(_any)

OF_UFUNC: dict[str, Callable[..., Any]] = {
    "add": _sum, "multiply": _prod, "maximum": _amax, "minimum": _amin, "logical_and": _all, "logical_or": _any,
}  # fmt: skip
"""What ``np.add.reduce`` and its like are."""


# ---- means and moments


@implements("mean")
def _mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    x = inexact(tensor_of(a), dtype)
    axes = axes_of(axis, x.ndim)
    if where is True or where is NO_VALUE:
        found = _kept(x.mean(axes) if axes else x, keepdims, axes, x.ndim)
    else:
        found = _sum(x, axes, keepdims=keepdims, where=where) / _sum(_ones(x, where), axes, keepdims=keepdims)
    return delivered(found, out, "np.mean")


def _ones(x: Any, where: Any) -> Any:
    return aj.broadcast_to(tensor_of(where), x.shape).to(x.dtype.to_real())


@implements("average")
def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    x = inexact(tensor_of(a))
    axes = axes_of(axis, x.ndim)
    w = aj.ones_like(x) if weights is None else tensor_of(weights)
    if w.shape != x.shape:
        if len(axes) != w.ndim or w.shape != tuple(x.shape[i] for i in axes):
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        shape = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
        w = w.permute(order).reshape(shape)
    total = _sum(aj.broadcast_to(w, x.shape), axes, keepdims=keepdims)
    found = _sum(x * w, axes, keepdims=keepdims) / total
    return (found, total.to(found.dtype)) if returned else found


@implements("var")
def _var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = NO_VALUE, correction: Any = NO_VALUE,
) -> Any:  # fmt: skip
    x = inexact(tensor_of(a), dtype)
    axes = axes_of(axis, x.ndim)
    freedom = correction if _is_given(correction) else ddof
    center = tensor_of(mean) if _is_given(mean) else _mean(x, axes, keepdims=True, where=where)
    apart = aj.abs(x - center) if x.dtype.is_complex else x - center
    count = _sum(_ones(x, where), axes, keepdims=keepdims)
    found = _sum(apart * apart, axes, keepdims=keepdims, where=where) / aj.clamp(count - freedom, min=0)
    return delivered(found, out, "np.var")


@implements("std")
def _std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = NO_VALUE, correction: Any = NO_VALUE,
) -> Any:  # fmt: skip
    found = _var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    return delivered(aj.sqrt(found), out, "np.std")


@implements("ptp")
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return delivered(_amax(a, axis, keepdims=keepdims) - _amin(a, axis, keepdims=keepdims), out, "np.ptp")


# ---- positions of extremes, counts


def _position(name: str) -> Callable[..., Any]:
    def position(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        x = tensor_of(a)
        if x.dtype is aj.bool:
            x = x.to(aj.uint8)
        if axis is None:
            found = getattr(aj, name)(x)
            return delivered(_kept(found, keepdims, tuple(range(x.ndim)), x.ndim), out, f"np.{name}")
        place = axis_of(axis, x.ndim)
        return delivered(_kept(getattr(aj, name)(x, place), keepdims, (place,), x.ndim), out, f"np.{name}")

    return position


implements("argmax")(_position("argmax"))
implements("argmin")(_position("argmin"))


@implements("count_nonzero")
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    return _sum(tensor_of(a) != 0, axis, keepdims=keepdims)


# ---- cumulative


def _cumulative(name: str, neutral: int) -> Callable[..., Any]:
    def cumulative(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = tensor_of(a)
        x, place = (x.reshape(-1), 0) if axis is None else (x, axis_of(axis, x.ndim))
        return delivered(getattr(aj, name)(x, place, dtype=summed_in(x.dtype, dtype)), out, f"np.{name}")

    def with_initial(
        x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
    ) -> Any:
        x = tensor_of(x)
        if axis is None and x.ndim > 1:
            raise ValueError(f"For arrays which have more than one dimension ``axis`` argument is required (np.{name})")
        place = axis_of(0 if axis is None else axis, x.ndim)
        found = getattr(aj, name)(x, place, dtype=summed_in(x.dtype, dtype))
        if include_initial:
            first = aj.full_like(found.narrow(place, 0, 1), neutral)
            found = aj.cat([first, found], place)
        return delivered(found, out, f"np.{name}")

    implements(name)(cumulative)
    implements({"cumsum": "cumulative_sum", "cumprod": "cumulative_prod"}[name])(with_initial)
    return cumulative


_cumsum, _cumprod = _cumulative("cumsum", 0), _cumulative("cumprod", 1)


# ---- without NaN


def _filled(a: Any, value: Any) -> Any:
    x = tensor_of(a)
    return x if x.dtype.category < 2 else aj.where(aj.isnan(x), value, x)


@implements("nansum")
def _nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Any:
    return _sum(_filled(a, 0), axis, dtype, out, keepdims, **rest)


@implements("nanprod")
def _nanprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Any:
    return _prod(_filled(a, 1), axis, dtype, out, keepdims, **rest)


@implements("nancumsum")
def _nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _cumsum(_filled(a, 0), axis, dtype, out)


@implements("nancumprod")
def _nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _cumprod(_filled(a, 1), axis, dtype, out)


def _present(x: Any, where: Any) -> Any:
    there = ~aj.isnan(x)
    return there if where is True or where is NO_VALUE else there & tensor_of(where)


@implements("nanmean")
def _nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    x = inexact(tensor_of(a))
    return _mean(_filled(x, 0), axis, dtype, out, keepdims, where=_present(x, where))


@implements("nanvar")
def _nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = NO_VALUE, correction: Any = NO_VALUE,
) -> Any:  # fmt: skip
    x = inexact(tensor_of(a))
    return _var(
        _filled(x, 0), axis, dtype, out, ddof, keepdims, where=_present(x, where), mean=mean, correction=correction
    )


@implements("nanstd")
def _nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, **rest: Any) -> Any:
    return delivered(aj.sqrt(_nanvar(a, axis, dtype, None, ddof, **rest)), out, "np.nanstd")


def _nan_extreme(extreme: Callable[..., Any], worst: float) -> Callable[..., Any]:
    def found(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Any:
        x = tensor_of(a)
        if x.dtype.category < 2:
            return extreme(x, axis, out, keepdims, **rest)
        best = extreme(_filled(x, worst), axis, None, keepdims, **rest)
        return delivered(aj.where(_all(aj.isnan(x), axis, keepdims=keepdims), aj.nan, best), out, "np.nanmax")

    return found


implements("nanmax")(_nan_extreme(_amax, -aj.inf))
implements("nanmin")(_nan_extreme(_amin, aj.inf))


def _nan_position(name: str, worst: float) -> Callable[..., Any]:
    def position(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        return _position(name)(_filled(a, worst), axis, out, keepdims=keepdims)

    return position


implements("nanargmax")(_nan_position("argmax", -aj.inf))
implements("nanargmin")(_nan_position("argmin", aj.inf))


# ---- order statistics

_METHODS = {"linear", "lower", "higher", "midpoint", "nearest"}


def _quantile_of(
    a: Any, q: Any, axis: Any, method: str, keepdims: Any, scale: float, ignore_nan: bool
) -> Any:  # fmt: skip
    if method not in _METHODS:
        raise TypeError(f"np.quantile: method={method!r} has no form for tensors; there are {sorted(_METHODS)}")
    x = inexact(tensor_of(a))
    axes = axes_of(axis, x.ndim)
    kept = [i for i in range(x.ndim) if i not in axes]
    extents = [x.shape[i] for i in kept]
    flat = x.permute(*kept, *axes).reshape(*extents, prod([x.shape[i] for i in axes]))
    levels = tensor_of(q).to(x.dtype) / scale
    if not flat.numel():
        made = [1 if i in axes else x.shape[i] for i in range(x.ndim)] if _is_given(keepdims) and keepdims else extents
        return aj.full((*levels.shape, *made), aj.nan, dtype=x.dtype)
    function = aj.nanquantile if ignore_nan else aj.quantile
    found = function(flat, levels.reshape(-1), -1, interpolation=method)
    if _is_given(keepdims) and keepdims:
        for place in sorted(axes):
            found = found.unsqueeze(place + 1)
    return found.reshape(*levels.shape, *found.shape[1:])


def _quantiles(scale: float, ignore_nan: bool) -> Callable[..., Any]:
    def quantile(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
    ) -> Any:  # fmt: skip
        if weights is not None:
            raise TypeError("np.quantile: weights= has no form for tensors")
        return delivered(_quantile_of(a, q, axis, method, keepdims, scale, ignore_nan), out, "np.quantile")

    return quantile


implements("quantile")(_quantiles(1.0, ignore_nan=False))
implements("percentile")(_quantiles(100.0, ignore_nan=False))
implements("nanquantile")(_quantiles(1.0, ignore_nan=True))
implements("nanpercentile")(_quantiles(100.0, ignore_nan=True))


def _middle(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False, *,
    ignore_nan: bool = False,
) -> Any:  # fmt: skip
    return delivered(_quantile_of(a, 0.5, axis, "linear", keepdims, 1.0, ignore_nan), out, "np.median")


implements("median")(_middle)
implements("nanmedian")(partial(_middle, ignore_nan=True))


# ---- statistics of several variables


@implements("cov")
def _cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    x = inexact(aj.atleast_2d(tensor_of(m)), dtype)
    x = x.T if not rowvar and tensor_of(m).ndim == 2 else x
    if y is not None:
        other = inexact(aj.atleast_2d(tensor_of(y)), dtype)
        x = aj.cat([x, other.T if not rowvar and other.shape[0] != 1 else other], 0)
    freedom = (0 if bias else 1) if ddof is None else ddof
    options = {
        "fweights": None if fweights is None else tensor_of(fweights),
        "aweights": None if aweights is None else tensor_of(aweights),
    }
    return aj.squeeze(aj.cov(x, correction=freedom, **options))


@implements("corrcoef")
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    c = _cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    spread = aj.sqrt(aj.diagonal(c))
    found = c / spread[:, None] / spread[None, :]
    return found if found.dtype.is_complex else aj.clamp(found, -1, 1)
