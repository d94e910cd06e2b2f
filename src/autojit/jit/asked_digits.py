"""Numbers of the step that are handed to libraries which ask for their type.

Most code takes a number of a captured step as it is: it compares, adds, asks for the digits, and that is followed. Some
asks for the type first (``statistics.mean``, ``Decimal``, ``deque(maxlen=n)``) and raises TypeError for what is none of
its own. Such a call is made again with the digits of this capture, which holds for those then, and what it gives or
raises now is eager mode's. A fraction or a decimal would keep the number, so it is given digits at once.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from functools import partial, reduce
from types import BuiltinFunctionType, FunctionType
from typing import Any

from autojit.core.size_recorder import for_users
from autojit.core.sizes import is_symbolic
from autojit.core.wrapping import own
from autojit.dispatch.dispatch import value_of
from autojit.functions.shape import stack
from autojit.jit.guards import is_value
from autojit.jit.late_values import with_digits
from autojit.jit.observed_functions import is_own_class, is_user_class, may_compute
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.state import grad_mode, state

_CALLING: tuple[Any, ...] = (map, filter, reduce, itertools.starmap, itertools.accumulate)


def asks_for_type(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any] | None:
    """What is called instead of a function that cannot be observed and may ask numbers for their type; None: itself."""
    trace: Any = state.trace
    if trace is None or not (trace.has_numbers or trace.sizes):
        return None
    if any(function is known for known in _CALLING) and _is_of_library(arguments[0]):
        return lambda called, *rest: function(partial(_attempted, called), *rest)
    if any(_is_users(leaf) for leaf in (function, *arguments)):
        return None
    leaves = flatten([_opened(argument) for argument in arguments])[0]
    if _reads_iterators(function) and any(is_a(leaf, Iterator) for leaf in leaves):
        return partial(_attempted, function)
    if not any(map(_is_number, leaves)):
        return None
    return partial(_again, function) if any(map(is_value, leaves)) else partial(_attempted, function)


def beside_values(left: object, right: object) -> tuple[Any, Any]:
    """The operands of an operator: decimals, fractions and spans of time are given the digits of numbers."""
    if (_is_number(left) and is_value(right)) or (_is_number(right) and is_value(left)):
        return with_digits(left), with_digits(right)
    return left, right


@for_users
def _attempted(function: Callable[..., Any], *args: object, **options: object) -> Any:
    if _reads_iterators(function):
        args = tuple([list(argument) if is_a(argument, Iterator) else argument for argument in args])
    try:
        return function(*args, **options)
    except TypeError:
        if not any(map(_is_number, flatten(_opened([args, options]))[0])):
            raise
    return _again(function, *args, **options)  # not inside of ``except``: its errors come of nothing else


def _again(function: Callable[..., Any], *args: object, **options: object) -> Any:
    given, named = with_digits((_opened(args), {name: _opened(value) for name, value in options.items()}))
    return function(*given, **named)


def _opened(value: Any) -> Any:
    """A container that holds numbers of the step, as a nest of lists; all else itself."""
    if type(value) in (tuple, list):
        found = [_opened(part) for part in value]
        return value if all(a is b for a, b in zip(found, value, strict=True)) else type(value)(found)
    if is_a(value, deque | KeysView | ValuesView | ItemsView | set | frozenset) and any(map(_is_number, value)):
        return list(value)
    return value


def _reads_iterators(function: object) -> bool:
    return bool(own(function, "__module__", None) == "statistics")


def _is_number(value: object) -> bool:
    return type(value) is TracedNumber or bool(is_symbolic(value))


def _is_of_library(function: object) -> bool:
    return type(function) in (FunctionType, BuiltinFunctionType) and not _is_users(function)


def _is_users(value: object) -> bool:
    """Whether something is the user's, or the package's, and takes numbers of the step."""
    if is_a(value, type):
        return is_user_class(value) or is_own_class(value)
    return may_compute(value) and not type(value).__module__.startswith("_cython")


def sorted_by_digits(items: Iterable[Any], /, **options: Any) -> list[Any]:
    """``sorted``: to compare many numbers of the step one by one would split it as often, so their digits count."""
    return sorted(_with_digits(list(items)), **options)


def sort_by_digits(items: list[Any], /, **options: Any) -> None:
    """``items.sort()``, likewise."""
    items[:] = _with_digits(list(items))
    items.sort(**options)


def _with_digits(items: list[Any]) -> list[Any]:
    """A list with the digits of the numbers in it, of which Python gets to know all at once."""
    leaves: list[Any] = []
    if not all(_is_tuple_of_leaves(item, leaves) for item in items):
        return items
    numbers = [leaf for leaf in leaves if is_a(leaf, TracedNumber) and leaf.kind is float]
    if len(numbers) < LEAST_SORTED:
        return items
    trace: Any = state.trace
    with grad_mode(False):
        digits = trace.concretize(value_of(stack([number.as_operand() for number in numbers]))).tolist()
    known = {id(number): plain for number, plain in zip(numbers, digits, strict=True)}
    return [_replaced(item, known) for item in items]


def _is_tuple_of_leaves(item: object, leaves: list[Any]) -> bool:
    """Whether an item is a leaf, or a tuple of leaves or of lists of them; its leaves are added, but for lists'."""
    if isinstance(item, tuple) and type(item) is tuple:
        leaves += item
        return True
    leaves.append(item)
    return type(item) is not list


def _replaced(item: object, known: Mapping[int, float]) -> Any:
    if isinstance(item, tuple) and type(item) is tuple:
        return tuple([known.get(id(part), part) for part in item])
    return known.get(id(item), item)


LEAST_SORTED = 3  # numbers
