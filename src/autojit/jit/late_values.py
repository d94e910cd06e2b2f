"""Late values: texts of numbers that a step computes, made after every run and handed to a deferred call.

``print(f"{loss.item():.3f}")`` shows what every run has computed, and nothing of the step hangs on the digits. A
``Late`` is a call that is made when the numbers are there: a format, a ``round``, the joining of parts. It is no text
itself and never met by users' code: instrumented code makes one only where the very next thing that happens to it is a
call (``consumers.py``), and a call that is not deferred is given the text of this capture instead, as before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from autojit.core.errors import TraceError
from autojit.core.sizes import is_symbolic
from autojit.core.source import here
from autojit.jit.places import is_a
from autojit.jit.pytree import flatten, register
from autojit.jit.traced_number import TracedNumber
from autojit.tensor.tensor import Tensor

KNOWN = (str, int, float, bool, complex, bytes, type(None))
"""What a late value may be made of besides numbers and tensors of the step: it cannot change until then."""


class Late:
    """``function(*args)``, to be called when the numbers of the step among ``args`` are known."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.function = function
        self.args = tuple(args)

    def now(self, of_types: bool = False) -> Any:
        """The value that it has in this capture, which from here on holds for these numbers only.

        ``of_types``: for the message of an error, where tensors are told by their types.
        """
        is_number = self.function is float or (self.function is formatted and bool(self.args[2]))
        return self.function(*[_now(argument, is_number, of_types) for argument in self.args])


register(Late, lambda late: (late.args, (late.function,)), lambda parts, rest: rest[0](*parts))


def is_of_step(value: Any) -> bool:
    """Whether a value is known when the step has run: a number or a tensor of its, or late itself."""
    return type(value) is Late or is_a(value, TracedNumber) or (is_a(value, Tensor) and value._array is None)


def late(function: Callable[..., Any], args: Sequence[Any]) -> Late | None:
    """The call made late; None where it can be made now, or has to be: an argument could change until then."""
    leaves, _ = flatten(list(args))
    of_step = [leaf for leaf in leaves if is_of_step(leaf)]
    if not of_step or any(type(leaf) not in KNOWN for leaf in leaves if not is_of_step(leaf)):
        return None
    return Late(function, args)


def of_digits(*args: Any, **options: Any) -> str:
    """``json.dumps`` for the numbers of this capture: code in C takes none that are not known."""
    args, options = with_digits((args, options))
    return json.dumps(*args, **options)


def with_digits(arguments: Any) -> Any:
    """Arguments with the digits of numbers and sizes that change from call to call, which are fixed then."""
    leaves, tree = flatten(arguments)
    return tree.unflatten([_digits(leaf) for leaf in leaves])


def settle(error: Exception) -> None:
    """Let an error that leaves a capture hold digits: numbers and sizes of the step are none when it is over."""
    if any(_digits(leaf) is not leaf for leaf in flatten(error.args)[0]):
        error.args = with_digits(error.args)


def _digits(value: Any) -> Any:
    return value.concrete() if is_a(value, TracedNumber) else int(value) if is_symbolic(value) else value


def formatted(value: Any, conversion: int, form: str) -> str:
    """What an f-string of a user's puts in the place of ``{value!conversion:form}``."""
    value = int(value) if is_symbolic(value) else value
    if conversion:
        value = _CONVERSIONS[conversion](value)
    return format(value, form)


_CONVERSIONS: dict[int, Callable[[Any], str]] = {1: str, 2: repr, 3: ascii}


def joined(*parts: str) -> str:
    """The parts of an f-string one behind the other."""
    return "".join(parts)


def _now(value: Any, is_number: bool, of_types: bool) -> Any:
    if type(value) is Late:
        return value.now(of_types)
    if type(value) in (tuple, list):
        return type(value)([_now(part, is_number, of_types) for part in value])
    if type(value) is dict:
        return {key: _now(part, is_number, of_types) for key, part in value.items()}
    if is_a(value, Tensor) and value._array is None and not of_types:
        if not is_number or value.numel() != 1:
            raise TraceError(
                "jit: the text of a tensor of the step, which is not known while the step is captured",
                {"tensor": value, "at": here()},
                "print or log the text itself, which is done at every call, or format t.item()",
            )
        value = value.item()
    return value.concrete() if is_a(value, TracedNumber) else value


__all__ = ["Late", "formatted", "is_of_step", "joined", "late", "settle", "with_digits"]
