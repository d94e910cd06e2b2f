"""``__array_ufunc__``: NumPy's and SciPy's ufuncs called with tensors, and their methods reduce, accumulate, outer, at.

Operands are brought together by the tensors' own rules (a Python or NumPy number never widens a tensor); which dtype a
function then computes in is NumPy's answer (``ufunc.resolve_dtypes``), so a square root of integers is float64.
"""

from __future__ import annotations

import sys
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.dtypes import DType, dtype_of_numpy
from autojit.interop import numpy_reductions as reductions
from autojit.interop.registry import (
    axes_of,
    axis_of,
    carries_more,
    delivered,
    dtype_of,
    holds_tensors,
    host,
    joined,
    operand,
    promoted,
    tensor_of,
)  # fmt: skip
from autojit.interop.ufunc_table import NUMBERS, UFUNCS, Function, special
from autojit.tensor.tensor import Tensor, wrap

_SCIPY = ("scipy.special", "scipy.special._ufuncs")  # looked at only if a program has imported them
_UNRESOLVED = {"matmul", "vecdot", "matvec", "vecmat", "ldexp", "frexp"}  # their loops are no dtypes of operands
_IN_PLACE = {"add": ("sum", 1), "subtract": ("sum", -1), "multiply": ("prod", 1), "maximum": ("amax", 1),
             "minimum": ("amin", 1)}  # fmt: skip


def call(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What ``Tensor.__array_ufunc__`` does.

    Raises:
        TypeError: there is no form for tensors, and NumPy's would lose a gradient; names the remedy.
    """
    out = options.pop("out", None)
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
    function = function_of(ufunc)
    if function is None or any(_is_of_objects(x) for x in inputs):
        return _on_values(ufunc, method, inputs, out, options)
    if method == "__call__":
        return _called(ufunc, function, inputs, out, options)
    if method == "outer":
        x, y = (tensor_of(i) for i in inputs)
        return _called(ufunc, function, (x.reshape(*x.shape, *[1] * y.ndim), y), out, options)
    if method == "at":
        return _at(ufunc, function, inputs)
    along = {"reduce": _reduced, "accumulate": _accumulated, "reduceat": _reduced_between}[method]
    found = along(ufunc, function, tensor_of(inputs[0]), inputs[1:], options)
    return delivered(found, out, f"np.{ufunc.__name__}.{method}")


_QUICK = {
    ufunc: (function, ufunc.nin, NUMBERS[name])
    for name, function in UFUNCS.items()
    if (ufunc := getattr(np, name, None)) is not None and ufunc.nout == 1 and name not in ("ldexp", "spacing")
}
_NUMBER, _OTHER = object(), object()


def quickly(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """A ufunc of floats of one dtype, or of a tensor of them and a number; None for all other operands."""
    found = _QUICK.get(ufunc)
    if found is None:
        return None
    function, count, numbers = found
    if count == 1:
        return function(inputs[0]) if _kind(inputs[0]) is not _OTHER else None
    x, y = inputs
    of_x, of_y = _kind(x), _kind(y)
    if of_x is _OTHER or of_y is _OTHER:
        return None
    if of_x is not of_y:
        has_number = of_y is _NUMBER or (of_x is _NUMBER and numbers != "second")
        if numbers == "none" or not has_number:
            return None
    return function(wrap(x) if type(x) is np.ndarray else x, wrap(y) if type(y) is np.ndarray else y)


def _kind(x: Any) -> Any:
    """The dtype of an operand of floats; whether it is a number, or anything else."""
    if isinstance(x, Tensor):
        array = x._array
        dtype = x.dtype.numpy if array is None else array.dtype
    elif type(x) is np.ndarray:
        dtype = x.dtype
    else:
        return _NUMBER if isinstance(x, int | float | np.floating | np.integer) else _OTHER
    return dtype if dtype.kind == "f" else _OTHER


def function_of(ufunc: np.ufunc) -> Function | None:
    """What a ufunc is for tensors; None: nothing."""
    name = ufunc.__name__
    if getattr(np, name, None) is ufunc:
        return UFUNCS.get(name)
    is_scipys = any(getattr(sys.modules.get(module), name, None) is ufunc for module in _SCIPY)
    return special(name) if is_scipys else None


def _is_of_objects(x: Any) -> bool:
    """Whether an array holds what no tensor can: objects, text, dates."""
    return isinstance(x, np.ndarray) and x.dtype.kind in "OSUMm"


def _on_values(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], out: Any, options: dict[str, Any]) -> Any:
    """A ufunc that has no form for tensors, on the values of tensors that need no gradient."""
    if any(carries_more(x) for x in inputs):
        raise TypeError(
            f"{ufunc.__name__}: this ufunc has no derivative and no compiled form for tensors; write it with autojit's "
            "functions, make an op of it (autojit.autograd.Function), or give it x.detach() outside of aj.jit"
        )
    if out is not None:
        options["out"] = host(out) if isinstance(out, Tensor) else out
    found = getattr(ufunc, method)(*[host(x) for x in inputs], **options)
    return out if out is not None else _wrapped(found)


def _wrapped(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(_wrapped(part) for part in found)
    is_array = isinstance(found, np.ndarray | np.generic) and found.dtype.kind not in "OSUMm"
    return aj.as_tensor(found) if is_array else found


def _together(ufunc: np.ufunc, inputs: tuple[Any, ...], dtype: DType | None) -> tuple[list[Any], list[DType | None]]:
    """The operands in the dtypes NumPy computes in, and the dtypes of the results."""
    operands = [operand(x) for x in inputs]
    if ufunc.__name__ in _UNRESOLVED and ufunc.signature is None:
        return [tensor_of(x) for x in operands], [None] * ufunc.nout
    common = dtype if dtype is not None else promoted(operands)
    loop = _loop_of(ufunc, common)
    ins: list[Any] = [_as(x, d) for x, d in zip(operands, loop[: ufunc.nin])]
    return ins, loop[ufunc.nin :]


_LOOPS: dict[tuple[Any, DType], list[DType | None]] = {}


def _loop_of(ufunc: np.ufunc, common: DType) -> list[DType | None]:
    key = (ufunc, common)
    found = _LOOPS.get(key)
    if found is None:
        try:
            loop = ufunc.resolve_dtypes((common.numpy,) * ufunc.nin + (None,) * ufunc.nout)
            found = [dtype_of_numpy(d) for d in loop]
        except TypeError:
            if common.kind not in ("float", "complex"):
                raise
            found = [common] * ufunc.nin + [None] * ufunc.nout  # what NumPy lacks, as bfloat16 has it here
        _LOOPS[key] = found
    return found


def _as(x: Any, dtype: DType | None) -> Any:
    if isinstance(x, Tensor):
        return x if dtype is None or x.dtype is dtype else x.to(dtype)
    return aj.tensor(x, dtype=dtype)


def _called(ufunc: np.ufunc, function: Function, inputs: tuple[Any, ...], out: Any, options: dict[str, Any]) -> Any:
    where = options.pop("where", True)
    options = {k: v for k, v in options.items() if k not in ("casting", "order", "subok")}
    wanted = dtype_of(options.pop("dtype", None))
    name = f"np.{ufunc.__name__}"
    if ufunc.signature is not None:
        result = _generalised(ufunc, function, inputs, options)
        return delivered(result if wanted is None else result.to(wanted), out, name)
    if options:
        raise TypeError(f"{name}: the arguments {', '.join(options)} have no meaning for tensors; leave them out")
    ins, outs = _together(ufunc, inputs, wanted)
    found = function(*ins)
    results = found if ufunc.nout > 1 else (found,)
    results = tuple(_as(r, d) for r, d in zip(results, outs))
    if where is not True:
        results = _where(where, results, out)
    if ufunc.nout == 1:
        return delivered(results[0], out, name)
    given = out if out is not None else (None,) * ufunc.nout
    return tuple(delivered(r, o, name) for r, o in zip(results, given))


def _where(where: Any, results: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """Results only at some places, elsewhere what is in ``out`` (zeros without it: NumPy leaves it undefined)."""
    mask = tensor_of(where)
    given = (None,) * len(results) if out is None else (out if isinstance(out, tuple) else (out,))
    kept = [aj.zeros_like(r) if o is None else tensor_of(o) for r, o in zip(results, given)]
    return tuple(aj.where(mask, r, k) for r, k in zip(results, kept))


def _generalised(ufunc: np.ufunc, function: Function, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``matmul`` and its like, whose core axes may be named by ``axis`` or ``axes``."""
    x, y = (tensor_of(i) for i in inputs)
    dtype = aj.promote_types(x.dtype, y.dtype)
    axis, axes = options.pop("axis", None), options.pop("axes", None)
    keepdims = options.pop("keepdims", False)
    if axes is not None:
        raise TypeError(f"np.{ufunc.__name__}: axes= has no form for tensors; move the axes with np.moveaxis")
    if axis is not None:
        x, y = x.movedim(axis, -1), y.movedim(axis, -1)
    result = function(x.to(dtype), y.to(dtype))
    if keepdims:
        result = result.unsqueeze(-1 if axis is None else axis)
    return result


# ---- along an axis


def _reduced(ufunc: np.ufunc, function: Function, x: Tensor, more: tuple[Any, ...], options: dict[str, Any]) -> Any:
    given = dict(zip(("axis", "dtype", "out", "keepdims", "initial", "where"), more)) | options
    given.pop("out", None)
    axis = given.pop("axis", 0)
    ready = reductions.OF_UFUNC.get(ufunc.__name__)
    if ready is not None:
        return ready(x, axis=axis, **given)
    if given.get("where", True) is not True:
        raise TypeError(f"np.{ufunc.__name__}.reduce: where= has no form for tensors; choose with np.where before")
    pair = _of_pairs(ufunc, function)
    axes = sorted(axes_of(axis, x.ndim), reverse=True)
    keepdims, start = given.get("keepdims", False), given.get("initial")
    x = x if given.get("dtype") is None else x.to(dtype_of(given["dtype"]))
    for place in axes:
        parts = list(x.unbind(place))
        if not parts and ufunc.identity is None and start is None:
            raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
        seeds = [start if start is not None else ufunc.identity] if not parts else []
        shape = [n for axis, n in enumerate(x.shape) if axis != place]
        x = reduce(pair, [aj.full(shape, s, dtype=x.dtype, device=x.device) for s in seeds] + parts)
        x = x.unsqueeze(place) if keepdims else x
    return x if start is None else pair(start, x)


def _of_pairs(ufunc: np.ufunc, function: Function) -> Function:
    return lambda x, y: _called(ufunc, function, (x, y), None, {})


def _accumulated(ufunc: np.ufunc, function: Function, x: Tensor, more: tuple[Any, ...], options: dict[str, Any]) -> Any:
    given = dict(zip(("axis", "dtype", "out"), more)) | options
    axis = axis_of(given.get("axis", 0), x.ndim)
    wanted = dtype_of(given.get("dtype"))
    if ufunc.__name__ in ("add", "multiply"):
        wanted = reductions.summed_in(x.dtype, wanted)
    ready = {
        "add": lambda: aj.cumsum(x, axis, dtype=wanted),
        "multiply": lambda: aj.cumprod(x, axis, dtype=wanted),
        "maximum": lambda: aj.cummax(x, axis).values,
        "minimum": lambda: aj.cummin(x, axis).values,
        "logaddexp": lambda: aj.logcumsumexp(x, axis),
    }.get(ufunc.__name__)
    if ready is not None:
        found = ready()
        return found if wanted is None else found.to(wanted)
    parts = list(accumulate((x if wanted is None else x.to(wanted)).unbind(axis), _of_pairs(ufunc, function)))
    return joined(aj.stack, parts, axis) if parts else x


def _reduced_between(
    ufunc: np.ufunc, function: Function, x: Tensor, more: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    given = dict(zip(("indices", "axis", "dtype", "out"), more)) | options
    axis = axis_of(given.get("axis", 0), x.ndim)
    starts = [int(i) for i in host(given["indices"])]
    parts = []
    for start, end in zip(starts, [*starts[1:], x.shape[axis]]):
        piece = x.narrow(axis, start, max(end - start, 1))
        parts.append(_reduced(ufunc, function, piece, (), {"axis": axis, "dtype": given.get("dtype")}))
    return joined(aj.stack, parts, axis)


# ---- at places


def _at(ufunc: np.ufunc, function: Function, inputs: tuple[Any, ...]) -> None:
    """``ufunc.at(target, places, values)``: in place, once for every place even when one occurs twice."""
    target, places, *values = inputs
    if not isinstance(target, Tensor):
        if any(carries_more(v) for v in inputs):
            delivered(next(v for v in inputs if carries_more(v)), target, f"np.{ufunc.__name__}.at")
        ufunc.at(target, host(places), *[host(v) for v in values])
        return
    if not values:
        target[places] = function(target[places])
        return
    value = tensor_of(values[0]).to(target.dtype)
    index = tuple(tensor_of(p) if holds_tensors(p) else p for p in places) if isinstance(places, tuple) else places
    if isinstance(index, list):
        index = tensor_of(index)
    known = _IN_PLACE.get(ufunc.__name__)
    if known is None:
        raise TypeError(
            f"np.{ufunc.__name__}.at: only add, subtract, multiply, maximum and minimum have a form for tensors"
        )
    numbers = aj.arange(target.numel(), device=target.device).reshape(target.shape)[index]
    flat = aj.broadcast_to(value, numbers.shape).reshape(-1) * known[1]
    old = target.reshape(-1)
    if known[0] == "sum":
        new = old.index_add(0, numbers.reshape(-1), flat)
    else:
        new = old.scatter_reduce(0, numbers.reshape(-1), flat, known[0], include_self=True)
    target.copy_(new.reshape(target.shape))
