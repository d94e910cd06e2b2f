"""Functions as methods and under NumPy's names of arguments.

A function is written once; its method is a copy of the function object whose first parameter is shown as ``self`` (the
code is the same, so calling it costs the same). Functions of an axis also take NumPy's names ``axis`` and ``keepdims``,
as in torch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from autojit.core.source import stand_in
from autojit.functions.argument_errors import raise_for_kinds

NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
_AXIS_NAMES = frozenset({"dim", "keepdim"})
_ABSENT: Any = object()
F = TypeVar("F", bound=Callable[..., Any])


class _Method:
    """Behind a method (``__wrapped__``): the function that it is made of, with the signature of the method.

    A signature takes longer to make than the method itself, and is seldom asked for.
    """

    __slots__ = ("__wrapped__",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function

    def __call__(self, *arguments: object, **options: object) -> Any:
        return self.__wrapped__(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        shown = inspect.signature(self.__wrapped__)
        first, *rest = shown.parameters.values()
        return shown.replace(parameters=[first.replace(name="self"), *rest])


def method_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its first parameter shown as ``self``; what is not a Python function stays itself.

    Example:
        >>> def negative(input):
        ...     return -input
        >>> inspect.signature(method_of(negative))
        <Signature (self)>
    """
    if type(function) is not FunctionType:
        return function
    code = function.__code__
    if "__wrapped__" not in function.__dict__ and (not code.co_argcount or code.co_varnames[0] == "self"):
        return function
    named = code.replace(co_qualname=f"Tensor.{function.__name__}")  # by which messages know that it is a method
    copy = FunctionType(named, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__qualname__, copy.__doc__, copy.__module__ = function.__qualname__, function.__doc__, function.__module__
    copy.__dict__.update(function.__dict__, __wrapped__=_Method(function))
    return copy


def parameter_names(function: Callable[..., Any], *, by_position: bool = False) -> tuple[str, ...]:
    """The names of a function's parameters, or of the function that is behind it; none for what is not Python's.

    ``by_position``: only of those that need no keyword.
    """
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = getattr(inner, "__code__", None)
    named = 0 if code is None or by_position else code.co_kwonlyargcount
    return () if code is None else code.co_varnames[: code.co_argcount + named]


def has_axis(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter ``dim`` or ``keepdim``."""
    return not _AXIS_NAMES.isdisjoint(parameter_names(function))


def with_numpy_names(function: F) -> F:
    """The function with ``axis`` for ``dim`` and ``keepdims`` for ``keepdim``.

    Example:
        >>> import autojit as aj
        >>> aj.ones(2, 3).sum(axis=0, keepdims=True)
        tensor([[2., 2., 2.]])
    """
    taken, names = frozenset(parameter_names(function)), parameter_names(function, by_position=True)
    is_second, is_third = names[1:2] == ("dim",), names[2:3] == ("keepdim",)

    def numpy_named(*arguments: object, dim: object = _ABSENT, keepdim: object = _ABSENT, **options: object) -> Any:
        try:
            if dim is _ABSENT and keepdim is _ABSENT and not options:
                return function(*arguments)
            # by position: Python takes 0.4 us to hand on a dict of keyword arguments, half of what a small sum takes
            if is_second and dim is not _ABSENT and len(arguments) == 1 and not options:
                if keepdim is _ABSENT:
                    return function(arguments[0], dim)
                if is_third:
                    return function(arguments[0], dim, keepdim)
            if is_third and dim is _ABSENT and len(arguments) == 2 and not options:
                return function(*arguments, keepdim)
            options, dim, keepdim = _by_name(options, dim, keepdim), _ABSENT, _ABSENT
            options = in_our_names(options, taken)
            return function(*arguments, **options)
        except Exception as error:
            redone = raise_for_kinds(function, arguments, _by_name(options, dim, keepdim), error)
            if redone is not None:
                return redone[0]
            raise

    stand_in(numpy_named)
    return called_like(function, numpy_named)


def _by_name(options: dict[str, Any], dim: object, keepdim: object) -> dict[str, Any]:
    given = {name: value for name, value in (("dim", dim), ("keepdim", keepdim)) if value is not _ABSENT}
    return options | given


def called_like(function: F, wrapper: Any) -> F:
    """The wrapper of a function under its name, also where profiles look: in its code."""
    name = function.__name__
    wrapper.__code__ = wrapper.__code__.replace(co_name=name, co_qualname=name)
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
