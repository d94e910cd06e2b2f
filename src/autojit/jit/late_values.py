"""Late values: texts of what a step computes, made after every run and handed to a deferred call.

``print(f"{loss.item():.3f}")`` shows what every run has computed, and nothing of the step depends on the digits. A
``Late`` is a call that is made when the numbers are there: a format, a ``round``, the joining of parts. It is no text
itself and never met by users' code: instrumented code makes one only where the very next thing that happens to it is a
call (``consumers.py``), and a call that is not deferred is given the text of this capture instead, as before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from autojit.core.sizes import is_symbolic
from autojit.dispatch.dispatch import value_of
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten, register
from autojit.jit.spent_results import SpentNode
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.node import Node
from autojit.tensor.size import Size
from autojit.tensor.state import state
from autojit.tensor.tensor import StepGradient, Tensor, alias, wrap, wrap_value

KNOWN = (str, int, float, bool, complex, bytes, type(None))
"""What a late value may be made of besides numbers and tensors of the step: it cannot change until then."""


class Late:
    """``function(*args)``, to be called when the numbers of the step among ``args`` are known."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.function = function
        self.args = tuple(args)

    def now(self) -> Any:
        """The value that it has in this capture: from here on that holds for its numbers only."""
        return self.function(*[at_once(argument) for argument in self.args])


register(Late, lambda late: (late.args, (late.function,)), lambda parts, rest: rest[0](*parts))


class AsItWas:
    """A tensor of a capture as it was when its text was asked for."""

    __slots__ = ("node", "of", "requires_grad", "tensor", "value")

    def __init__(self, t: Tensor) -> None:
        self.of = t
        self.node, self.requires_grad = t._grad_fn, t._requires_grad
        self.value = value_of(t)
        self.tensor = wrap_value(self.value)

    def taken_apart(self) -> tuple[tuple[Tensor], tuple[Any, ...]]:
        """What it is made of at every call: the tensor itself if it is still what it was, or a copy."""
        t = self.of
        if self.node is t._grad_fn and self.requires_grad is t._requires_grad and value_of(t) is self.value:
            return (t,), ()
        return (self.tensor,), (partial(_copy, _class_of(self.of), self.requires_grad, _rest_of(self.node)),)

    def now(self) -> Tensor:
        """The tensor as it was, in this capture."""
        return _copy(_class_of(self.of), self.requires_grad, _rest_of(self.node), self.tensor)


register(AsItWas, AsItWas.taken_apart, lambda parts, rest: rest[0](parts[0]) if rest else parts[0])


def _copy(kind: type[Tensor], requires_grad: bool, node: SpentNode | None, t: Tensor) -> Tensor:
    made = alias(t, kind)
    made._requires_grad, made._grad_fn = requires_grad, node
    return made


def copied_as(t: Tensor) -> Callable[[Tensor], Tensor]:
    """Makes of a tensor with the same elements one of its class; of the history it has what is left of a spent one."""
    return partial(_copy, _class_of(t), t._requires_grad, _rest_of(t._grad_fn))


def _class_of(t: Tensor) -> type[Tensor]:
    return Tensor if isinstance(t, StepGradient) else type(t)


def _rest_of(node: Node | None) -> SpentNode | None:
    return None if node is None else SpentNode(node, ())


def as_it_is(value: Any, outside: Mapping[int, Any]) -> Any:
    """What a call that makes texts is given when it is made later: tensors, and containers of the step, as they are."""
    if is_a(value, Tensor):
        if state.trace is not None:
            return AsItWas(value)
        return copied_as(value)(wrap(value._array.copy()))
    if type(value) in (tuple, list) and id(value) not in outside:
        return type(value)([as_it_is(part, outside) for part in value])
    if type(value) is dict and id(value) not in outside:
        return {key: as_it_is(part, outside) for key, part in value.items()}
    return value


def is_of_step(value: object) -> bool:
    """Whether a value is known when the step has run: a number or a tensor, or late itself."""
    if state.trace is None:
        return False
    return type(value) in (Late, AsItWas) or is_a(value, TracedNumber) or is_a(value, Tensor)


def late(function: Callable[..., Any], args: Sequence[Any], outside: Mapping[int, Any]) -> Late | None:
    """The call made late; None where it can be made now, or has to be: an argument could change until then."""
    leaves, _ = flatten(list(args))
    of_step = [leaf for leaf in leaves if is_of_step(leaf)]
    if not of_step or any(type(leaf) not in KNOWN for leaf in leaves if not is_of_step(leaf)):
        return None
    return Late(function, [as_it_is(argument, outside) for argument in args])


def of_digits(function: Callable[..., Any], *args: object, **options: object) -> Any:
    """A call of what takes no numbers that are not known, for the numbers of this capture."""
    args, options = with_digits((args, options))
    return function(*args, **options)


def power(*args: Any, **options: Any) -> Any:
    """``pow``, which asks the first of three arguments only, and takes digits."""
    return of_digits(pow, *args, **options) if len(args) + len(options) > 2 else pow(*args, **options)


def with_digits(arguments: object) -> Any:
    """Arguments with the digits of numbers and sizes that change from call to call, which are fixed then."""
    leaves, tree = flatten(arguments)
    found = [_digits(leaf) for leaf in leaves]
    is_as_given = all(map(operator.is_, found, leaves))
    return arguments if is_as_given else tree.unflatten(found)


def settle(error: Exception) -> None:
    """Let an error that leaves a capture hold digits: numbers and sizes of the step are none when it is over."""
    if any(_digits(leaf) is not leaf for leaf in flatten(error.args)[0]):
        error.args = with_digits(error.args)


def _digits(value: object) -> Any:
    if type(value) is Size:
        return Size(map(_digits, value)) if any(map(is_symbolic, value)) else value
    return value.concrete() if is_a(value, TracedNumber) else int(value) if is_symbolic(value) else value


def formatted(value: object, conversion: int, form: str) -> str:
    """What an f-string of a user's puts in the place of ``{value!conversion:form}``."""
    leaves, tree = flatten(value)
    if any(map(is_symbolic, leaves)):
        value = tree.unflatten([int(leaf) if is_symbolic(leaf) else leaf for leaf in leaves])
    if conversion:
        value = _CONVERSIONS[conversion](value)
    return format(value, form)


_CONVERSIONS: dict[int, Callable[[Any], str]] = {1: str, 2: repr, 3: ascii}


def joined(*parts: str) -> str:
    """The parts of an f-string one behind the other."""
    return "".join(parts)


def at_once(value: Any) -> Any:
    """The value that a late one, or a number of the step, has in this capture."""
    if type(value) in (Late, AsItWas):
        return value.now()
    if type(value) in (tuple, list):
        return type(value)([at_once(part) for part in value])
    if type(value) is dict:
        return {key: at_once(part) for key, part in value.items()}
    return value.concrete() if is_a(value, TracedNumber) else value
