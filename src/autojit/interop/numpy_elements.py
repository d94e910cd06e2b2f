"""NumPy's functions that pick, place, order and compare elements of tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit.dispatch.declared import DECLARED
from autojit.interop.registry import (
    NO_VALUE,
    Function,
    alike,
    along,
    axis_of,
    delivered,
    dtype_of,
    enter,
    host,
    implements,
    inexact,
    joined,
    operand,
    place_of,
    sizes_of,
    tensor_of,
)  # fmt: skip


def _places(condition: Any) -> Any:
    """Where a condition holds, flattened; one that is not a tensor is looked at now, also inside a capture."""
    if isinstance(condition, aj.Tensor):
        return aj.nonzero(_mask(condition).reshape(-1))[:, 0]
    return aj.as_tensor(np.flatnonzero(host(condition)))


def _mask(condition: Any) -> Any:
    found = tensor_of(condition)
    return found if found.dtype is aj.bool else found != 0


@implements("where")
def _where(condition: Any, x: Any = NO_VALUE, y: Any = NO_VALUE, /) -> Any:
    mask = _mask(condition)
    if x is NO_VALUE and y is NO_VALUE:
        return _nonzero(mask)
    if x is NO_VALUE or y is NO_VALUE:
        raise ValueError("either both or neither of x and y should be given")
    return aj.where(mask, *alike(x, y))


@implements("nonzero")
def _nonzero(a: Any) -> Any:
    x = tensor_of(a)
    if x.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return tuple(aj.nonzero(x).unbind(1))


@implements("select")
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    *choices, found = alike(*choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        found = aj.where(_mask(condition), choice, found)
    return found


@implements("choose")
def _choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    index = tensor_of(a)
    parts = aj.broadcast_tensors(index, *[tensor_of(c) for c in choices])
    stacked = joined(aj.stack, parts[1:])
    return delivered(aj.gather(stacked, 0, _within(parts[0], len(choices), mode)[None])[0], out, "np.choose")


@implements("piecewise")
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    x = tensor_of(x)
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    masks = [_mask(c) for c in conditions]
    if len(funclist) == len(masks) + 1:
        rest = ~masks[0]
        for mask in masks[1:]:
            rest = rest & ~mask
        masks.append(rest)
    found = aj.zeros_like(x)
    for mask, function in zip(masks, funclist, strict=True):
        if callable(function):
            found = aj.masked_scatter(found, mask, function(x[mask], *args, **kw))
        else:
            found = aj.where(mask, operand(function), found)
    return found


@implements("clip")
def _clip(
    a: Any, a_min: Any = NO_VALUE, a_max: Any = NO_VALUE, out: Any = None, *, min: Any = NO_VALUE, max: Any = NO_VALUE,
    dtype: Any = None, **options: Any,
) -> Any:  # fmt: skip
    x = tensor_of(a)
    low, high = (min if a_min is NO_VALUE else a_min), (max if a_max is NO_VALUE else a_max)
    if low is not NO_VALUE and low is not None:
        x = aj.maximum(*alike(x, low))
    if high is not NO_VALUE and high is not None:
        x = aj.minimum(*alike(x, high))
    return delivered(x if dtype is None else x.to(dtype_of(dtype)), out, "np.clip")


# ---- taking and putting


def _within(index: Any, count: int, mode: str) -> Any:
    if mode == "wrap":
        return aj.remainder(index, count)
    if mode == "clip":
        return aj.clamp(index, 0, max(count - 1, 0))
    return aj.where(index < 0, index + count, index)


@implements("take")
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    (x, place), index = along(a, axis), tensor_of(indices)
    picked = x.index_select(place, _within(index, x.shape[place], mode).reshape(-1).to(aj.int64))
    return delivered(picked.reshape(*x.shape[:place], *index.shape, *x.shape[place + 1 :]), out, "np.take")


@implements("take_along_axis")
def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    (x, place), index = along(arr, axis), tensor_of(indices)
    return aj.take_along_dim(x, _within(index, x.shape[place], "raise"), place)


@implements("compress")
def _compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    x, place = along(a, axis)
    return delivered(x.index_select(place, _places(condition)), out, "np.compress")


def _target(x: Any, name: str) -> Any:
    if isinstance(x, aj.Tensor):
        return x
    raise TypeError(f"{name}: a NumPy array cannot take a tensor in place; make it one first: aj.as_tensor(array)")


def _cycled(values: Any, count: int, dtype: Any) -> Any:
    """As many values, from the first again after the last."""
    given = tensor_of(values).to(dtype).reshape(-1)
    return aj.tile(given, (-(-count // max(given.numel(), 1)),))[:count]


@implements("put")
def _put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = _target(a, "np.put")
    index = _within(tensor_of(ind).reshape(-1), x.numel(), mode)
    x.put_(index, _cycled(v, index.numel(), x.dtype))


@implements("putmask")
def _putmask(a: Any, mask: Any, values: Any) -> None:
    x = _target(a, "np.putmask")
    x.copy_(aj.where(_mask(mask), _cycled(values, x.numel(), x.dtype).reshape(x.shape), x))


@implements("put_along_axis")
def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    x, index = _target(arr, "np.put_along_axis"), tensor_of(indices)
    place = axis_of(0 if axis is None else axis, x.ndim)
    new = x.reshape(-1) if axis is None else x
    given = aj.broadcast_to(tensor_of(values).to(x.dtype), index.shape)
    x.copy_(new.scatter(place, _within(index, new.shape[place], "raise"), given).reshape(x.shape))


@implements("copyto")
def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, aj.Tensor):
        result = tensor_of(src)
        delivered(result if where is True else aj.where(_mask(where), result, tensor_of(dst)), dst, "np.copyto")
        return
    value = tensor_of(src).to(dst.dtype)
    dst.copy_(value if where is True else aj.where(_mask(where), value, dst))


@implements("fill_diagonal")
def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = _target(a, "np.fill_diagonal")
    if x.ndim == 2 and not wrap:
        x.diagonal()[...] = val
        return
    step = x.shape[1] + 1 if x.ndim == 2 else int(1 + np.cumprod(x.shape[:-1]).sum())
    end = None if x.ndim > 2 or wrap else x.shape[1] * x.shape[1]
    x.view(-1)[:end:step] = val


# ---- order


def _row(a: Any, axis: Any) -> tuple[Any, Any]:
    x = tensor_of(a)
    return (x.reshape(-1), 0) if axis is None else (x, axis)


def _argsort(a: Any, axis: Any) -> Any:
    return aj.argsort(*_row(a, axis), stable=True)


def _sort(a: Any, axis: Any) -> Any:
    return aj.sort(*_row(a, axis), stable=True)[0]


@implements("lexsort")
def _lexsort(keys: Any, axis: Any = -1) -> Any:
    parts = [tensor_of(k) for k in keys]
    order = aj.argsort(parts[0], axis, stable=True)
    for key in parts[1:]:
        order = aj.gather(order, axis, aj.argsort(aj.gather(key, axis, order), axis, stable=True))
    return order


@implements("digitize")
def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges, points = tensor_of(bins), tensor_of(x)
    if bool((edges[1:] >= edges[:-1]).all()):
        return aj.searchsorted(edges, points, right=not right)
    return edges.shape[0] - aj.searchsorted(edges.flip(0), points, right=not right)


# ---- sets


@implements("unique")
def _unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    x = tensor_of(ar)
    if not (return_index or return_inverse or return_counts) and axis is None:
        return aj.unique(x)
    _, first, inverse, counts = np.unique(host(x), True, True, True, axis=axis)
    flat = x.reshape(-1) if axis is None else x
    found = [flat.index_select(0 if axis is None else axis, aj.as_tensor(first, device=x.device))]
    asked = ((return_index, first), (return_inverse, inverse), (return_counts, counts))
    return tuple(found + [aj.as_tensor(part, device=x.device) for is_asked, part in asked if is_asked])


def _unique_parts(x: Any) -> tuple[Any, Any, Any, Any]:
    """Different elements, where they are first, the inverse, counts: NaN are all different, as the standard says."""
    t = tensor_of(x)
    _, first, inverse, counts = np.unique(host(t), True, True, True, equal_nan=False)
    parts = (first, inverse.reshape(t.shape), counts)
    first_places, inverses, numbers = (aj.as_tensor(part, device=t.device) for part in parts)
    return t.reshape(-1)[first_places], first_places, inverses, numbers


class UniqueAll(NamedTuple):
    """What ``unique_all`` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` gives."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` gives."""

    values: Any
    inverse_indices: Any


def _set_operation(name: str) -> Function:
    """What two sets have, in order; of values alone, so on the host."""

    def operation(ar1: Any, ar2: Any, *arguments: Any, **options: Any) -> Any:
        found = getattr(np, name)(host(ar1), host(ar2), *arguments, **options)
        place = place_of(ar1, ar2)
        made = [aj.as_tensor(f, device=place) for f in (found if isinstance(found, tuple) else (found,))]
        return tuple(made) if isinstance(found, tuple) else made[0]

    return operation


# ---- comparing, replacing, rounding


@implements("isclose")
def _isclose(a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False) -> Any:
    x, y = tensor_of(a).detach(), tensor_of(b).detach()
    common = aj.promote_types(x.dtype, y.dtype)
    return aj.isclose(x.to(common), y.to(common), rtol=rtol, atol=atol, equal_nan=equal_nan)


@implements("nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = tensor_of(x)
    if x.dtype.is_complex:
        found = aj.complex(*[aj.nan_to_num(part, nan, posinf, neginf) for part in (aj.real(x), aj.imag(x))])
    else:
        found = aj.nan_to_num(x, nan, posinf, neginf)
    return found if copy else x.copy_(found)


@implements("round", "around", "round_")
def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    x = tensor_of(a)
    return delivered(aj.round(x, decimals=decimals) if x.dtype.category > 1 or decimals < 0 else x, out, "np.round")


def _of_one_array(name: str, ours: Function) -> Function:
    return lambda x, out=None: delivered(ours(inexact(x)), out, f"np.{name}")


for _d in DECLARED.values():
    for _name in _d.numpy:
        if not isinstance(getattr(np, _name, None), np.ufunc):
            implements(_name)(_of_one_array(_name, getattr(aj, _d.name)))


@implements("imag")
def _imag(val: Any) -> Any:
    x = tensor_of(val)
    return aj.imag(x) if x.dtype.is_complex else aj.zeros_like(x)


@implements("real_if_close")
def _real_if_close(a: Any, tol: Any = 100) -> Any:
    x = tensor_of(a)
    return x if np.iscomplexobj(np.real_if_close(host(x), tol)) or not x.dtype.is_complex else aj.real(x)


@implements("bincount")
def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    if weights is None:
        return aj.bincount(tensor_of(x), minlength=minlength)
    places, w = tensor_of(x), tensor_of(weights)
    count = max(int(places.max()) + 1 if places.numel() else 0, minlength)
    wide = w if w.dtype.category > 1 else w.to(aj.float64)
    return aj.zeros(count, dtype=wide.dtype, device=wide.device).index_add(0, places, wide)


@implements("histogram")
def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    x = tensor_of(a).detach().reshape(-1)
    edges = aj.as_tensor(np.histogram_bin_edges(host(x), host(bins), range, host(weights)), device=x.device)
    places = _digitize(x.to(edges.dtype), edges) - 1
    last = edges.shape[0] - 1
    places = aj.where(x == edges[-1], last - 1, places)
    inside = (places >= 0) & (places < last)
    w = aj.ones_like(x, dtype=aj.int64) if weights is None else tensor_of(weights).reshape(-1)
    counts = w.new_zeros((last,)).index_add(0, aj.where(inside, places, 0), aj.where(inside, w, 0))
    if density:
        widths = edges[1:] - edges[:-1]
        return counts / widths / counts.sum(), edges
    return counts, edges


@implements("unravel_index")
def _unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    index, places = tensor_of(indices), []
    extents = sizes_of(shape)
    for n in reversed(extents) if order == "C" else extents:
        places.append(aj.remainder(index, n))
        index = aj.floor_divide(index, n)
    return tuple(reversed(places) if order == "C" else places)


@implements("ravel_multi_index")
def _ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> Any:
    found: Any = 0
    pairs = list(zip([tensor_of(i) for i in multi_index], sizes_of(dims), strict=True))
    for index, n in pairs if order == "C" else reversed(pairs):
        found = found * n + _within(index, n, mode)
    return found


# ---- what only brings its arguments to one of ours


enter(
    **{name: _set_operation(name) for name in ("intersect1d", "setdiff1d", "setxor1d", "union1d")},
    argwhere=lambda a: aj.nonzero(tensor_of(a)),
    flatnonzero=lambda a: aj.nonzero(tensor_of(a).reshape(-1))[:, 0],
    extract=lambda condition, arr: tensor_of(arr).reshape(-1)[_places(condition)],
    place=lambda arr, mask, vals: _put(_target(arr, "np.place"), _places(mask), vals),
    sort=lambda a, axis=-1, kind=None, order=None, *, stable=None: _sort(a, axis),
    argsort=lambda a, axis=-1, kind=None, order=None, *, stable=None: _argsort(a, axis),
    partition=lambda a, kth, axis=-1, kind=None, order=None: _sort(a, axis),
    argpartition=lambda a, kth, axis=-1, kind=None, order=None: _argsort(a, axis),
    searchsorted=lambda a, v, side="left", sorter=None: aj.searchsorted(
        tensor_of(a), operand(v), right=side == "right", sorter=None if sorter is None else tensor_of(sorter)
    ),
    unique_values=lambda x, /: _unique_parts(x)[0],
    unique_all=lambda x, /: UniqueAll(*_unique_parts(x)),
    unique_counts=lambda x, /: UniqueCounts(*_unique_parts(x)[::3]),
    unique_inverse=lambda x, /: UniqueInverse(*_unique_parts(x)[::2]),
    isin=lambda element, test_elements, assume_unique=False, invert=False, *, kind=None: aj.isin(
        tensor_of(element), tensor_of(test_elements), assume_unique=assume_unique, invert=invert
    ),
    fix=lambda x, out=None: delivered(aj.trunc(tensor_of(x)), out, "np.fix"),
    i0=lambda x: aj.special.i0(inexact(x)),
    isreal=lambda x: aj.isreal(tensor_of(x)),
    iscomplex=lambda x: ~aj.isreal(tensor_of(x)),
    angle=lambda z, deg=False: aj.rad2deg(aj.angle(inexact(z))) if deg else aj.angle(inexact(z)),
    real=lambda val: aj.real(tensor_of(val)),
)
