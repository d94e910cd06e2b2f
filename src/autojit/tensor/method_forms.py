"""Functions as methods and under NumPy's names of arguments.

A function is written once; its method is a copy of the function object whose first parameter is called ``self`` (the
code is the same, so calling it costs the same). Functions of an axis also take NumPy's names ``axis`` and ``keepdims``,
as in torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

from autojit.tensor.argument_errors import raise_for_kinds

NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
_AXIS_NAMES = frozenset({"dim", "keepdim"})
_ABSENT: Any = object()
F = TypeVar("F", bound=Callable[..., Any])

# parameters that torch calls otherwise in the method than in the function
OF_METHODS = {
    "cholesky_inverse": {"L": "self"},
    "split": {"tensor": "self", "split_size_or_sections": "split_size"},
    "lstsq": {"input": "self", "A": "other"},
    "solve": {"input": "self", "A": "other"},
    "triangular_solve": {"b": "self"},
}


def method_of(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """The function with its first parameter called ``self``; what is no Python function stays itself.

    Example:
        >>> def negative(input):
        ...     return -input
        >>> method_of(negative).__code__.co_varnames
        ('self',)
    """
    if type(function) is not FunctionType:
        return function
    code = function.__code__
    if not code.co_argcount and "__wrapped__" not in function.__dict__:
        return function
    first = code.co_varnames[0] if code.co_argcount else "self"
    renamed = OF_METHODS.get(name) or {first: "self"}
    if first == "self" and len(renamed) == 1 and code.co_argcount:
        return function
    copy = FunctionType(_renamed(code, renamed), function.__globals__, function.__name__, None, function.__closure__)
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    copy.__qualname__, copy.__doc__ = function.__qualname__, function.__doc__
    copy.__annotations__ = {renamed.get(key, key): kind for key, kind in function.__annotations__.items()}
    copy.__dict__.update(function.__dict__)
    inner = function.__dict__.get("__wrapped__")
    if inner is not None:
        copy.__dict__["__wrapped__"] = method_of(inner, name)
    return copy


def function_of(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as a function of ``input``."""
    code = _renamed(method.__code__, {"self": "input"})
    made = FunctionType(code, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
    made.__kwdefaults__, made.__doc__, made.__module__ = method.__kwdefaults__, method.__doc__, method.__module__
    made.__annotations__ = {"input" if key == "self" else key: kind for key, kind in method.__annotations__.items()}
    return made


def _renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    def changed(old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.get(name, name) for name in old])

    return code.replace(co_varnames=changed(code.co_varnames), co_cellvars=changed(code.co_cellvars))


def has_axis(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter ``dim`` or ``keepdim``."""
    inner = getattr(function, "__wrapped__", function)
    code = getattr(inner, "__code__", None)
    if code is None:
        return False
    return not _AXIS_NAMES.isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def with_numpy_names(function: F) -> F:
    """The function with ``axis`` for ``dim`` and ``keepdims`` for ``keepdim``.

    Example:
        >>> import autojit as aj
        >>> aj.ones(2, 3).sum(axis=0, keepdims=True)
        tensor([[2., 2., 2.]])
    """
    code = getattr(function, "__wrapped__", function).__code__
    taken = code.co_varnames[: min(code.co_argcount, 3)]
    others = (*taken[1:], *("second", "third")[max(len(taken) - 1, 0) :])
    third_name, taken_names = others[1], frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    def numpy_named(
        first: Any = _ABSENT, second: Any = _ABSENT, third: Any = _ABSENT, *rest: Any, **options: Any
    ) -> Any:
        try:
            if options or rest or first is _ABSENT:
                options = in_our_names(options, taken_names)
                if rest:
                    return function(first, second, third, *rest, **options)
                options |= {k: v for k, v in zip(others, (second, third), strict=False) if v is not _ABSENT}
                return function(**options) if first is _ABSENT else function(first, **options)
            if third is _ABSENT:
                return function(first) if second is _ABSENT else function(first, second)
            return function(first, **{third_name: third}) if second is _ABSENT else function(first, second, third)
        except Exception as error:
            given = tuple([a for a in (first, second, third) if a is not _ABSENT])
            raise_for_kinds(function, given + rest, options, error)
            raise

    wrapper: Any = numpy_named
    own, name = wrapper.__code__, function.__name__
    names = dict(zip(("first", "second", "third"), taken, strict=False))  # so keywords reach them
    wrapper.__code__ = _renamed(own, names).replace(co_name=name, co_qualname=name)  # what errors and profiles show
    wrapped: Any = functools.wraps(function)(wrapper)
    found: F = wrapped
    return found


def in_our_names(options: dict[str, Any], taken: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Keyword arguments with torch's names in the place of NumPy's; ``taken`` are the function's own names."""
    if options.keys().isdisjoint(NUMPY_NAMES):
        return options
    found = {name if name in taken else NUMPY_NAMES.get(name, name): value for name, value in options.items()}
    if len(found) < len(options):
        twice = [name for name in options if NUMPY_NAMES.get(name) in options]
        raise TypeError(f"{', '.join(twice)}: given under NumPy's name and torch's")
    return found
