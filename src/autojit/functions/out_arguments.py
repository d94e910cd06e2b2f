"""The keyword ``out=`` of functions: the result goes into a tensor (or tensors) that the caller gives.

A function is written without it; ``with_out`` adds it. Nothing is recorded for such a call, so gradients may flow
neither into the operands nor into ``out``. ``out`` takes the result's shape; its dtype must hold the result's kind of
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import CO_VARARGS, unwrap
from typing import Any

from autojit.core.device import is_available
from autojit.core.device_array import share_memory
from autojit.core.dtypes import DType, dtype_of
from autojit.core.errors import ArgumentKindError, UsageError, out_of_memory
from autojit.core.layout import strided
from autojit.core.source import here, relay, stand_in
from autojit.core.user_warnings import warn
from autojit.dispatch.declared import PLAIN_OUT, Out
from autojit.dispatch.inplace import copy_into
from autojit.dispatch.promotion import Operand
from autojit.functions.argument_errors import raise_for_kinds
from autojit.functions.memory import pinned
from autojit.functions.method_forms import F, called_like, in_our_names, parameter_names
from autojit.functions.other_memory import resize_
from autojit.history.recording import shows_grad
from autojit.tensor.state import as_given, grad_mode, state
from autojit.tensor.tensor import Tensor, type_of


def with_out(function: F, out: Out = PLAIN_OUT) -> F:
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
    names, rule = parameter_names(function), out
    inner = unwrap(function)
    is_short = (inner.__defaults__, inner.__kwdefaults__) == (None, None)
    if is_short and names == ("input",):  # short ways: what every call pays counts

        def of_one(input: Operand, *, out: object = None) -> Any:
            try:
                return function(input) if out is None else _into(out, rule, function, (input,), {})
            except Exception as error:
                if (redone := raise_for_kinds(function, (input,), {}, error)) is not None:
                    return redone[0]
                raise

        return called_like(function, of_one)

    if is_short and names == ("input", "other"):

        def of_two(input: Operand, other: Operand, *, out: object = None) -> Any:
            try:
                return function(input, other) if out is None else _into(out, rule, function, (input, other), {})
            except Exception as error:
                if (redone := raise_for_kinds(function, (input, other), {}, error)) is not None:
                    return redone[0]
                raise

        return called_like(function, of_two)

    own_names = frozenset(names)

    def taking_out(*arguments: object, out: object = None, **options: object) -> Any:
        try:
            if options:
                options = in_our_names(options, own_names)
            if out is None:
                return function(*arguments, **options)
            return _into(out, rule, function, arguments, options)
        except Exception as error:
            again = None if out is None else lambda *given, **named: _into(out, rule, function, given, named)
            if (redone := raise_for_kinds(function, arguments, options, error, again)) is not None:
                return redone[0]
            raise

    stand_in(taking_out)
    return called_like(function, taking_out)


def _into(
    out: Any, rule: Out, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call the function and put what it gives into ``out``, as ``rule`` asks."""
    name = function.__name__
    places = tuple(out) if isinstance(out, list | tuple) else (out,)
    operands = _tensors_among((*arguments, *options.values()))
    _refuse_gradients(name, [*operands, *_tensors_among(places)])
    if rule.is_apart:
        _refuse_shared_memory(operands, places)
    for option in rule.refuses:
        if options.get(option):
            raise UsageError(f"{name} does not support the out kwarg when {option} is True")
    if rule.sets_dtype:
        options = _in_dtype_of(places[0], options)
    with grad_mode(False):
        found = as_given(function, *arguments, **options)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(places):
        raise UsageError(f"{name}(): expected {len(results)} tensors in out=, got {len(places)}")
    if rule.is_exact_of_several and len(places) > 1:
        rule = rule._replace(is_exact=True)
    for place, result in zip(places, results, strict=True):
        if rule.is_line and type_of(result).size == type_of(place).size:
            result = result.reshape(type_of(place).shape)
        _put(name, place, result, rule)
    return getattr(type(found), "_make", tuple)(places) if isinstance(found, tuple) else out


def with_layout(function: F) -> F:
    """The factory with the keywords ``layout`` (a sparse one converts the result) and ``pin_memory``.

    Pinned memory is had where there is a device that reaches it; without one the keyword has no effect.

    Example:
        >>> import autojit as aj
        >>> aj.zeros_like(aj.ones(2), layout=aj.strided, pin_memory=False)
        tensor([0., 0.])
    """

    def making(*arguments: object, **options: object) -> Any:
        return _made(function, arguments, options)

    relay(making)
    return called_like(function, making)


def _made(function: Callable[..., Any], arguments: tuple[object, ...], options: dict[str, Any]) -> Any:
    """What a factory makes, in the layout and the memory that its keywords ask for."""
    is_pinned = bool(options and options.pop("pin_memory", False)) and is_available("cuda")
    layout = _layout_among(options) if options else None
    if options and type(options.get("dtype")) not in _DTYPE_OR_NONE:
        options["dtype"] = _dtype_of(function.__name__, options["dtype"])
    try:
        found = function(*arguments, **options)
    except MemoryError as error:
        raise out_of_memory(error) from None
    except Exception as error:
        if (redone := raise_for_kinds(function, arguments, options, error)) is not None:
            return redone[0]
        raise
    found = pinned(found) if is_pinned else found
    if layout is None or layout is found.layout:
        return found
    return found.to_dense() if layout is strided else found.to_sparse(layout=layout)


relay(_made)  # errors name the factory
_DTYPE_OR_NONE = (DType, type(None))


def _dtype_of(name: str, given: object) -> DType:
    """The dtype that an argument of a factory stands for: Python's types of numbers do for one."""
    found = dtype_of(given)
    if not isinstance(found, DType):
        raise ArgumentKindError(
            f"{name}(): argument 'dtype' must be DType, not {type(given).__name__}",
            {"dtype": given, "at": f"{here()}, calling {name}()"},
            "pass one such as autojit.float32",
        )
    return found


def _layout_among(options: dict[str, Any]) -> Any:
    """The layout that keyword arguments ask for, or None; the keywords that only say so are taken out."""
    if options.get("names", True) is None:
        del options["names"]
    return options.pop("layout", None)


def making_out(function: F, out: Out) -> F:
    """The factory with the keywords ``out`` (whose dtype is then the default) and ``size``, where extents are listed.

    Example:
        >>> import autojit as aj
        >>> aj.ones(size=(2,), out=aj.empty(0))
        tensor([1., 1.])
    """
    rule, lists_extents = out, bool(function.__code__.co_flags & CO_VARARGS)
    keeps_dtype = "dtype" in (function.__kwdefaults__ or {})

    def making(*arguments: object, out: Any = None, **options: object) -> Any:
        if lists_extents and "size" in options:
            arguments = (options.pop("size"),)
        if out is None:
            return _made(function, arguments, options)
        if keeps_dtype:
            options.setdefault("dtype", type_of(out).dtype)
        if (layout := _layout_among(options)) not in (None, strided):
            raise UsageError(f"layout {layout} does not match layout of out parameter ({strided})", {"out": out})
        options.pop("pin_memory", None)
        wants_history = bool(options.pop("requires_grad", False))
        found = _into(out, rule, function, arguments, options)
        if wants_history:
            found.requires_grad = True
        return found

    relay(making)
    return called_like(function, making)


def _tensors_among(given: Iterable[object]) -> list[Tensor]:
    """The tensors, also those in lists and tuples."""
    members = [t for item in given for t in (item if isinstance(item, list | tuple) else (item,))]
    return [t for t in members if isinstance(t, Tensor)]


def _refuse_gradients(name: str, given: Sequence[Tensor]) -> None:
    for level in state.layers:
        tangent = getattr(level, "tangent", None)  # of a ForwardLevel
        if tangent is not None and any(tangent(t) is not None for t in given):
            raise NotImplementedError(
                f"Trying to use forward AD with {name}_out that does not support it because it is an out= function. "
                "Call it without out=."
            )
    if state.grad_enabled and any(map(shows_grad, given)):
        raise UsageError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad.",
            fix="call it under no_grad(), or without out=",
        )


def _refuse_shared_memory(given: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    arrays = [t._array for t in given if t._array is not None]
    for place in places:
        overlaps = place._array is not None and any(share_memory(place._array, array) for array in arrays)
        if overlaps or any(t is place for t in given):
            raise UsageError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation.",
                {"out": place},
            )


def _in_dtype_of(place: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a function that computes in the dtype of ``out=``."""
    wanted = type_of(place).dtype
    given = options.get("dtype")
    if given is not None and dtype_of(given) is not wanted:
        raise _of_other_dtype(dtype_of(given), wanted)
    return {**options, "dtype": wanted}


def _of_other_dtype(made: Any, wanted: DType) -> UsageError:
    return UsageError(
        f"Expected out tensor to have dtype {made.name}, but got {wanted.name} instead (scalar type "
        f"{made.scalar_type}, not {wanted.scalar_type})"
    )


def _put(name: str, place: Tensor, result: Tensor, rule: Out) -> None:
    made, wanted = type_of(result), type_of(place)
    if rule.takes and wanted.dtype not in rule.takes:
        only, got = rule.takes[0].name, wanted.dtype.scalar_type
        raise UsageError(f"{name} only supports {only} tensor for result, got: {got}")
    if made.dtype is not wanted.dtype and rule.is_exact:
        raise _of_other_dtype(made.dtype, wanted.dtype)
    if made.dtype.category > wanted.dtype.category:
        have, want = made.dtype.scalar_type, wanted.dtype.scalar_type
        raise UsageError(f"result type {have} can't be cast to the desired output type {want}")
    with grad_mode(False):
        if made.shape != wanted.shape:
            _resize(place, made.shape, rule.is_line)
        copy_into(place, result, name)


def _resize(place: Tensor, shape: tuple[int, ...], is_line: bool) -> None:
    have = type_of(place)
    if have.size and is_line:
        warn(
            f"The number of elements in the out tensor of shape {list(have.shape)} is {have.size} which does not match "
            f"the computed number of elements {shape[0]}. Note that this may occur as a result of rounding error. The "
            f"out tensor will be resized to a tensor of shape {list(shape)}.",
            UserWarning,
        )
    elif have.size:
        warn(
            f"An output with one or more elements was resized since it had shape {list(have.shape)}, which "
            f"does not match the required output shape {list(shape)}; give it no elements before: out.resize_(0)",
            UserWarning,
        )
    resize_(place, *shape)
