"""NumPy's reductions over tensors: sums, extremes, means, quantiles, with ``where=``, ``initial=`` and several axes."""

from __future__ import annotations

import operator
from functools import partial
from math import prod
from typing import Any

import autojit as aj
from autojit.interop.registry import (
    NO_VALUE,
    Function,
    along,
    axes_of,
    axis_of,
    delivered,
    dtype_of,
    enter,
    implements,
    inexact,
    tensor_of,
)  # fmt: skip


def _is_given(value: Any) -> bool:
    return value is not NO_VALUE and value is not None


def _is_everywhere(where: Any) -> bool:
    return where is True or where is NO_VALUE


def _masked(x: Any, where: Any, neutral: Any) -> Any:
    return x if _is_everywhere(where) else aj.where(tensor_of(where), x, neutral)


def _kept(result: Any, keepdims: Any, axes: tuple[int, ...], offset: int = 0) -> Any:
    """The axes that were reduced, back with extent 1 (ascending, so that the places hold) behind some others."""
    if _is_given(keepdims) and keepdims:
        for axis in sorted(axes):
            result = result.unsqueeze(axis + offset)
    return result


def summed_in(given: Any, dtype: Any) -> Any:
    """The dtype of a sum: small integers are summed in 64 bits of their kind."""
    wanted = dtype_of(dtype)
    if wanted is not None or given.category > 1:
        return wanted or given
    return aj.uint64 if given.kind == "uint" else aj.int64


def _first(initial: Any, dtype: Any) -> Any:
    return tensor_of(initial).to(dtype)


def _folding(name: str, neutral: int, fold: Function, join: Function) -> Function:
    def folding(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE,
        where: Any = True,
    ) -> Any:  # fmt: skip
        x = tensor_of(a)
        axes = axes_of(axis, x.ndim)
        wide = summed_in(x.dtype, dtype)
        found = _kept(fold(_masked(x, where, neutral), axes, wide), keepdims, axes)
        return delivered(join(found, _first(initial, wide)) if _is_given(initial) else found, out, f"np.{name}")

    return folding


def _added(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    return x.sum(axes, dtype=dtype) if axes else x.to(dtype)


def _multiplied(x: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    x = x.to(dtype)
    for place in sorted(axes, reverse=True):
        x = x.prod(place, dtype=dtype)
    return x


_sum, _prod = _folding("sum", 0, _added, operator.add), _folding("prod", 1, _multiplied, operator.mul)


def _extreme(name: str) -> Function:
    def extreme(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = True,
        dtype: Any = None,
    ) -> Any:  # fmt: skip
        x = tensor_of(a)
        axes = axes_of(axis, x.ndim)
        is_masked = not _is_everywhere(where)
        if is_masked and not _is_given(initial):
            raise ValueError(
                f"reduction operation '{name[1:]}imum' does not have an identity, so to use a where mask one has to "
                "specify 'initial'"
            )
        if any(x.shape[axis] == 0 for axis in axes):
            if not _is_given(initial):
                raise ValueError(f"zero-size array to reduction operation {name[1:]}imum which has no identity")
            kept = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
            return delivered(_kept(aj.full(kept, initial, dtype=x.dtype, device=x.device), keepdims, axes), out, name)
        x = aj.where(tensor_of(where), x, _first(initial, x.dtype)) if is_masked else x
        found = _kept(getattr(aj, name)(x, axes) if axes else x, keepdims, axes)
        if _is_given(initial):
            first = _first(initial, found.dtype)
            found = aj.maximum(found, first) if name == "amax" else aj.minimum(found, first)
        return delivered(found, out, f"np.{name}")

    return extreme


_amax, _amin = _extreme("amax"), _extreme("amin")


def _truth(name: str, neutral: bool) -> Function:
    def truth(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True, initial: Any = None,
        dtype: Any = None,
    ) -> Any:  # fmt: skip
        x = tensor_of(a)
        axes = axes_of(axis, x.ndim)
        found = _masked(x != 0 if x.dtype is not aj.bool else x, where, neutral)
        for place in sorted(axes, reverse=True):
            found = getattr(found, name)(place)
        return delivered(_kept(found, keepdims, axes), out, f"np.{name}")

    return truth


_all, _any = _truth("all", True), _truth("any", False)

OF_UFUNC: dict[str, Function] = {
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
    if _is_everywhere(where):
        found = _kept(x.mean(axes) if axes else x, keepdims, axes)
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


# ---- positions of extremes, counts


def _position(name: str) -> Function:
    def position(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        x = tensor_of(a)
        x = x.to(aj.uint8) if x.dtype is aj.bool else x
        axes = () if axis is None else (axis_of(axis, x.ndim),)
        found = _kept(getattr(aj, name)(x, *axes), keepdims, axes or tuple(range(x.ndim)))
        return delivered(found, out, f"np.{name}")

    return position


_argmax, _argmin = _position("argmax"), _position("argmin")


# ---- cumulative


def _cumulative(name: str) -> Function:
    def cumulative(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x, place = along(a, axis)
        return delivered(getattr(aj, name)(x, place, dtype=summed_in(x.dtype, dtype)), out, f"np.{name}")

    return cumulative


_cumsum, _cumprod = _cumulative("cumsum"), _cumulative("cumprod")


def _with_initial(name: str, neutral: int) -> Function:
    def cumulative(
        x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
    ) -> Any:
        x = tensor_of(x)
        if axis is None and x.ndim > 1:
            raise ValueError(f"For arrays which have more than one dimension ``axis`` argument is required (np.{name})")
        place = axis_of(0 if axis is None else axis, x.ndim)
        found = getattr(aj, name)(x, place, dtype=summed_in(x.dtype, dtype))
        if include_initial:
            first = [*found.shape[:place], 1, *found.shape[place + 1 :]]
            found = aj.cat([aj.full(first, neutral, dtype=found.dtype, device=found.device), found], place)
        return delivered(found, out, f"np.{name}")

    return cumulative


# ---- without NaN


def _filled(a: Any, value: Any) -> Any:
    x = tensor_of(a)
    return x if x.dtype.category < 2 else aj.where(aj.isnan(x), value, x)


def _without_nan(function: Function, neutral: float) -> Function:
    return lambda a, *arguments, **options: function(_filled(a, neutral), *arguments, **options)


def _present(x: Any, where: Any) -> Any:
    there = ~aj.isnan(x)
    return there if _is_everywhere(where) else there & tensor_of(where)


def _of_present(function: Function) -> Function:
    def of_present(a: Any, *arguments: Any, where: Any = True, **options: Any) -> Any:
        x = inexact(tensor_of(a))
        return function(_filled(x, 0), *arguments, where=_present(x, where), **options)

    return of_present


_nanvar = _of_present(_var)


def _nan_extreme(extreme: Function, worst: float) -> Function:
    def found(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Any:
        x = tensor_of(a)
        if x.dtype.category < 2:
            return extreme(x, axis, out, keepdims, **rest)
        best = extreme(_filled(x, worst), axis, None, keepdims, **rest)
        return delivered(aj.where(_all(aj.isnan(x), axis, keepdims=keepdims), aj.nan, best), out, "np.nanmax")

    return found


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
        return aj.full((*levels.shape, *made), aj.nan, dtype=x.dtype, device=x.device)
    function = aj.nanquantile if ignore_nan else aj.quantile
    found = function(flat, levels.reshape(-1), -1, interpolation=method)
    found = _kept(found, keepdims, axes, offset=1)
    return found.reshape(*levels.shape, *found.shape[1:])


def _quantiles(scale: float, ignore_nan: bool) -> Function:
    def quantile(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
    ) -> Any:  # fmt: skip
        if weights is not None:
            raise TypeError("np.quantile: weights= has no form for tensors")
        return delivered(_quantile_of(a, q, axis, method, keepdims, scale, ignore_nan), out, "np.quantile")

    return quantile


def _middle(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False, *,
    ignore_nan: bool = False,
) -> Any:  # fmt: skip
    return delivered(_quantile_of(a, 0.5, axis, "linear", keepdims, 1.0, ignore_nan), out, "np.median")


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


# ---- all of one form


enter(
    sum=_sum, prod=_prod, max=_amax, amax=_amax, min=_amin, amin=_amin, all=_all, any=_any,
    argmax=_argmax, argmin=_argmin, cumsum=_cumsum, cumprod=_cumprod,
    cumulative_sum=_with_initial("cumsum", 0), cumulative_prod=_with_initial("cumprod", 1),
    nansum=_without_nan(_sum, 0), nanprod=_without_nan(_prod, 1),
    nancumsum=_without_nan(_cumsum, 0), nancumprod=_without_nan(_cumprod, 1),
    nanmean=_of_present(_mean), nanvar=_nanvar,
    nanargmax=_without_nan(_argmax, -aj.inf), nanargmin=_without_nan(_argmin, aj.inf),
    nanmax=_nan_extreme(_amax, -aj.inf), nanmin=_nan_extreme(_amin, aj.inf),
    quantile=_quantiles(1.0, ignore_nan=False), percentile=_quantiles(100.0, ignore_nan=False),
    nanquantile=_quantiles(1.0, ignore_nan=True), nanpercentile=_quantiles(100.0, ignore_nan=True),
    median=_middle, nanmedian=partial(_middle, ignore_nan=True),
    ptp=lambda a, axis=None, out=None, keepdims=False: (
        delivered(_amax(a, axis, keepdims=keepdims) - _amin(a, axis, keepdims=keepdims), out, "np.ptp")
    ),
    count_nonzero=lambda a, axis=None, *, keepdims=False: _sum(tensor_of(a) != 0, axis, keepdims=keepdims),
    nanstd=lambda a, axis=None, dtype=None, out=None, ddof=0, **rest: (
        delivered(aj.sqrt(_nanvar(a, axis, dtype, None, ddof, **rest)), out, "np.nanstd")
    ),
)  # fmt: skip
