"""What torch has in ``torch.compiler`` for functions that want to know, or to stay out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from autojit.jit.eager_mode import eager
from autojit.tensor.state import is_tracing

__all__ = [
    "allow_in_graph", "assume_constant_result", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]  # fmt: skip

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


def assume_constant_result(fn: F) -> F:
    """The function: a step that reads what may change is captured again when it has changed, so nothing is assumed.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.assume_constant_result(abs) is abs
        True
    """
    return fn


def reset() -> None:
    """Nothing to forget: captures belong to their functions, and end with them.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.reset()
    """


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark: results of a step have memory of their own.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.cudagraph_mark_step_begin()
    """


def list_backends(exclude_tags: object = ("debug", "experimental")) -> list[str]:
    """What ``aj.compile(backend=...)`` stands for: autojit's own compiler, under torch's name.

    Example:
        >>> import autojit as aj
        >>> aj.compiler.list_backends()
        ['inductor']
    """
    return ["inductor"]
