"""Helpers of torch's functional module that programs may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """AssertionError with ``message`` (which may hold ``{}`` for the name) unless ``arg`` is an integer or a pair.

    Example:
        >>> from autojit.nn.functional import assert_int_or_pair
        >>> assert_int_or_pair((2, 3), "kernel_size", "expected {} to be an int or a pair")
    """
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    module_name: str | None,
    func_name: str | None,
) -> Callable[..., Any]:
    """A function that calls ``if_true`` or ``if_false`` by the value of its boolean argument.

    Args:
        arg_name, arg_index, default: of the argument.
        module_name, func_name: what the function says it is.

    Raises:
        RuntimeError: both functions have a docstring, so that it is not clear which is meant.
    """
    if if_true.__doc__ is not None and if_false.__doc__ is not None:
        raise RuntimeError("only one function can have a docstring")

    def fn(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)

    fn.__doc__ = if_true.__doc__ or if_false.__doc__
    if module_name is not None:
        fn.__module__ = module_name
    if func_name is not None:
        fn.__name__ = func_name
    return fn
