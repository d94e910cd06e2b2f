"""``at.c += operand`` on containers from outside: Python asks operand and container in an order of its own.

A law over containers, operators and operands: what a place holds afterwards, and of which kind; which object it is;
or which error it is. The same for what is assigned to an item or a part.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.core.errors import TraceError


class Reflected:
    """It knows what to do with what stands left of it, or does not."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __radd__(self, other: Any) -> Any:
        return self.result

    def __iter__(self) -> Iterator[int]:
        return iter((7, 8))


CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2, 3],
    "deque": lambda: deque([1, 2, 3]),
    "short deque": lambda: deque([1, 2, 3], 3),
    "set": lambda: {1, 2, 3},
    "dict": lambda: {1: 2, 3: 4},
    "ordered": lambda: OrderedDict({1: 2, 3: 4}),
    "counter": lambda: Counter({1: 2, 3: 4}),
}
OPERANDS = (
    "[1, 5]", "(1, 5)", "{1, 5}", "frozenset([1, 5])", "{1: 5, 6: 7}", "{1: 5}.keys()", "{1: 5}.items()",
    "iter([1, 5])", "(i for i in (1, 5))", "range(2)", "'ab'", "2", "0", "True", "1.5", "None", "deque([1])",
    "Counter([1, 1])", "np.array([1, 2, 3])", "np.int64(2)", "np.float64(2)", "Reflected(5)",
    "Reflected(NotImplemented)", "x", "x.reshape(1)", "x.ndim + 2", "[x.ndim]", "{x.ndim + 1}", "at.other", "at.c",
)  # fmt: skip
ASSIGNED = ("iter([1, 5])", "{1: 5}.keys()", "[1, 5]", "(1, 5)", "'ab'", "{1}", "np.arange(2)", "5", "at.other")


def _told(value: Any) -> Any:
    if isinstance(value, Iterator):
        return type(value).__name__
    if isinstance(value, np.ndarray | aj.Tensor):
        return type(value).__name__, value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, _told(item)) for key, item in value.items()]
    if isinstance(value, list | deque | tuple):
        return type(value).__name__, list(map(_told, value))
    return type(value).__name__, value


def _outcomes(container: str, statement: str, jit: Callable[[Any], Any]) -> list[Any]:
    at = SimpleNamespace(c=CONTAINERS[container](), other=CONTAINERS[container]())
    first, found, names = at.c, [], {**globals(), "at": at}
    exec(f"def step(x):\n    {statement}\n    return x * 2", names)
    step = jit(names["step"])
    for k in range(3):
        try:
            found.append(step(aj.tensor(float(k))).item())
        except Exception as error:
            return [*found, type(error)]
        found.append((at.c is first, at.c is at.other, _told(at.c), _told(first), _told(at.other)))
    return found


@pytest.mark.parametrize("operator", ["+=", "*=", "|=", "&=", "-=", "^="])
@pytest.mark.parametrize("container", CONTAINERS)
def test_operators_in_place_are_pythons(container: str, operator: str) -> None:
    for operand in OPERANDS:
        statement = f"at.c {operator} {operand}"
        assert _outcomes(container, statement, aj.jit) == _outcomes(container, statement, lambda f: f), statement


@pytest.mark.parametrize("container", CONTAINERS)
def test_what_is_assigned_to_an_item_is_stored_as_it_is(container: str) -> None:
    for place in ("0", "-1", "1:2", "::2", "1"):
        for value in ASSIGNED:
            statement = f"at.c[{place}] = {value}"
            found = _outcomes(container, statement, aj.jit)
            if found[0] is TraceError:
                assert value in ASSIGNED[:2], statement  # nothing can make them again at every call
            else:
                assert found == _outcomes(container, statement, lambda f: f), statement
