"""What torch has in ``torch.compiler`` for functions that want to know, or to stay out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from autojit.jit.eager_mode import eager
from autojit.tensor.state import is_tracing

__all__ = ["allow_in_graph", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting"]

F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether a step is being captured by this thread.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.is_compiling()
        False
        >>> aj.jit(lambda x: x + 1 if aj.compiler.is_compiling() else x)(aj.zeros(1))
        tensor([1.])
    """
    return is_tracing()


def is_dynamo_compiling() -> bool:
    """Whether a step is being captured by this thread.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.is_dynamo_compiling()
        False
    """
    return is_tracing()


def is_exporting() -> bool:
    """False: exported are steps that were captured before, with no capture of its own.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.is_exporting()
        False
    """
    return False


def allow_in_graph(fn: F) -> F:
    """The function as it is: every function is recorded with its caller.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.allow_in_graph(abs) is abs
        True
    """
    return fn


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function in which compiled functions run line by line, as inside of ``aj.eager()``; also as a decorator.

    Called while a step is captured, its ops are recorded as all others: values are the same, and nothing is split.

    Example:
        >>> import autojit as aj
        >>> step = aj.jit(lambda x: x * 2)
        >>> aj.compiler.disable(step)(aj.ones(1)), step.stats()["captures"]
        (tensor([2.]), 0)
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    function = fn

    @functools.wraps(function)
    def uncompiled(*args: object, **kwargs: object) -> Any:
        with eager():
            return function(*args, **kwargs)

    return uncompiled
