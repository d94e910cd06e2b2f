"""Reductions along axes, scans and statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

import numpy as np

from autojit import ops
from autojit.core.dtypes import DType, bool_, float32, int64, uint8
from autojit.core.errors import DTypeError, UnsupportedDTypeError, UsageError
from autojit.ir.op import Op
from autojit.ops.base import normalize_axes, normalize_axis
from autojit.ops.composed import StdMean, VarMean, is_common
from autojit.ops.reductions import fold_over
from autojit.tensor.composite_nodes import in_one_node
from autojit.tensor.dispatch import apply_single
from autojit.tensor.functions_elementwise import div, isnan, logaddexp, maximum, minimum, ne, sub, where
from autojit.tensor.kernels import by_parts, in_one_step
from autojit.tensor.op_node import rename_node
from autojit.tensor.own_memory import own_memory
from autojit.tensor.promotion import as_operand, cast, floating
from autojit.tensor.requirements import require_some
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of, wrap
from autojit.tensor.view_nodes import no_view

Dims = int | Sequence[int] | None


class ValuesIndices(NamedTuple):
    """What an ordering function found and where: ``values``, ``indices``."""

    values: Tensor
    indices: Tensor


def _whole(input: Any, dtype: DType | None, what: str) -> Tensor:
    """The operand of sum and prod: in ``dtype``, integers and bools in int64."""
    t = as_operand(input, what)
    if dtype is not None:
        return cast(t, dtype)
    if t._array is not None and t._array.dtype.kind in "fc":
        return t
    return cast(t, int64) if type_of(t).dtype.category < 2 else t


def _require_float(t: Tensor, what: str) -> None:
    if type_of(t).dtype.category < 2:
        raise DTypeError(
            f"{what}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {type_of(t).dtype.name}",
            {"input": t},
            "convert it: x.float()",
        )


def sum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over ``dim`` (all axes by default); integers and bools add up in int64."""
    if not keepdim and dtype is None and isinstance(input, Tensor):
        array = input._array
        if array is not None and array.dtype.kind in "fc" and (dim is None or type(dim) is int):
            return apply_single(_reduction_over("sum", dim, array.ndim), input)
        t = _whole(input, None, "sum")
        op = _reduction("sum", dim, t.ndim)
        if op is not None:
            return apply_single(op, t)
    return _counted(ops.sum, _whole(input, dtype, "sum"), dim, keepdim)


def _reduction(name: str, dim: Dims, ndim: int) -> Op | None:
    """The reduction over ``dim`` (None and ints, and tuples of these); None for other ways to say it."""
    make = _reduction_over if state.trace is None else _reduction_over.__wrapped__  # no table holds a step's sizes
    return make(name, dim, ndim) if dim is None or type(dim) in (int, tuple) else None


@lru_cache(maxsize=1024, typed=True)
def _reduction_over(name: str, dim: Dims, ndim: int) -> Op:
    return fold_over(name, normalize_axes(dim, ndim, name))


def prod(input: Any, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Product over ``dim`` (all axes by default); integers and bools multiply in int64."""
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


def mean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Arithmetic mean over ``dim`` (all axes by default) of a floating operand."""
    if dtype is None and state.divert is None and isinstance(input, Tensor):
        array = input._array
        if type(array) is np.ndarray and array.dtype.char in _COMMON and array.size:
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


def nansum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum with NaN counted as 0."""
    t = as_operand(input, "nansum")
    if dtype is None and type_of(t).dtype.kind == "float":
        axes = normalize_axes(dim, type_of(t).ndim, "nansum")
        return in_one_step("nansum", (axes, keepdim), t, node="NansumBackward0")
    return sum(t if type_of(t).dtype.category < 2 else where(isnan(t), 0, t), dim, keepdim, dtype=dtype)


def nanmean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Mean of the elements that are not NaN."""
    t = as_operand(input, "nanmean")
    _require_float(t, "nanmean")
    counted = sum(cast(isnan(t).logical_not(), type_of(t).dtype), dim, keepdim)
    return div(nansum(t, dim, keepdim, dtype=dtype), counted)


def _correction(unbiased: bool | None, correction: Any) -> Any:
    if unbiased is not None:
        return 1 if unbiased else 0
    return 1 if correction is None else correction


def _dims(dim: Any, unbiased: bool | None) -> tuple[Dims, bool | None]:
    """torch's overload var(input, unbiased): a bool in the place of ``dim``."""
    return (None, dim) if isinstance(dim, bool) else (dim, unbiased)


def var(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
) -> Tensor:
    """Variance over ``dim``: two passes, divided by ``n - correction`` (1 by default)."""
    dim, unbiased = _dims(dim, unbiased)
    _require_float(input, "var")
    options = (normalize_axes(dim, input.ndim, "var"), _correction(unbiased, correction), keepdim)
    return in_one_step("var", options, input, node="VarBackward0")


def std(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
) -> Tensor:
    """Standard deviation: the square root of ``var``."""
    dim, unbiased = _dims(dim, unbiased)
    _require_float(input, "std")
    options = (normalize_axes(dim, input.ndim, "std"), _correction(unbiased, correction), keepdim)
    return in_one_step("std", options, input, node="StdBackward0")


def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """(variance, mean)."""
    return _with_mean(var, VarMean, input, dim, unbiased, keepdim, correction)


def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean)."""
    return _with_mean(std, StdMean, input, dim, unbiased, keepdim, correction)


def _with_mean(
    first: Callable[..., Tensor], op: type[Op], input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> tuple[Tensor, Tensor]:
    dims, is_unbiased = _dims(dim, unbiased)
    _require_float(input, first.__name__)

    def compute() -> tuple[Tensor, Tensor]:
        return first(input, dim, unbiased, keepdim, correction=correction), mean(input, dims, keepdim)

    if type_of(input).dtype.is_complex or not type_of(input).shape:
        return compute()
    found = op(normalize_axes(dims, input.ndim, first.__name__), float(_correction(is_unbiased, correction)), keepdim)
    return in_one_node(found, (input,), compute)


def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether all elements along ``dim`` are true."""
    return cast(ops.all(input, dim, keepdim), uint8 if type_of(input).dtype is uint8 else bool_)


def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether any element along ``dim`` is true."""
    return cast(ops.any(input, dim, keepdim), uint8 if type_of(input).dtype is uint8 else bool_)


def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements along ``dim`` are not 0."""
    array = input._array
    if dim is None and type(array) is np.ndarray and state.divert is None:
        return wrap(np.asarray(np.count_nonzero(array), np.int64))
    return sum(ne(input, 0), dim)


def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Largest element over ``dim``; gradients are shared among equals."""
    return _extreme(ops.amax, "amax", input, dim, keepdim)


def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Smallest element over ``dim``; gradients are shared among equals."""
    return _extreme(ops.amin, "amin", input, dim, keepdim)


def _extreme(function: Callable[..., Tensor], what: str, input: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    t = type_of(input)
    if dim is None or dim == ():
        require_some(t.size, what, _EMPTY_EXTREME, "usage")
    else:
        _refuse_empty(what, t.shape, normalize_axes(dim, t.ndim, what))
    if t.dtype.is_complex:
        raise UnsupportedDTypeError(f'"{what}" not implemented for {t.dtype}', {"input": input})
    if t.dtype is bool_:
        return cast(function(cast(input, int64), dim, keepdim), bool_)
    op = None if keepdim else _reduction(what, dim, t.ndim)
    if op is not None:
        return apply_single(op, input)
    found = function(input, dim, keepdim)
    return no_view(found, input) if keepdim else found


def _refuse_empty(what: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    for axis in axes:
        require_some(shape[axis], what, f"Expected reduction dim {axis} to have non-zero size.", "index")


_EMPTY = "Expected reduction dim to be specified for input.numel() == 0."
_EMPTY_EXTREME = f"{_EMPTY} Specify the reduction dim with the 'dim' argument."


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position of the largest element along ``dim`` (in the flattened operand by default)."""
    return _position(ops.argmax, "argmax", input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Position of the smallest element along ``dim`` (in the flattened operand by default)."""
    return _position(ops.argmin, "argmin", input, dim, keepdim)


def _position(function: Callable[..., Tensor], what: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    t = type_of(input)
    if dim is None:
        require_some(t.size, what, _EMPTY, "index")
    elif t.ndim:
        _refuse_empty(what, t.shape, (normalize_axis(dim, t.ndim, what),))
    source = cast(input, int64) if t.dtype is bool_ else input
    return function(source, dim, keepdim)


@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(input: Tensor, dim: Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None) -> Tensor: ...
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The largest element; with ``dim``, (values, indices) along it; with a second tensor, ``maximum``."""
    if dim is None and other is None:
        array = input._array
        if type(array) is np.ndarray and array.dtype.char in _COMMON and array.size:
            return apply_single(_reduction_over("amax", None, array.ndim), input)
    return _max_or_min(input, dim, keepdim, other, maximum, amax, argmax, "max")


@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(input: Tensor, dim: Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None) -> Tensor: ...
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """The smallest element; with ``dim``, (values, indices) along it; with a second tensor, ``minimum``."""
    if dim is None and other is None:
        array = input._array
        if type(array) is np.ndarray and array.dtype.char in _COMMON and array.size:
            return apply_single(_reduction_over("amin", None, array.ndim), input)
    return _max_or_min(input, dim, keepdim, other, minimum, amin, argmin, "min")


def _max_or_min(
    input: Tensor, dim: Any, keepdim: bool, other: Any, pair: Any, extreme: Any, position: Any, what: str
) -> Any:
    if type_of(input).dtype.is_complex:
        raise UnsupportedDTypeError(f'"{what}" not implemented for {type_of(input).dtype}', {"input": input})
    if isinstance(dim, Tensor):
        return pair(input, dim)
    if other is not None:
        return pair(input, other)
    if dim is None:
        require_some(type_of(input).size, what, _EMPTY, "usage")
        return extreme(input)
    index = position(input, dim, True)
    if type_of(input).ndim == 0:
        return ValuesIndices(input.clone(), index)
    axis = normalize_axis(dim, type_of(input).ndim, what)
    values = ops.gather(input, axis, index)
    if keepdim:
        return ValuesIndices(values, index)
    return ValuesIndices(values.squeeze(axis), index.squeeze(axis))


def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Log of the sum of exponentials over ``dim``, shifted by the largest element."""
    x = floating(input, "logsumexp")
    options = (normalize_axes(dim, type_of(x).ndim, "logsumexp"), keepdim)
    return in_one_step("logsumexp", options, x, node="LogsumexpBackward0")


def norm(input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
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


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return norm(sub(input, other), p)


@own_memory
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sum along ``dim``."""
    return ops.cumsum(_whole(input, dtype, "cumsum"), dim)


@own_memory
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running product along ``dim``."""
    return ops.cumprod(_whole(input, dtype, "cumprod"), dim)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Running ``logsumexp`` along ``dim``."""
    if type_of(input).dtype.is_complex:
        return _complex_logcumsumexp(input, dim)
    return ops.logcumsumexp(input, dim)


def _complex_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """By steps that double the span: after them an element holds the sum of the ``2 s`` elements up to it."""
    axis, span = normalize_axis(dim, type_of(x).ndim, "logcumsumexp"), 1
    count = type_of(x).shape[axis] if type_of(x).ndim else 1
    while span < count:
        joined = logaddexp(x.narrow(axis, span, count - span), x.narrow(axis, 0, count - span))
        x = ops.concatenate([x.narrow(axis, 0, span), joined], axis)
        span *= 2
    return x


def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """Running maximum along ``dim`` and where it was last met."""
    return ValuesIndices(*ops.cummax(input, dim))


def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """Running minimum along ``dim`` and where it was last met."""
    return ValuesIndices(*ops.cummin(input, dim))


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesIndices:
    """Values in order along ``dim`` and where they came from; equal values keep their order."""
    return ValuesIndices(*ops.sort(input, dim, descending))


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The positions that ``sort`` gives."""
    return ops.argsort(input, dim, descending)


def msort(input: Tensor) -> Tensor:
    """Values in order along the first axis."""
    return ops.msort(input)


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The ``k`` largest (or smallest) along ``dim``, in order, and where they are."""
    return ValuesIndices(*ops.topk(input, k, dim, largest))


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest along ``dim`` (from 1) and where it is."""
    return _kept(ops.kthvalue(input, k, dim), dim, keepdim, input.ndim > 0)


def _kept(found: tuple[Tensor, Tensor], dim: int, keepdim: bool, is_line: bool) -> ValuesIndices:
    """The pair, with the reduced axis put back on request where there was one."""
    values, indices = found
    if keepdim and is_line:
        return ValuesIndices(values.unsqueeze(dim), indices.unsqueeze(dim))
    return ValuesIndices(values, indices)


def _is_common(x: Tensor) -> bool:
    """Whether a composed op can compute at once: elements at hand, of a common dtype, along an axis."""
    array = x._array
    return (
        state.divert is None
        and type(array) is np.ndarray
        and array.dtype.char in _COMMON
        and array.size != 0
        and array.ndim != 0
    )


@lru_cache(maxsize=256, typed=True)
def _normalised(kind: type[Op], dim: int, ndim: int) -> Op:
    return kind(normalize_axis(dim, ndim, kind.name))


def _floats(input: Tensor, dtype: DType | None, what: str) -> Tensor:
    """The operand in ``dtype``; NotImplementedError if these are no real floats."""
    x = input if dtype is None else cast(input, dtype)
    if type_of(x).dtype.kind != "float":
        raise UnsupportedDTypeError(f'"{what}" not implemented for {type_of(x).dtype}', {"input": x})
    return x


def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """Exponentials over their sum along ``dim``."""
    x = _floats(input, dtype, "softmax")
    if _is_common(x):
        return apply_single(_normalised(ops.Softmax, dim, x._array.ndim), x)
    op = ops.Softmax(normalize_axis(dim, type_of(x).ndim, "softmax"))
    return by_parts(op, x, lambda x: ops.softmax(x, op.axis), "SoftmaxBackward0")


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """The logarithm of ``softmax``, without overflow."""
    x = _floats(input, dtype, "log_softmax")
    if _is_common(x):
        return apply_single(_normalised(ops.LogSoftmax, dim, x._array.ndim), x)
    op = ops.LogSoftmax(normalize_axis(dim, type_of(x).ndim, "log_softmax"))
    return by_parts(op, x, lambda x: ops.log_softmax(x, op.axis), "LogSoftmaxBackward0")


@own_memory
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The n-th forward difference along ``dim``; the operand itself for n = 0."""
    if n < 0:
        raise UsageError(f"order must be non-negative but got {n}")
    if type_of(input).ndim == 0:
        raise UsageError("diff expects input to be at least one-dimensional", {"input": input})
    if n == 0:
        return input
    parts = [p for p in (prepend, input, append) if p is not None]
    x = parts[0] if len(parts) == 1 else ops.concatenate(parts, dim)
    for _ in range(n):
        count = type_of(x).shape[normalize_axis(dim, type_of(x).ndim, "diff")]
        kept = count - 1 if count else 0  # no elements have no differences
        later, earlier = x.narrow(dim, count - kept, kept), x.narrow(dim, 0, kept)
        x = later.logical_xor(earlier) if type_of(x).dtype is bool_ else sub(later, earlier)
    return x
