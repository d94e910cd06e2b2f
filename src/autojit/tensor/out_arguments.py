"""The keyword ``out=`` of functions: the result goes into a tensor (or tensors) that the caller gives.

A function is written without it; ``with_out`` adds it. Nothing is recorded for such a call, so gradients may flow
neither into the operands nor into ``out``. ``out`` takes the result's shape; its dtype must hold the result's kind of
numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.errors import UsageError, out_of_memory
from autojit.core.layout import strided
from autojit.core.source import relay
from autojit.core.user_warnings import warn
from autojit.tensor import factories, random
from autojit.tensor.argument_errors import raise_for_kinds
from autojit.tensor.inplace import copy_into
from autojit.tensor.method_forms import F, in_our_names
from autojit.tensor.other_memory import resize_
from autojit.tensor.recording import shows_grad
from autojit.tensor.state import grad_mode, state
from autojit.tensor.tensor import Tensor, type_of

# public functions that take out=, as in torch
NAMES = frozenset({
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "all",
    "amax", "amin", "aminmax", "angle", "any", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
    "arctanh", "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm", "bernoulli",
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm",
    "bucketize", "cat", "ceil", "cholesky", "cholesky_inverse", "cholesky_solve", "clamp", "clamp_max", "clamp_min",
    "clip", "column_stack", "complex", "concat", "concatenate", "conj_physical", "copysign", "cos", "cosh", "cross",
    "cummax", "cummin", "cumprod", "cumsum", "deg2rad", "diag", "diff", "digamma", "div", "divide", "dot", "dstack",
    "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "float_power", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frac", "frexp", "gather", "gcd", "ge", "ger", "greater", "greater_equal", "gt", "heaviside",
    "histc", "hstack", "hypot", "i0", "igamma", "igammac", "index_add", "index_copy", "index_reduce", "index_select",
    "inner", "inverse", "isin", "isneginf", "isposinf", "kron", "kthvalue", "lcm", "ldexp", "le", "lerp", "less",
    "less_equal", "lgamma", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logsumexp", "lt", "masked_select", "matmul",
    "matrix_power", "max", "maximum", "mean", "median", "min", "minimum", "mm", "mode", "msort", "mul", "multiply",
    "mv", "nan_to_num", "nanmean", "nanmedian", "nansum", "narrow_copy", "ne", "neg", "negative", "nextafter",
    "nonzero", "norm", "not_equal", "outer", "polar", "polygamma", "pow", "prod", "quantile", "rad2deg", "reciprocal",
    "remainder", "renorm", "round", "row_stack", "rsqrt", "scatter", "scatter_add", "scatter_reduce", "searchsorted",
    "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "softmax", "sort", "sqrt", "square", "stack", "std",
    "sub", "subtract", "sum", "svd", "take", "take_along_dim", "tan", "tanh", "tensordot", "topk", "tril", "triu",
    "true_divide", "trunc", "var", "vdot", "vstack", "where", "xlogy",
})  # fmt: skip


FACTORIES = (
    factories.zeros, factories.ones, factories.empty, factories.full, factories.arange, factories.range, factories.eye,
    factories.linspace, factories.logspace, random.rand, random.randn, random.randint, random.randperm, random.normal,
    random.multinomial, random.bernoulli,
)  # fmt: skip
WITHOUT_OUT = (
    factories.zeros_like, factories.ones_like, factories.empty_like, factories.full_like, factories.scalar_tensor,
    random.rand_like, random.randn_like, random.randint_like,
)  # fmt: skip
# functions that read operands at other positions than they write: out= may not share memory with an operand
SCATTERED = frozenset({
    "bernoulli", "cat", "concat", "concatenate", "gather", "index_select", "kthvalue", "masked_select", "take",
    "take_along_dim",
})  # fmt: skip
# functions whose out= must have the result's dtype, as in torch
OF_THE_DTYPE = frozenset({
    "aminmax", "complex", "gather", "index_select", "masked_select", "multinomial", "sort", "take", "topk",
})  # fmt: skip
_ABSENT: Any = object()
_OF_A_SIZE = frozenset({"zeros", "ones", "empty", "rand", "randn"})


def with_out(function: F) -> F:
    """The function with the keyword ``out``: a tensor, or a tuple of them for several results; it is returned.

    Raises:
        RuntimeError: an operand or ``out`` requires gradients, or ``out`` cannot hold the result's kind of numbers.

    Example:
        >>> import autojit as aj
        >>> y = aj.zeros(2)
        >>> aj.exp(aj.zeros(2), out=y) is y
        True
        >>> y
        tensor([1., 1.])
    """
    code, short = function.__code__, (function.__defaults__, function.__kwdefaults__) == (None, None)
    taken = code.co_varnames[: code.co_argcount] if short else ()
    names = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if taken == ("input",):  # short ways: what every call pays counts

        def of_one(input: Any, *, out: Any = None) -> Any:
            try:
                return function(input) if out is None else _into(out, function, (input,), {})
            except Exception as error:
                raise_for_kinds(function, (input,), {}, error)
                raise

        return _named_like(function, of_one)

    if taken == ("input", "other"):

        def of_two(input: Any, other: Any, *, out: Any = None) -> Any:
            try:
                return function(input, other) if out is None else _into(out, function, (input, other), {})
            except Exception as error:
                raise_for_kinds(function, (input, other), {}, error)
                raise

        return _named_like(function, of_two)

    def taking_out(
        first: Any = _ABSENT,
        second: Any = _ABSENT,
        third: Any = _ABSENT,
        /,
        *rest: Any,
        out: Any = None,
        **options: Any,
    ) -> Any:
        try:
            if out is None and not options and not rest:
                if second is _ABSENT:
                    return function() if first is _ABSENT else function(first)
                return function(first, second) if third is _ABSENT else function(first, second, third)
            arguments = _present(first, second, third) + rest
            options = in_our_names(options, names)
            return function(*arguments, **options) if out is None else _into(out, function, arguments, options)
        except Exception as error:
            raise_for_kinds(function, _present(first, second, third) + rest, options, error)
            raise

    return _named_like(function, taking_out)


def _present(*arguments: Any) -> tuple[Any, ...]:
    """The arguments that were given."""
    return tuple([a for a in arguments if a is not _ABSENT])


def _named_like(function: F, wrapper: Any) -> F:
    """The wrapper under the function's name and with its parameters' names, also where errors and profiles look: in its
    code.
    """
    name, own, code = function.__name__, wrapper.__code__, function.__code__
    taken = code.co_varnames[: min(code.co_argcount, own.co_posonlyargcount)]
    others = own.co_varnames[len(taken) :]
    names = own.co_varnames if set(taken) & set(others) else (*taken, *others)
    wrapper.__code__ = own.replace(co_name=name, co_qualname=name, co_varnames=names)
    made: Any = functools.wraps(function)(wrapper)
    found: F = made
    return found


def _into(out: Any, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call the function and put what it gives into ``out``."""
    name = function.__name__
    places = tuple(out) if isinstance(out, list | tuple) else (out,)
    _refuse_gradients(name, (*arguments, *options.values(), *places))
    if name in SCATTERED:
        _refuse_shared_memory((*arguments, *options.values()), places)
    with grad_mode(False):
        found = function(*arguments, **options)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(places):
        raise UsageError(f"{name}(): expected {len(results)} tensors in out=, got {len(places)}")
    for place, result in zip(places, results, strict=True):
        _put(name, place, result)
    return out if not isinstance(found, tuple) else _like(found, places)


def factories_with_out() -> dict[str, Callable[..., Any]]:
    """The factories with the keywords ``out`` (whose dtype is then the default) and ``size``, where extents are listed.

    Example:
        >>> import autojit as aj
        >>> aj.ones(size=(2,), out=aj.empty(0))
        tensor([1., 1.])
    """
    return {function.__name__: _making(function) for function in FACTORIES} | {
        function.__name__: with_layout(function) for function in WITHOUT_OUT
    }


def with_layout(function: F) -> F:
    """The factory with the keywords ``layout`` (a sparse one converts the result) and ``pin_memory`` (no effect).

    Example:
        >>> import autojit as aj
        >>> aj.zeros_like(aj.ones(2), layout=aj.strided, pin_memory=False)
        tensor([0., 0.])
    """

    def making(*arguments: Any, **options: Any) -> Any:
        layout = _layout_among(options) if options else None
        try:
            found = function(*arguments, **options)
        except MemoryError as error:
            raise out_of_memory(error) from None
        return found if layout is None else found.to_sparse(layout=layout)

    relay(making)
    return _named_like(function, making)


def _layout_among(options: dict[str, Any]) -> Any:
    """The sparse layout that keyword arguments ask for, or None; the keywords that only say so are taken out."""
    options.pop("pin_memory", None)
    if options.get("names", True) is None:
        del options["names"]
    layout = options.pop("layout", None)
    return None if layout is strided else layout


def _making(function: F) -> F:
    lists_extents = function.__name__ in _OF_A_SIZE
    keeps_dtype = "dtype" in (function.__kwdefaults__ or {})

    def making(*arguments: Any, out: Any = None, **options: Any) -> Any:
        if lists_extents and "size" in options:
            arguments = (options.pop("size"),)
        if out is None:
            layout = _layout_among(options) if options else None
            try:
                found = function(*arguments, **options)
            except MemoryError as error:
                raise out_of_memory(error) from None
            return found if layout is None else found.to_sparse(layout=layout)
        if keeps_dtype:
            options.setdefault("dtype", type_of(out).dtype)
        return _into(out, function, arguments, options)

    relay(making)
    return _named_like(function, making)


def _like(found: tuple[Any, ...], places: tuple[Any, ...]) -> Any:
    made = getattr(type(found), "_make", None)
    return tuple(places) if made is None else made(places)


def _refuse_gradients(name: str, given: Sequence[Any]) -> None:
    if state.layers:
        _refuse_tangents(name, given)
    if not state.grad_enabled:
        return
    for item in given:
        members = item if isinstance(item, list | tuple) else (item,)
        if any(isinstance(t, Tensor) and shows_grad(t) for t in members):
            raise UsageError(
                f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
                "arguments requires grad.",
                fix="call it under no_grad(), or without out=",
            )


def _refuse_tangents(name: str, given: Sequence[Any]) -> None:
    members = [t for item in given for t in (item if isinstance(item, list | tuple) else (item,))]
    tensors = [t for t in members if isinstance(t, Tensor)]
    for level in state.layers:
        tangent = getattr(level, "tangent", None)  # of a ForwardLevel
        if tangent is not None and any(tangent(t) is not None for t in tensors):
            raise NotImplementedError(
                f"Trying to use forward AD with {name}_out that does not support it because it is an out= function. "
                "Call it without out=."
            )


def _refuse_shared_memory(given: Sequence[Any], places: Sequence[Any]) -> None:
    members = [t for item in given for t in (item if isinstance(item, list | tuple) else (item,))]
    arrays = [t._array for t in members if isinstance(t, Tensor) and t._array is not None]
    for place in places:
        overlaps = place._array is not None and any(np.may_share_memory(place._array, array) for array in arrays)
        if overlaps or any(t is place for t in members):
            raise UsageError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation.",
                {"out": place},
            )


def _put(name: str, place: Tensor, result: Tensor) -> None:
    made, wanted = type_of(result), type_of(place)
    if made.dtype is not wanted.dtype and name in OF_THE_DTYPE:
        raise UsageError(f"Expected out tensor to have dtype {made.dtype.name}, but got {wanted.dtype.name} instead")
    if made.dtype.category > wanted.dtype.category:
        raise UsageError(f"result type {made.dtype.name} can't be cast to the desired output type {wanted.dtype.name}")
    with grad_mode(False):
        if made.shape != wanted.shape:
            _resize(place, made.shape)
        copy_into(place, result, name)


def _resize(place: Tensor, shape: tuple[int, ...]) -> None:
    if type_of(place).size:
        warn(
            f"An output with one or more elements was resized since it had shape {list(type_of(place).shape)}, which "
            f"does not match the required output shape {list(shape)}; give it no elements before: out.resize_(0)",
            UserWarning,
        )
    resize_(place, *shape)
