"""Hooks: the handle that registering one returns, and hooks that a saved tensor does not take along.

A tensor with hooks can be saved and copied only without them; ``unserializable_hook`` marks a hook whose loss does not
matter, so that no warning is given for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autojit.core.user_warnings import warn
from autojit.tensor import Tensor
from autojit.tensor.node import RemovableHandle

F = TypeVar("F", bound=Callable[..., Any])


def unserializable_hook(f: F) -> F:
    """Mark a hook: saving a tensor that has it gives no warning. Usable as a decorator.

    Example:
        >>> from autojit.utils.hooks import unserializable_hook
        >>> @unserializable_hook
        ... def double(gradient):
        ...     return gradient * 2
    """
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn about every hook of a tensor that saving it would lose.

    Example:
        >>> import autojit as aj
        >>> from autojit.utils.hooks import warn_if_has_hooks
        >>> warn_if_has_hooks(aj.ones(2))
    """
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @autojit.utils.hooks.unserializable_hook to suppress this warning",
                UserWarning,
            )


__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]
