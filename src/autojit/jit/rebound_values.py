"""What places hold on its way into a step, as its arguments, and out of it, as its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autojit.jit.argument_nests import reaches
from autojit.jit.guards import Guard, may_be_changed
from autojit.jit.line_by_line import ChangedArguments
from autojit.jit.numpy_arrays import TracedArray, scalar_in
from autojit.jit.open_numbers import number_kind
from autojit.jit.places import Location
from autojit.jit.pytree import TreeSpec, flatten
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, wrap

if TYPE_CHECKING:
    from autojit.jit.observer import Observer


class Number(NamedTuple):
    """A number on its way into a step."""

    tensor: Any


class Count(NamedTuple):
    """A number that is not negative on its way into a step, as counters are: the step is for such only."""

    tensor: Any


class Scalar(NamedTuple):
    """A scalar of NumPy's on its way into a step."""

    array: Any


class Remade(NamedTuple):
    """A parameter on its way out of a step: its class, and what it is made of."""

    kind: type
    requires_grad: bool
    value: Any


class Refilled(NamedTuple):
    """What a place is given whose list or dictionary has been changed before, and what that holds from then on."""

    value: Any
    contents: Any


class Untouched:
    """Stands for a tensor, list, dictionary or record that a place holds as before."""


UNTOUCHED = Untouched()


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A nest of tuples, lists and dictionaries with other leaves; where these are the same, the very same nest."""
    kind = type(value)
    if kind is tuple or kind is list:
        items = [mapped(item, change) for item in value]
        return value if all(map(is_, items, value)) else kind(items)
    if kind is dict:
        table = {key: mapped(item, change) for key, item in value.items()}
        return value if all(map(is_, table.values(), value.values())) else table
    return change(value)


def entering(value: Any) -> Any:
    """A leaf of what a place holds, as an argument of the step."""
    if number_kind(value) is None:
        return value
    if isinstance(value, np.generic):
        return Scalar(np.array(value))
    number = wrap(np.array(value, np.int64 if isinstance(value, int) else np.float64))
    return Count(number) if value >= 0 else Number(number)


def entered_value(value: Any) -> Any:
    """Such an argument, as the function finds it."""
    if type(value) is Scalar:
        return scalar_in(value.array)
    if type(value) not in (Number, Count):
        return value
    trace: Any = state.trace
    if trace is not None and value.tensor._array is None:
        trace.number_inputs.add(value.tensor._value)
    found = value.tensor.item()
    return found.within(0.0, found.span.high) if type(value) is Count and isinstance(found, TracedNumber) else found


def left_in(observer: Observer, value: object, given: Any, entered: tuple[Sequence[Any], TreeSpec]) -> Any:
    """What a place is given that holds ``value`` at the end; it held ``given``, which consisted of ``entered``."""
    if value is given and isinstance(value, Tensor):
        return UNTOUCHED
    leaves, tree = flatten(given)
    is_changed = tree != entered[1] or not all(map(is_, leaves, entered[0]))
    is_copy = observer.nests.is_unnamed(given)
    if is_changed and value is not given and is_copy and type(given) in (list, dict):
        return Refilled(_leaving(value, given), type(given)(given))
    if is_changed and state.trace is not None:
        raise ChangedArguments
    if value is not given or not is_copy:
        return _leaving(value, given)
    return value if is_changed else UNTOUCHED


def alone_in(location: Location, others: Sequence[Location], observer: Observer) -> Guard:
    """A guard that the list or dictionary that a place holds is in no other place of which the step knows.

    The step changes it after it has read the others.

    Raises:
        ChangedArguments: it is in another one.
    """
    tables = [guard for guard in observer.guards if type(guard.expected) is dict]
    known = [guard for guard in observer.guards if may_be_changed(guard.expected)]

    def is_elsewhere() -> bool:
        held = location.read()
        rest: list[Location | Guard] = [*(other for other in others if other is not location), *known]
        return any(reaches(p.read(), (id(held),)) for p in rest) or any(guard.read() is held for guard in tables)

    if state.trace is not None and is_elsewhere():
        raise ChangedArguments
    return Guard(f"whether {location.name}, which the step changes, is in other places", is_elsewhere, False)


def _leaving(value: object, given: object) -> Any:
    is_plain = value is given or type(value) in (Tensor, TracedArray)
    if isinstance(value, Tensor) and value._array is None and not is_plain:
        return Remade(type(value), value._requires_grad, value.detach())
    return value
