"""``int(x)``, ``float(x)`` and ``type(x)`` of open sizes, of numbers of a step, of its tensors of one element.

These classes ask for the digits, and a step that gives them away holds for these digits only. So users' code calls
functions instead, by which such a number goes on as what ``x.item()`` gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.sizes import is_symbolic
from autojit.functions.conversion import only_item
from autojit.jit.places import is_a, static_attribute
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.tensor import Tensor


def of_number(function: object, arguments: Sequence[Any]) -> Callable[..., Any] | None:
    """What is called instead of a class, for one of these."""
    if len(arguments) != 1:
        return None
    (x,) = arguments
    if is_symbolic(x):
        return next((instead for cls, instead in _OF_SIZES.items() if cls is function), None)
    if function is type:
        return _class_of if is_a(x, TracedNumber) else None
    if function is not int and function is not float:
        return None
    if is_a(x, TracedNumber):
        return _to_int if function is int else _to_float
    if is_a(x, Tensor) and static_attribute(type(x), f"__{function.__name__}__") in (Tensor.__int__, Tensor.__float__):
        return lambda t: of_known(function, only_item(t))
    return None


def of_known(function: type[int] | type[float], number: Any) -> Any:
    """The number as an int or a float; one that is the same at every call is Python's."""
    if not is_a(number, TracedNumber):
        return function(number)
    return _to_int(number) if function is int else _to_float(number)


def _to_int(number: TracedNumber) -> Any:
    return number.whole(math.trunc)


def _to_float(number: Any) -> Any:
    return number if number.kind is float else number / 1


def _class_of(number: TracedNumber) -> type:
    return number.__class__  # what it is to users: int or float


_OF_SIZES: dict[Any, Callable[..., Any]] = {
    int: lambda size: size,  # which stays open
    float: lambda size: size / 1,
    type: lambda number: number.__class__,
}
