"""Parameters that are parts of one vector, as `vector_to_parameters` leaves them.

Law: whatever parts of which vectors parameters show between calls, a step gives and leaves what eager mode does; where
they show the same parts of another vector, it is not captured again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.nn.utils import vector_to_parameters

WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "both": lambda a, b, v: vector_to_parameters(v, [a, b]),
    "swapped": lambda a, b, v: vector_to_parameters(v, [b, a]),
    "one": lambda a, b, v: setattr(a, "data", v[:4].view(2, 2)),
    "another part": lambda a, b, v: setattr(a, "data", v[4:].view(2, 2)),
    "the same part": lambda a, b, v: (setattr(a, "data", v[2:6].view(2, 2)), setattr(b, "data", v[2:6].view(2, 2))),
    "own memory": lambda a, b, v: setattr(a, "data", v[:4].view(2, 2).clone()),
    "transposed": lambda a, b, v: setattr(a, "data", v[:4].view(2, 2).t()),
    "all of it": lambda a, b, v: setattr(a, "data", v[:4].clone().view(2, 2)),
    "a detached view": lambda a, b, v: setattr(b, "data", v.detach()[3:7].view(2, 2).detach()),
}


def reading(a: Any, b: Any, x: Any) -> Any:
    loss = (a @ x + b).square().sum()
    return loss.detach(), *aj.autograd.grad(loss, [a, b])


def writing(a: Any, b: Any, x: Any) -> Any:
    found = reading(a, b, x)
    with aj.no_grad():
        a -= 0.1 * found[1]
        b -= 0.1 * found[2]
    return found


def told(jit: Callable[[Any], Any], kind: Callable[..., Any], ways: list[str]) -> tuple[list[Any], Any]:
    a, b = (aj.nn.Parameter(aj.arange(4.0).reshape(2, 2) + k) for k in (1, 2))
    step = jit(lambda x: kind(a, b, x))
    found: list[Any] = []
    for k, way in enumerate(ways):
        vector = aj.arange(8.0) / 8 + k
        WAYS[way](a, b, vector)
        for _ in range(2):
            found.append([t.tolist() for t in (*step(aj.ones(2, 2) * 0.1), a, b, vector)])
    return found, step


@pytest.mark.parametrize("kind", [reading, writing])
def test_steps_follow_parameters_to_parts_of_vectors(kind: Callable[..., Any]) -> None:
    ways = random.Random(0).sample([*WAYS], len(WAYS))
    agree(kind, [*ways, "both", "both", "one", "one"])


def agree(kind: Callable[..., Any], ways: list[str]) -> Any:
    expected, (found, step) = told(lambda f: f, kind, ways)[0], told(aj.jit, kind, ways)
    for one, other in zip(expected, found, strict=True):
        for x, y in zip(one, other, strict=True):
            aj.testing.assert_close(aj.tensor(x), aj.tensor(y))
    return step


def test_the_same_parts_of_other_vectors_cost_no_captures() -> None:
    step = agree(reading, ["both"] * 8)
    assert step.stats()["captures"] == 1, step.explain()
