"""Questions about objects that follow torch's protocol ``__torch_function__``.

Functions of this package do not dispatch to that protocol; programs that do so themselves find the questions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from autojit.tensor import Tensor

__all__ = [
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
]  # fmt: skip


def _overrides(value: Any) -> bool:
    return getattr(type(value), "__torch_function__", None) is not None and not isinstance(value, Tensor)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument's class, other than Tensor, has ``__torch_function__``.

    Example:
        >>> import autojit as aj
        >>> aj.overrides.has_torch_function((aj.ones(1), 2))
        False
    """
    return any(_overrides(value) for value in relevant_args)


def has_torch_function_unary(value: Any) -> bool:
    """``has_torch_function`` of one argument."""
    return _overrides(value)


def has_torch_function_variadic(*values: Any) -> bool:
    """``has_torch_function`` of the arguments."""
    return has_torch_function(values)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the first argument whose class has ``__torch_function__``, subclasses first, makes of the call.

    Raises:
        TypeError: no class takes the call.
    """
    found: list[Any] = []
    for value in relevant_args:
        if _overrides(value) and all(type(value) is not type(other) for other in found):
            place = next((k for k, other in enumerate(found) if issubclass(type(value), type(other))), len(found))
            found.insert(place, value)
    kinds = tuple(type(value) for value in found)
    for value in found:
        result = type(value).__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(f"no implementation found for {name} on types that implement __torch_function__: {list(kinds)}")


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a Tensor or follows ``__torch_function__``.

    Example:
        >>> import autojit as aj
        >>> aj.overrides.is_tensor_like(aj.ones(1)), aj.overrides.is_tensor_like(1)
        (True, False)
    """
    return isinstance(inp, Tensor) or _overrides(inp)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor, or reads or writes one of its properties."""
    members = [m for m in vars(Tensor).values() if m is not None]
    accessors = [a for m in members if isinstance(m, property) for a in (m.fget, m.fset) if a is not None]
    return any(func is m for m in (*members, *accessors))


def resolve_name(f: Callable[..., Any]) -> str | None:
    """A function's name with its module, or ``autojit.Tensor.`` of a method; None of what has no name.

    Example:
        >>> import autojit as aj
        >>> aj.overrides.resolve_name(aj.Tensor.add)
        'autojit.Tensor.add'
    """
    name = getattr(f, "__name__", None)
    if name is None:
        return None
    return f"autojit.Tensor.{name}" if is_tensor_method_or_property(f) else f"autojit.{name}"
