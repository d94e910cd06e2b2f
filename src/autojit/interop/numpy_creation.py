"""NumPy's functions that make arrays, for tensors: ``zeros_like(x)``, ``zeros(n, like=x)``, ``linspace(x, y)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.interop.registry import FUNCTIONS, Function, dtype_of, implements, inexact, sizes_of, tensor_of


def _shaped_like(name: str) -> Function:
    def like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **more: Any) -> Any:
        x = tensor_of(a)
        extents, wanted = x.shape if shape is None else sizes_of(shape), dtype_of(dtype) or x.dtype
        if extents == x.shape:
            return getattr(aj, f"{name}_like")(x, dtype=wanted)
        return getattr(x, f"new_{name}")(extents, dtype=wanted)

    return like


implements("zeros_like", "empty_like")(_shaped_like("zeros"))
implements("ones_like")(_shaped_like("ones"))


@implements("full_like")
def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **more: Any
) -> Any:
    x = tensor_of(a)
    return _full(x.shape if shape is None else shape, fill_value, dtype_of(dtype) or x.dtype)


def _default(dtype: Any) -> Any:
    return dtype_of(dtype) or aj.float64


@implements("zeros", "empty")
def _zeros_of(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Any:
    return aj.zeros(sizes_of(shape), dtype=_default(dtype))


@implements("ones")
def _ones_of(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Any:
    return aj.ones(sizes_of(shape), dtype=_default(dtype))


@implements("full")
def _full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Any:
    value = tensor_of(fill_value)
    return aj.broadcast_to(value.to(dtype_of(dtype) or value.dtype), sizes_of(shape)).clone()


@implements("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
def _array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: Any = None, subok: bool = False, ndmin: int = 0,
    device: Any = None,
) -> Any:  # fmt: skip
    x = tensor_of(object)
    found = x if dtype is None else x.to(dtype_of(dtype))
    found = found.clone() if copy and found is object else found
    return found.reshape(*[1] * (ndmin - found.ndim), *found.shape) if found.ndim < ndmin else found


@implements("arange")
def _arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None) -> Any:
    if stop is None:
        start, stop = 0, start
    wanted = dtype_of(dtype) or dtype_of(
        np.result_type(*[np.asarray(v) for v in (start, stop, 1 if step is None else step)])
    )
    return aj.arange(start, stop, 1 if step is None else step, dtype=wanted)


@implements("eye")
def _eye(N: int, M: Any = None, k: int = 0, dtype: Any = None, order: str = "C", *, device: Any = None) -> Any:
    return aj.as_tensor(np.eye(N, M, k, dtype=_default(dtype).numpy))


@implements("identity")
def _identity(n: int, dtype: Any = None) -> Any:
    return aj.eye(n, dtype=_default(dtype))


@implements("tri")
def _tri(N: int, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    return aj.as_tensor(np.tri(N, M, k, dtype=_default(dtype).numpy))


@implements("fromfunction")
def _fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = None, **options: Any) -> Any:
    axes = [aj.as_tensor(axis) for axis in np.indices(sizes_of(shape), dtype=_default(dtype).numpy)]
    return function(*axes, **options)


@implements("linspace")
def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    low, high = (inexact(v) for v in (start, stop))
    count = max((num - 1) if endpoint else num, 0)
    step = (high - low) / count if count else (high - low) * aj.nan
    ramp = aj.arange(num, dtype=low.dtype.to_real(), device=low.device).reshape([num] + [1] * (low - high).ndim)
    found = low + ramp * step if count else low + aj.zeros_like(ramp) * high
    if endpoint and num > 1:
        last = aj.broadcast_to(high, found.shape[1:])
        found = aj.cat([found[:-1], last.to(found.dtype)[None]])
    found = found.movedim(0, axis) if axis else found
    wanted = dtype_of(dtype)
    found = found if wanted is None else (aj.floor(found) if wanted.category < 2 else found).to(wanted)
    return (found, step) if retstep else found


@implements("logspace")
def _logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    powers = _linspace(start, stop, num, endpoint, axis=axis)
    found = tensor_of(base).to(powers.dtype) ** powers
    return found if dtype is None else found.to(dtype_of(dtype))


@implements("geomspace")
def _geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    low, high = (inexact(v) for v in (start, stop))
    sign = aj.sgn(low)
    found = sign * aj.exp(_linspace(aj.log(low / sign), aj.log(high / sign), num, endpoint, axis=axis))
    return found if dtype is None else found.to(dtype_of(dtype))


@implements("ix_")
def _ix(*args: Any) -> Any:
    parts = []
    for place, sequence in enumerate(args):
        x = tensor_of(sequence)
        index = aj.nonzero(x)[:, 0] if x.dtype is aj.bool else x
        parts.append(index.reshape([-1 if k == place else 1 for k in range(len(args))]))
    return tuple(parts)


MAKERS: dict[str, Callable[..., Any]] = {
    name: FUNCTIONS[getattr(np, name)]
    for name in (
        "arange", "array", "asarray", "asanyarray", "ascontiguousarray", "empty", "eye", "fromfunction", "full",
        "geomspace", "identity", "linspace", "logspace", "ones", "tri", "zeros",
    )
}  # fmt: skip
"""By NumPy's name, the functions that make an array from nothing or from numbers."""
