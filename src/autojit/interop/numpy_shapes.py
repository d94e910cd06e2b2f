"""NumPy's functions of shape and order over tensors: reshape, transpose, join, split, tile, pad, roll."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.dtypes import dtype_of_numpy
from autojit.core.sizes import agree_on
from autojit.interop.registry import (
    FUNCTIONS,
    Function,
    along,
    axes_of,
    axis_of,
    delivered,
    dtype_of,
    enter,
    holds_tensors,
    host,
    implements,
    joined,
    sizes_of,
    tensor_of,
)  # fmt: skip


@implements("reshape")
def _reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    x = tensor_of(a)
    if order == "F":
        resolved = aj.empty(x.shape, device=x.device).reshape(sizes_of(shape)).shape
        return _reversed(_reversed(x).reshape(*resolved[::-1]))
    x = x.clone() if copy else x
    return x.reshape(sizes_of(shape))


def _reversed(x: Any) -> Any:
    return x.permute(*range(x.ndim)[::-1])


@implements("resize")
def _resize(a: Any, new_shape: Any) -> Any:
    flat = tensor_of(a).reshape(-1)
    shape = sizes_of(new_shape)
    count = int(np.prod(shape))
    if not flat.numel():
        return aj.zeros(shape, dtype=flat.dtype, device=flat.device)
    return flat.repeat(-(-count // flat.numel()))[:count].reshape(shape)


@implements("transpose", "permute_dims")
def _transpose(a: Any, axes: Any = None) -> Any:
    x = tensor_of(a)
    return _reversed(x) if axes is None else x.permute(*[axis_of(axis, x.ndim) for axis in axes])


@implements("rollaxis")
def _rollaxis(a: Any, axis: Any, start: Any = 0) -> Any:
    x = tensor_of(a)
    place, start = axis_of(axis, x.ndim), start + x.ndim if start < 0 else start
    return x.movedim(place, start - 1 if place < start else start)


@implements("expand_dims")
def _expand_dims(a: Any, axis: Any) -> Any:
    x = tensor_of(a)
    given = axis if isinstance(axis, tuple | list) else (axis,)
    for place in sorted(axes_of(given, x.ndim + len(given))):
        x = x.unsqueeze(place)
    return x


@implements("squeeze")
def _squeeze(a: Any, axis: Any = None) -> Any:
    x = tensor_of(a)
    axes = axes_of(axis, x.ndim) if axis is not None else tuple(i for i, n in enumerate(x.shape) if n == 1)
    if any(x.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


@implements("broadcast_arrays")
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    parts = [a if isinstance(a, aj.Tensor) else np.asarray(a) for a in args]  # what is not a tensor stays an array
    shape = np.broadcast_shapes(*[tuple(p.shape) for p in parts])
    return tuple(aj.broadcast_to(p, shape) if isinstance(p, aj.Tensor) else np.broadcast_to(p, shape) for p in parts)


def _at_least(name: str) -> Function:
    def at_least(*arys: Any) -> Any:
        found = [getattr(aj, name)(tensor_of(a)) for a in arys]
        return found[0] if len(found) == 1 else tuple(found)

    return at_least


# ---- joining and splitting


@implements("concatenate", "concat")
def _concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    parts = [tensor_of(a) for a in arrays]
    if axis is None:
        parts, axis = [p.reshape(-1) for p in parts], 0
    if any(p.ndim == 0 for p in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    return delivered(joined(aj.cat, parts, axis_of(axis, parts[0].ndim), dtype=dtype), out, "np.concatenate")


@implements("stack")
def _stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = None) -> Any:
    parts = [tensor_of(a) for a in arrays]
    if not all(agree_on(p.shape, parts[0].shape) for p in parts):
        raise ValueError("all input arrays must have the same shape")
    return delivered(joined(aj.stack, parts, axis_of(axis, parts[0].ndim + 1), dtype=dtype), out, "np.stack")


def _stacking(name: str) -> Function:
    return lambda tup, *, dtype=None, casting=None: joined(getattr(aj, name), list(tup), dtype=dtype)


@implements("block")
def _block(arrays: Any) -> Any:
    depth = _depth(arrays)
    return _blocks(arrays, depth, max(depth, _most_axes(arrays)))


def _depth(arrays: Any) -> int:
    return 1 + max(_depth(a) for a in arrays) if isinstance(arrays, list) else 0


def _most_axes(arrays: Any) -> int:
    return max(_most_axes(a) for a in arrays) if isinstance(arrays, list) else tensor_of(arrays).ndim


def _blocks(arrays: Any, depth: int, ndim: int) -> Any:
    if not isinstance(arrays, list):
        x = tensor_of(arrays)
        return x.reshape(*[1] * (ndim - x.ndim), *x.shape)
    return joined(aj.cat, [_blocks(a, depth - 1, ndim) for a in arrays], -depth)


@implements("append")
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    x, y = tensor_of(arr), tensor_of(values)
    return _concatenate([x.reshape(-1), y.reshape(-1)], 0) if axis is None else _concatenate([x, y], axis)


@implements("insert")
def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x, place = along(arr, axis)
    count = x.shape[place]
    where = np.insert(np.arange(count), host(obj), -1)
    kept = np.flatnonzero(where >= 0)
    shape = [*x.shape]
    shape[place] = len(where)
    found = aj.zeros(shape, dtype=x.dtype, device=x.device)
    index: list[Any] = [slice(None)] * x.ndim
    index[place] = aj.as_tensor(kept, device=x.device)
    found[tuple(index)] = x
    y = tensor_of(values, x.device).to(x.dtype)
    if np.ndim(host(obj)) == 0 and y.ndim:
        y = y.unsqueeze(place) if y.ndim < x.ndim else y.movedim(0, place)
    index[place] = aj.as_tensor(np.flatnonzero(where < 0), device=x.device)
    found[tuple(index)] = y
    return found


@implements("delete")
def _delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    x, place = along(arr, axis)
    kept = np.delete(np.arange(x.shape[place]), host(obj) if not isinstance(obj, slice) else obj)
    return x.index_select(place, aj.as_tensor(kept, device=x.device))


@implements("split")
def _split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    x = tensor_of(ary)
    if not isinstance(indices_or_sections, Sequence | np.ndarray) and x.shape[axis] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return _array_split(x, indices_or_sections, axis)


@implements("array_split")
def _array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    if isinstance(indices_or_sections, Sequence | np.ndarray):
        indices_or_sections = [int(i) for i in indices_or_sections]
    return list(aj.tensor_split(tensor_of(ary), indices_or_sections, axis))


def _splitting(name: str, least: int, axis: int) -> Function:
    """``hsplit`` and its like: along an axis of arrays that have ``least`` axes, the only one of a vector."""

    def split_along(ary: Any, indices_or_sections: Any) -> Any:
        x = tensor_of(ary)
        if x.ndim < least:
            raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
        return _split(x, indices_or_sections, min(axis, x.ndim - 1))

    return split_along


# ---- repeating, turning, shifting


@implements("repeat")
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x, place = along(a, axis)
    return aj.repeat_interleave(x, repeats if isinstance(repeats, int) else tensor_of(repeats), place)


@implements("roll")
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    x = tensor_of(a)
    if axis is None:
        return aj.roll(x.reshape(-1), int(np.sum(host(shift))), 0).reshape(x.shape)
    shifts, axes = np.broadcast_arrays(host(shift), host(axis))
    return aj.roll(x, [int(s) for s in shifts.ravel()], [int(i) for i in axes.ravel()])


def _pairs(value: Any, ndim: int) -> list[tuple[Any, Any]]:
    return [tuple(pair) for pair in np.broadcast_to(np.asarray(host(value)), (ndim, 2)).tolist()]


@implements("pad")
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    x = tensor_of(array)
    if isinstance(pad_width, dict):
        given = {axis_of(k, x.ndim): v for k, v in pad_width.items()}
        pad_width = [
            given.get(i, (0, 0)) if np.ndim(given.get(i, 0)) else (given.get(i, 0),) * 2 for i in range(x.ndim)
        ]
    widths = _pairs(pad_width, x.ndim)
    if mode == "constant":
        return _padded_with(x, widths, options.get("constant_values", 0))
    sources = np.arange(x.numel()).reshape(x.shape)
    if mode in ("edge", "reflect", "symmetric", "wrap", "empty"):
        places = np.pad(sources, widths, mode="edge" if mode == "empty" else mode)
        if options.get("reflect_type", "even") != "even":
            raise TypeError("np.pad: reflect_type='odd' has no form for tensors")
        return x.reshape(-1)[aj.as_tensor(places, device=x.device)]
    raise TypeError(
        f"np.pad: mode={mode!r} has no form for tensors; there are constant, edge, reflect, symmetric and wrap"
    )


def _padded_with(x: Any, widths: list[tuple[Any, Any]], values: Any) -> Any:
    if holds_tensors(values) or np.ndim(host(values)):
        fillers = _pairs(values, x.ndim)
        for axis, ((before, after), (first, last)) in enumerate(zip(widths, fillers)):
            shape = [*x.shape]
            parts = [x]
            for count, value, is_first in ((before, first, True), (after, last, False)):
                shape[axis] = count
                filler = aj.full(shape, value, dtype=x.dtype, device=x.device)
                parts = [filler, *parts] if is_first else [*parts, filler]
            x = aj.cat(parts, axis)
        return x
    flat = [n for pair in reversed(widths) for n in pair]
    return aj.nn.functional.pad(x, flat, value=values)


# ---- triangles and diagonals


def _matrix(m: Any) -> Any:
    """A vector as as many rows of a matrix."""
    x = tensor_of(m)
    return x if x.ndim > 1 else x.expand(x.shape[0], -1)


@implements("trace")
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    found = aj.diagonal(tensor_of(a), offset, axis1, axis2)
    return delivered(FUNCTIONS[np.sum](found, -1, dtype), out, "np.trace")


@implements("vander")
def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    t = tensor_of(x)
    wide = dtype_of_numpy(np.promote_types(t.dtype.numpy, np.int64)) if t.dtype is not aj.bfloat16 else t.dtype
    return aj.vander(t.to(wide), N, increasing)


@implements("meshgrid")
def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    axes = [tensor_of(x).reshape(-1) for x in xi]
    if sparse:
        order = [1, 0, *range(2, len(axes))] if indexing == "xy" and len(axes) > 1 else [*range(len(axes))]
        return tuple(
            x.reshape([-1 if place == order[i] else 1 for place in range(len(axes))]) for i, x in enumerate(axes)
        )
    return tuple(aj.meshgrid(*axes, indexing=indexing)) if axes else ()


@implements("astype")
def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    x = tensor_of(x)
    wanted = dtype_of(dtype)
    return x.clone() if copy and x.dtype is wanted else x.to(wanted)


# ---- what only brings its arguments to one of ours


enter(
    **{name: _at_least(name) for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    **{name: _stacking(name) for name in ("hstack", "vstack", "dstack", "column_stack")},
    ravel=lambda a, order="C": (_reversed(tensor_of(a)) if order == "F" else tensor_of(a)).reshape(-1),
    matrix_transpose=lambda x, /: tensor_of(x).transpose(-2, -1),
    swapaxes=lambda a, axis1, axis2: tensor_of(a).transpose(axis1, axis2),
    moveaxis=lambda a, source, destination: aj.movedim(tensor_of(a), source, destination),
    broadcast_to=lambda array, shape, subok=False: aj.broadcast_to(tensor_of(array), sizes_of(shape)),
    hsplit=_splitting("hsplit", 1, 1),
    vsplit=_splitting("vsplit", 2, 0),
    dsplit=_splitting("dsplit", 3, 2),
    unstack=lambda x, /, *, axis=0: tuple(tensor_of(x).unbind(axis)),
    tile=lambda A, reps: aj.tile(tensor_of(A), sizes_of(host(reps))),
    flip=lambda m, axis=None: aj.flip(tensor_of(m), axes_of(axis, tensor_of(m).ndim)),
    fliplr=lambda m: aj.flip(tensor_of(m), (1,)),
    flipud=lambda m: aj.flip(tensor_of(m), (0,)),
    rot90=lambda m, k=1, axes=(0, 1): aj.rot90(tensor_of(m), k, list(axes)),
    tril=lambda m, k=0: aj.tril(_matrix(m), k),
    triu=lambda m, k=0: aj.triu(_matrix(m), k),
    diag=lambda v, k=0: aj.diag(tensor_of(v), k),
    diagflat=lambda v, k=0: aj.diagflat(tensor_of(v), k),
    diagonal=lambda a, offset=0, axis1=0, axis2=1: aj.diagonal(tensor_of(a), offset, axis1, axis2),
    copy=lambda a, order="K", subok=False: tensor_of(a).clone(),
)
enter(
    "linalg",
    matrix_transpose=lambda x, /: tensor_of(x).transpose(-2, -1),
    diagonal=lambda x, /, *, offset=0: aj.diagonal(tensor_of(x), offset, -2, -1),
    trace=lambda x, /, *, offset=0, dtype=None: _trace(x, offset, -2, -1, dtype),
)
