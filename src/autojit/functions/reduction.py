"""Reductions along axes, scans and statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

import numpy as np

from autojit import ops
from autojit.core.device_array import is_concrete
from autojit.core.dtypes import DType, bool_, float32, int64, uint8
from autojit.core.errors import DTypeError, UnsupportedDTypeError, UsageError
from autojit.core.user_warnings import warn
from autojit.core.wrapping import named
from autojit.dispatch.call_programs import by_calls
from autojit.dispatch.composite_nodes import in_one_node
from autojit.dispatch.declared import DTYPE_OUT, EXACT_OUT, Out, declared
from autojit.dispatch.dispatch import apply_single
from autojit.dispatch.kernels import by_parts, in_one_step
from autojit.dispatch.promotion import Number, Operand, Real, as_operand, cast, floating
from autojit.dispatch.requirements import require_some
from autojit.dispatch.view_nodes import no_view, reduced
from autojit.functions.autocast import in_full_precision_on_devices
from autojit.functions.comparison import isnan, maximum, minimum, ne, where
from autojit.functions.elementwise import div, sub
from autojit.functions.refused_dtypes import refuses
from autojit.history.op_node import rename_node
from autojit.ir.op import Op
from autojit.ops.base import as_axis, normalize_axes, normalize_axis
from autojit.ops.composed import StdMean, VarMean, is_common
from autojit.ops.reductions import fold_over
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.tensor import Tensor, type_of, wrap

Dims = int | Sequence[int] | None


class ValuesIndices(NamedTuple):
    """What an ordering function found and where: ``values``, ``indices``."""

    values: Tensor
    indices: Tensor


def _whole(input: Operand, dtype: DType | None, what: str) -> Tensor:
    """The operand of sum and prod: in ``dtype``, integers and bools in int64."""
    t = as_operand(input, what)
    if dtype is not None:
        return cast(t, dtype)
    if t._array is not None and t._array.dtype.kind in "fc":
        return t
    return cast(t, int64) if type_of(t).dtype.category < 2 else t


_NO_DTYPE = "could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got:"


def _require_float(t: Tensor, what: str, refusal: str = _NO_DTYPE) -> None:
    if type_of(t).dtype.category < 2:
        kind = type_of(t).dtype.scalar_type
        raise DTypeError(f"{what}(): {refusal} {kind}", {"input": t}, "convert it: x.float()")


@declared(out=DTYPE_OUT)
def sum(input: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over ``dim`` (all axes by default); integers and bools add up in int64."""
    if state.autocast is not None and state.autocast.is_on_device(input):
        return state.autocast.full(sum, input, dim, keepdim, dtype=dtype)
    if dtype is None and isinstance(input, Tensor):
        array = input._array
        if array is not None and array.dtype.kind in "fc" and (dim is None or type(dim) is int):
            return reduced(_reduction_over("sum", dim, array.ndim), input, keepdim)
        t = _whole(input, None, "sum")
        op = _reduction("sum", dim, t.ndim)
        if op is not None and (not keepdim or type_of(t).dtype is not bool_):
            return reduced(op, t, keepdim)
    return _counted(ops.sum, _whole(input, dtype, "sum"), dim, keepdim)


def _reduction(name: str, dim: Dims, ndim: int) -> Op | None:
    """The reduction over ``dim`` (None and ints, and tuples of these); None for other ways to say it."""
    make = _reduction_over if state.trace is None else _reduction_over.__wrapped__  # no table holds a step's sizes
    return make(name, dim, ndim) if dim is None or type(dim) in (int, tuple) else None


@lru_cache(maxsize=1024, typed=True)
def _reduction_over(name: str, dim: Dims, ndim: int) -> Op:
    return fold_over(name, normalize_axes(dim, ndim, name))


@declared(out=DTYPE_OUT)
@in_full_precision_on_devices
def prod(input: Operand, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Product over ``dim`` (all axes by default; no tuples); integers and bools multiply in int64."""
    dim = dim if dim is None or type(dim) is int else as_axis(dim, "prod")
    x = _whole(input, dtype, "prod")
    if type_of(x).dtype.kind == "float":
        options = (normalize_axes(dim, type_of(x).ndim, "prod"), keepdim)
        return in_one_step("prod", options, x, node=f"ProdBackward{int(dim is not None)}")
    return _counted(ops.prod, _whole(input, dtype, "prod"), dim, keepdim)


def _counted(function: Callable[..., Tensor], x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """A sum or product; of bools in int64, and True where that is not 0."""
    if type_of(x).dtype is bool_:
        return cast(function(cast(x, int64), dim, keepdim), bool_)
    found = function(x, dim, keepdim)
    return no_view(found, x) if keepdim else found


@declared(out=DTYPE_OUT)
def mean(input: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Arithmetic mean over ``dim`` (all axes by default) of a floating operand."""
    if dtype is None and isinstance(input, Tensor) and computes_at_once():
        array = input._array
        if is_concrete(array) and array.dtype.char in _COMMON and array.size:
            if dim is None:
                return apply_single(_mean_over(None, keepdim, array.ndim), input)
            if type(dim) is int or type(dim) is tuple:
                return rename_node(apply_single(_mean_over(dim, keepdim, array.ndim), input), "MeanBackward1")
    t = as_operand(input, "mean")
    t = t if dtype is None else cast(t, dtype)
    _require_float(t, "mean")
    axes, name = normalize_axes(dim, type_of(t).ndim, "mean"), "MeanBackward0" if dim is None else "MeanBackward1"
    if not axes or not is_common(type_of(t).dtype):  # in whose place nothing is kept as one op
        return rename_node(ops.mean(t, dim, keepdim), name)
    op = ops.Mean(axes, bool(keepdim))  # keeps nothing, where a division would keep the number of elements
    return rename_node(in_one_node(op, (t,), lambda: no_view(ops.mean(t, dim, keepdim), t)), name)


_COMMON = "fd"
"""NumPy's letters for float32 and float64, in which composed ops (``ops.composed``) compute."""


@lru_cache(maxsize=1024, typed=True)
def _mean_over(dim: Dims, keepdim: bool, ndim: int) -> Op:
    return ops.Mean(normalize_axes(dim, ndim, "mean"), bool(keepdim))


@declared(out=DTYPE_OUT)
@refuses("complex")
def nansum(input: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum with NaN counted as 0."""
    t = as_operand(input, "nansum")
    if dtype is None and type_of(t).dtype.kind == "float":
        axes = normalize_axes(dim, type_of(t).ndim, "nansum")
        return in_one_step("nansum", (axes, keepdim), t, node="NansumBackward0")
    return sum(t if type_of(t).dtype.category < 2 else where(isnan(t), 0, t), dim, keepdim, dtype=dtype)


@declared(out=True)
@refuses("complex")
def nanmean(input: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Mean of the elements that are not NaN."""
    t = as_operand(input, "nanmean")
    _require_float(t, "nanmean", "expected input to have floating point or complex dtype but got")
    counted = sum(cast(isnan(t).logical_not(), type_of(t).dtype), dim, keepdim)
    return div(nansum(t, dim, keepdim, dtype=dtype), counted)


def _correction(unbiased: bool | None, correction: Number | None) -> Any:
    if unbiased is not None:
        return 1 if unbiased else 0
    return 1 if correction is None else correction


def _dims(dim: Dims | bool, unbiased: bool | None) -> tuple[Dims, bool | None]:
    """torch's overload var(input, unbiased): a bool in the place of ``dim``."""
    return (None, dim) if isinstance(dim, bool) else (dim, unbiased)


def _spread(name: str, doc: str) -> Callable[..., Tensor]:
    def spread(
        input: Tensor,
        dim: Dims | bool = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: Number | None = None,
    ) -> Tensor:
        dims, is_unbiased = _dims(dim, unbiased)
        _require_float(input, name)
        _warn_of_freedom(name, input, normalize_axes(dims, input.ndim, name), _correction(is_unbiased, correction))
        return _spread_of(name, input, dims, is_unbiased, correction, keepdim)

    return declared(out=True)(named(spread, name, doc))


def _spread_of(name: str, x: Tensor, dims: Dims, is_unbiased: Any, correction: Number | None, keepdim: bool) -> Tensor:
    options = (normalize_axes(dims, x.ndim, name), _correction(is_unbiased, correction), keepdim)
    return in_one_step(name, options, x, node=f"{name.title()}Backward0")


def _warn_of_freedom(name: str, input: Tensor, axes: tuple[int, ...], correction: Any) -> None:
    shape = type_of(input).shape
    if computes_at_once() and math.prod(shape[axis] for axis in axes) - correction <= 0:
        warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
            "(input numel divided by output numel).",
            UserWarning,
        )


def _with_mean(first: Callable[..., Tensor], op: type[Op], doc: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def with_mean(
        input: Tensor,
        dim: Dims | bool = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: Number | None = None,
    ) -> tuple[Tensor, Tensor]:
        dims, is_unbiased = _dims(dim, unbiased)
        _require_float(input, first.__name__)

        def compute() -> tuple[Tensor, Tensor]:
            found = _spread_of(first.__name__, input, dims, is_unbiased, correction, keepdim)
            return found, mean(input, dims, keepdim)

        name = f"{first.__name__}_mean"
        _warn_of_freedom(name, input, normalize_axes(dims, input.ndim, name), _correction(is_unbiased, correction))
        if type_of(input).dtype.is_complex or not type_of(input).shape:
            return compute()
        axes, less = normalize_axes(dims, input.ndim, first.__name__), _correction(is_unbiased, correction)
        return in_one_node(op(axes, float(less), keepdim), (input,), compute)

    return declared()(named(with_mean, f"{first.__name__}_mean", doc))


var = _spread("var", "Variance over ``dim``: two passes, divided by ``n - correction`` (1 by default).")
std = _spread("std", "Standard deviation: the square root of ``var``.")
var_mean = _with_mean(var, VarMean, "(variance, mean).")
std_mean = _with_mean(std, StdMean, "(standard deviation, mean).")


@declared(out=Out(takes=(bool_, uint8)))
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether all elements along ``dim`` are true; along no axis (an empty ``dim``), whether each is."""
    if _is_no_axis(dim):
        return _truth(input)
    return cast(ops.all(input, dim, keepdim), uint8 if type_of(input).dtype is uint8 else bool_)


@declared(out=Out(takes=(bool_, uint8)))
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether any element along ``dim`` is true; along no axis (an empty ``dim``), whether each is."""
    if _is_no_axis(dim):
        return _truth(input)
    return cast(ops.any(input, dim, keepdim), uint8 if type_of(input).dtype is uint8 else bool_)


def _is_no_axis(dim: Dims) -> bool:
    return isinstance(dim, list | tuple) and not dim


def _truth(x: Tensor) -> Tensor:
    return cast(ne(x, 0), uint8 if type_of(x).dtype is uint8 else bool_)


@declared()
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements along ``dim`` are not 0."""
    array = input._array
    if dim is None and type(array) is np.ndarray and computes_at_once():
        return wrap(np.asarray(np.count_nonzero(array), np.int64))
    return sum(ne(input, 0), dim)


def _extreme(name: str, function: Callable[..., Tensor], doc: str) -> Callable[..., Tensor]:
    def extreme(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
        t = type_of(input)
        if dim is None or dim == ():
            require_some(t.size, name, _EMPTY_EXTREME, "usage")
        else:
            _refuse_empty(name, t.shape, normalize_axes(dim, t.ndim, name))
        if t.dtype.is_complex:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {t.dtype}', {"input": input})
        if t.dtype is bool_:
            return cast(function(cast(input, int64), dim, keepdim), bool_)
        op = _reduction(name, dim, t.ndim)
        if op is not None:
            return reduced(op, input, keepdim)
        found = function(input, dim, keepdim)
        return no_view(found, input) if keepdim else found

    return declared(out=EXACT_OUT)(named(extreme, name, doc))


amax = _extreme("amax", ops.amax, "Largest element over ``dim``; gradients are shared among equals.")
amin = _extreme("amin", ops.amin, "Smallest element over ``dim``; gradients are shared among equals.")


def _refuse_empty(what: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    for axis in axes:
        require_some(shape[axis], what, f"Expected reduction dim {axis} to have non-zero size.", "index")


_EMPTY = "Expected reduction dim to be specified for input.numel() == 0."
_EMPTY_EXTREME = f"{_EMPTY} Specify the reduction dim with the 'dim' argument."


def _position(name: str, function: Callable[..., Tensor], which: str) -> Callable[..., Tensor]:
    def position(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        t = type_of(input)
        if dim is None:
            require_some(t.size, name, _EMPTY, "index")
        elif t.ndim:
            _refuse_empty(name, t.shape, (normalize_axis(dim, t.ndim, name),))
            if t.dtype is not bool_ and (op := _reduction(name, dim, t.ndim)) is not None:
                return reduced(op, input, keepdim)
        return function(cast(input, int64) if t.dtype is bool_ else input, dim, keepdim)

    doc = f"Position of the {which} element along ``dim`` (in the flattened operand by default)."
    return declared(out=EXACT_OUT)(refuses("bool complex")(named(position, name, doc)))


argmax, argmin = _position("argmax", ops.argmax, "largest"), _position("argmin", ops.argmin, "smallest")


@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(input: Tensor, dim: Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None) -> Tensor: ...
@declared(out=Out(is_exact_of_several=True), lists=True)
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The largest element; with ``dim``, (values, indices) along it; with a second tensor, ``maximum``."""
    if dim is None and other is None:
        array = input._array
        if type(array) is np.ndarray and array.dtype.char in _COMMON and array.size:
            return apply_single(_reduction_over("largest", None, array.ndim), input)
    return _max_or_min(input, dim, keepdim, other, "max")


@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(input: Tensor, dim: Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None) -> Tensor: ...
@declared(out=Out(is_exact_of_several=True))
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The smallest element; with ``dim``, (values, indices) along it; with a second tensor, ``minimum``."""
    if dim is None and other is None:
        array = input._array
        if type(array) is np.ndarray and array.dtype.char in _COMMON and array.size:
            return apply_single(_reduction_over("least", None, array.ndim), input)
    return _max_or_min(input, dim, keepdim, other, "min")


_OF_EXTREMES = {"max": (maximum, "largest", argmax), "min": (minimum, "least", argmin)}


def _max_or_min(input: Tensor, dim: Any, keepdim: bool, other: Tensor | None, what: str) -> Any:
    pair, extreme, position = _OF_EXTREMES[what]
    if type_of(input).dtype.is_complex:
        raise UnsupportedDTypeError(f'"{what}" not implemented for {type_of(input).dtype}', {"input": input})
    if isinstance(dim, Tensor) or other is not None:
        return pair(input, dim if isinstance(dim, Tensor) else other)
    if dim is None:
        require_some(type_of(input).size, what, _EMPTY_EXTREME, "usage")
        if type_of(input).dtype is bool_:
            return cast(_max_or_min(cast(input, int64), None, False, None, what), bool_)
        return apply_single(fold_over(extreme, normalize_axes(None, type_of(input).ndim, what)), input)
    if not type_of(input).ndim:
        return ValuesIndices(input.clone(), position(input, dim, True))
    axis = normalize_axis(dim, type_of(input).ndim, what)
    _refuse_empty(what, type_of(input).shape, (axis,))
    index = position(input, axis, True)
    values: Tensor = by_calls(("gather", axis), lambda x, index: ops.gather(x, axis, index), input, index)
    if not keepdim:
        values, index = no_view(values.squeeze(axis), input), no_view(index.squeeze(axis), input)
    return ValuesIndices(values, index)


@declared(out=True)
@in_full_precision_on_devices
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Log of the sum of exponentials over ``dim``, shifted by the largest element."""
    x = floating(input, "logsumexp")
    options = (normalize_axes(dim, type_of(x).ndim, "logsumexp"), keepdim)
    return in_one_step("logsumexp", options, x, node="LogsumexpBackward0")


@declared(out=EXACT_OUT, lists=True)
@in_full_precision_on_devices
def norm(
    input: Tensor, p: Real | str | None = "fro", dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The vector p-norm over ``dim`` (all axes by default); its gradient at 0 is 0."""
    x = input if dtype is None else cast(input, dtype)
    _require_float(x, "linalg.vector_norm")
    if p == "nuc":
        return _nuclear_norm(x, dim, keepdim)
    order = 2.0 if p is None or p == "fro" else float(p)
    narrow = type_of(x).dtype
    if narrow.size_bytes == 2:  # powers and their sums would overflow and lose digits
        return cast(ops.norm(cast(x, float32), order, dim, keepdim), narrow)
    options = (order, normalize_axes(dim, type_of(x).ndim, "linalg.vector_norm"), keepdim)
    return in_one_step("norm", options, x, node="LinalgVectorNormBackward0")


def _nuclear_norm(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """The sum of the singular values of the matrices on two axes."""
    axes = normalize_axes(dim, type_of(x).ndim, "nuclear_norm")
    if len(axes) != 2:
        raise UsageError(f"nuclear_norm expects exactly two axes, got {list(axes)}", {"input": x})
    found = ops.svdvals(x.movedim(axes, (-2, -1))).sum(-1)
    for axis in axes if keepdim else ():
        found = found.unsqueeze(axis)
    return found


@declared()
@in_full_precision_on_devices
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return norm(sub(input, other), p)


def _is_common(x: Tensor) -> bool:
    """Whether a composed op can compute at once: concrete elements, of a common dtype, along an axis."""
    array = x._array
    is_plain = computes_at_once() and is_concrete(array)
    return bool(is_plain and array.dtype.char in _COMMON and array.size and array.ndim)


def _normalising(
    name: str, kind: type[ops.Softmax | ops.LogSoftmax], compute: Callable[[Tensor, int], Tensor], doc: str
) -> Callable[..., Tensor]:
    @lru_cache(maxsize=128, typed=True)
    def along(dim: int, ndim: int) -> Op:
        return kind(normalize_axis(dim, ndim, name))

    def normalise(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
        x = input if dtype is None else cast(input, dtype)
        if type_of(x).dtype.kind != "float":
            raise UnsupportedDTypeError(f'"{name}" not implemented for {type_of(x).dtype}', {"input": x})
        if _is_common(x):
            return apply_single(along(dim, x._array.ndim), x)
        axis = normalize_axis(dim, type_of(x).ndim, name)
        return by_parts(kind(axis), x, lambda x: compute(x, axis), f"{kind.__name__}Backward0")

    return declared(out=EXACT_OUT)(in_full_precision_on_devices(named(normalise, name, doc)))


softmax = _normalising("softmax", ops.Softmax, ops.softmax, "Exponentials over their sum along ``dim``.")
log_softmax = _normalising(
    "log_softmax", ops.LogSoftmax, ops.log_softmax, "The logarithm of ``softmax``, without overflow."
)
