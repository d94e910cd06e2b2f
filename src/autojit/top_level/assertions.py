"""``_assert`` and ``_check``: torch's private names for assertions, which libraries of models use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.errors import UsageError
from autojit.overrides import handle_torch_function, has_torch_function_unary
from autojit.tensor import Tensor

__all__ = ["_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_type", "_check_value"]

Message = Callable[[], str] | None


def _assert(condition: Any, message: str) -> Any:
    """``assert condition, message``, as a function; a condition that is a tensor has one element.

    Raises:
        AssertionError: the condition does not hold.

    Example:
        >>> import autojit as aj
        >>> aj._assert(aj.tensor(3) > 2, "too small")
    """
    if type(condition) is not Tensor and has_torch_function_unary(condition):
        return handle_torch_function(_assert, (condition,), condition, message)
    if not bool(condition):
        raise AssertionError(message)
    return None


def _assert_async(condition: Tensor, message: str = "") -> None:
    """Refuse where a tensor of one element is 0.

    Raises:
        RuntimeError: it is; under torch a device says so later, here the call does.

    Example:
        >>> import autojit as aj
        >>> aj._assert_async(aj.tensor(1))
    """
    if not bool(condition):
        raise UsageError(message or "Expected Tensor with single nonzero value, but got zero")


def _failed(error: type[Exception], condition: Any, message: Message) -> None:
    if isinstance(condition, Tensor):
        raise TypeError(f"cond must be a bool, but got {type(condition)}")
    if not condition:
        raise error(message() if message else "Expected cond to be True, but got False.")


def _check(cond: Any, message: Message = None) -> None:
    """Refuse where a condition does not hold; the message is made only then.

    Raises:
        RuntimeError: it does not.
        TypeError: the condition is a tensor.

    Example:
        >>> import autojit as aj
        >>> aj._check(1 < 2, lambda: "never made")
    """
    _failed(UsageError, cond, message)


def _check_index(cond: Any, message: Message = None) -> None:
    """`_check` that raises IndexError."""
    _failed(IndexError, cond, message)


def _check_value(cond: Any, message: Message = None) -> None:
    """`_check` that raises ValueError."""
    _failed(ValueError, cond, message)


def _check_type(cond: Any, message: Message = None) -> None:
    """`_check` that raises TypeError."""
    _failed(TypeError, cond, message)


def _check_is_size(i: int, message: Message = None) -> None:
    """`_check` that a number is no less than zero."""
    _failed(UsageError, i >= 0, message)
