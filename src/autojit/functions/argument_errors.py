"""What a failed call is reported by when an argument is not of the kind that its parameter takes.

Functions do not look at the kinds of their arguments before they start: that would cost every call. A call that fails
is looked at afterwards instead. If an argument does not fit what the function's signature says, that is the error, as
in torch a TypeError that names function and argument; else the failure stands as it is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from autojit.core.dtypes import DType, dtype_of
from autojit.core.errors import ArgumentKindError, CompileError, TraceError, out_of_memory
from autojit.core.source import here, relay
from autojit.core.tracebacks import trim
from autojit.dispatch.old_overloads import in_new_form
from autojit.functions.overridable import overridden
from autojit.functions.refused_dtypes import refuse_kinds, refused_kinds
from autojit.tensor.tensor import Tensor, type_of

Test = Callable[[Any], bool]

_NAMES_OF_KINDS = {"Sequence[int]": "tuple of ints", "Sequence[Tensor]": "tuple of Tensors", "Dims": "tuple of ints"}
_ALIASES = {
    "AnyModule": "Module",
    "Layer": "Module",
    "Dims": "int | Sequence[int] | None",
    "Extents": "int | Sequence[int]",
}


def with_argument_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose failures name an argument of the wrong kind where there is one, and which refuses dtypes.

    Example:
        >>> @with_argument_errors
        ... def height(input: Tensor) -> int:
        ...     return input.shape[-2]
        >>> height(None)
        Traceback (most recent call last):
            ...
        autojit.core.errors.ArgumentKindError: height(): argument 'input' (position 1) must be Tensor, not NoneType
        ...
    """

    @functools.wraps(function)
    def called(*arguments: object, **options: object) -> Any:
        try:
            return function(*arguments, **options)
        except Exception as error:
            if (redone := _report(function, arguments, options, error)) is not None:
                return redone[0]
            raise

    if refused_kinds(function):
        return _refusing(function, refused_kinds(function))
    relay(called)
    return called


def _refusing(function: Callable[..., Any], kinds: frozenset[str]) -> Callable[..., Any]:
    """``with_argument_errors`` of a function that does not take all dtypes."""
    name = function.__name__

    @functools.wraps(function)
    def called(*arguments: object, **options: object) -> Any:
        try:
            refuse_kinds(arguments[0] if arguments else options.get("input"), name, kinds)
            return function(*arguments, **options)
        except Exception as error:
            if (redone := _report(function, arguments, options, error)) is not None:
                return redone[0]
            raise

    relay(called)
    return called


def _report(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any], error: Exception
) -> tuple[Any] | None:
    if (redone := raise_for_kinds(function, arguments, options, error)) is not None:
        return redone
    trim(error)
    if isinstance(error, MemoryError):
        raise out_of_memory(error) from None
    return None


def name_arguments_in_errors(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Put ``with_argument_errors`` of the functions ``names`` into a namespace and into the modules they are from."""
    for name in names:
        function = namespace[name]
        is_plain = type(function) is FunctionType and not hasattr(function, "__wrapped__")
        if is_plain or refused_kinds(function):
            told: Any = with_argument_errors(function)
            namespace[name] = told
            home = vars(sys.modules[told.__module__])
            if home.get(told.__name__) is function:
                home[told.__name__] = told


def raise_for_kinds(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    error: Exception,
    again: Callable[..., Any] | None = None,
) -> tuple[Any] | None:
    """Raise for the first argument of a failed call that is not of its parameter's kind; return if there is none.

    If the call failed over an operand whose class overrides it, what that makes of it is returned, in a tuple; so is
    the result with dtypes where types of Python's numbers were given for them (``dtype=float``), with Python's numbers
    where NumPy's were or tensors without axes (``x.sum(np.int64(0))``), and that of a call in a form that torch has
    replaced (``add(x, 2, y)``). ``again`` makes such a call, by default the function.
    """
    again = again or function
    if isinstance(error, TraceError | CompileError):
        return None
    if (redone := overridden(function, arguments, options)) is not None:
        return redone
    if (in_our_kinds := _in_our_kinds(function, arguments, options)) is not None:
        return (again(*in_our_kinds[0], **in_our_kinds[1]),)
    try:
        given = inspect.signature(function).bind(*arguments, **options).arguments
    except TypeError:  # the failure is that the arguments do not match the parameters
        new = in_new_form(function.__name__, arguments, options)
        return None if new is None else (again(*new[0], **new[1]),)
    parameters = inspect.signature(function).parameters
    for place, (name, value) in enumerate(given.items(), 1):
        kind = "Tensor" if name == "self" else parameters[name].annotation  # of a form in place, for one
        if parameters[name].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            if isinstance(error, AttributeError) and any(item is None for item in value):
                raise ArgumentKindError(f"{function.__name__}(): an operand in '{name}' is None") from error
            return None
        if isinstance(kind, str) and not _fits(value, kind):
            at = f" (position {place})" if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY else ""
            facts = {other: t for other, t in given.items() if isinstance(t, Tensor)}
            raise ArgumentKindError(
                f"{function.__name__}(): argument '{name}'{at} must be {_described(kind)}, not {type(value).__name__}",
                facts | {"at": f"{here()}, calling {function.__name__}()"},
                f"pass {name} as {_described(kind)}",
            ) from error
    return None


def _in_our_kinds(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments with dtypes where types of Python's numbers were given for them, and with Python's numbers where
    NumPy's were, or tensors without axes for parameters that are numbers; None: there were none.
    """
    parameters = inspect.signature(function).parameters
    by_place = [*arguments]
    for place, parameter in enumerate([*parameters.values()][: len(by_place)]):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            break
        by_place[place] = _in_our_kind(by_place[place], parameter.name, parameter.annotation)
    by_name = {
        name: _in_our_kind(value, name, parameters[name].annotation if name in parameters else "")
        for name, value in options.items()
    }
    is_changed = any(a is not b for a, b in zip(by_place, arguments, strict=True))
    return (by_place, by_name) if is_changed or any(by_name[n] is not options[n] for n in by_name) else None


def _in_our_kind(value: Any, name: str, kind: object) -> Any:
    """An argument as the parameter ``name``, annotated with ``kind``, takes it."""
    kind = kind if isinstance(kind, str) else ""
    if name == "dtype" or "DType" in kind:
        return dtype_of(value)
    is_number = isinstance(value, np.generic)
    if isinstance(value, Tensor) and not type_of(value).ndim and kind:
        is_number = not any(other in kind for other in ("Tensor", "Operand", "Any", "object"))
    return value.item() if is_number else value


def _described(kind: str) -> str:
    parts = [part.strip() for part in kind.split(" | ")]
    named = [_NAMES_OF_KINDS.get(part, part) for part in parts if part != "None"]
    return " or ".join(named)


def _fits(value: object, kind: str) -> bool:
    """Whether a value is of a kind; every value is of a kind that has no test."""
    parts = [part.strip() for part in _ALIASES.get(kind, kind).split(" | ")]
    if any(part not in _TESTS for part in parts):
        return True
    return any(_TESTS[part](value) for part in parts)


def _is_int(value: object) -> bool:
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def _is_float(value: object) -> bool:
    return hasattr(type(value), "__float__") or isinstance(value, complex) or hasattr(type(value), "as_operand")


def _all_of(test: Test) -> Test:
    return lambda value: isinstance(value, list | tuple) and all(test(item) for item in value)


def _is_a(name: str) -> Test:
    """Whether a value is of a class of this name, of a layer above this one."""
    return lambda value: any(kind.__name__ == name for kind in type(value).__mro__)


def _each_is_a_tensor(value: Any) -> bool:
    """An iterator is not looked into: that would use it up."""
    return isinstance(value, Iterable) and (
        not isinstance(value, list | tuple | str) or all(isinstance(item, Tensor) for item in value)
    )


_TESTS: dict[str, Test] = {
    "Tensor": lambda value: isinstance(value, Tensor),
    "None": lambda value: value is None,
    "int": _is_int,
    "float": _is_float,
    "Number": _is_float,
    "bool": lambda value: not isinstance(value, str | list | tuple) and value is not None,
    "str": lambda value: isinstance(value, str),
    "DType": lambda value: isinstance(dtype_of(value), DType),
    "Sequence[int]": _all_of(_is_int),
    "Iterable[Tensor]": _each_is_a_tensor,
    "Module": _is_a("Module"),
    "Optimizer": _is_a("Optimizer"),
    "PackedSequence": _is_a("PackedSequence"),
    "Sequence[Tensor]": _all_of(lambda value: isinstance(value, Tensor)),
}
