"""A leaf and a tensor made of it are arguments of one step, which looks at gradients, keeps, replaces and clears them
between its backward passes: programs put together at random are as in eager mode, call after call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from tests.jit.agreement import check_equal, plain

MADE: dict[str, Callable[[Any], Any]] = {
    "itself": lambda w: w,
    "a view": lambda w: w.view(3),
    "a part": lambda w: w[:2],
    "detached": lambda w: w.detach(),
    "a copy": lambda w: w.clone(),
    "a multiple": lambda w: w * 2,
    "a square": lambda w: w * w,
    "a number": lambda w: w.sum(),
}
STATEMENTS = """
b.sum().backward(retain_graph=True)
a.sum().backward()
(a.sum() * b.sum()).backward(retain_graph=True)
(b * 1).sum().backward(retain_graph=True)
(b.detach() * a.sum()).sum().backward()
a.grad = None
del a.grad
a.grad = a.detach() * 3
if a.grad is not None: a.grad.zero_()
found.append(a.grad)
found.append(None if a.grad is None else a.grad * 2)
found.append(b.grad)
found.append((b * 2).sum())
b.retain_grad()
optimizer.zero_grad()
optimizer.step()
a.requires_grad_(False).requires_grad_(True)
""".strip().splitlines()


def function_of(statements: list[str], first: str) -> Callable[..., Any]:
    lines = ["def step(a, b, optimizer):" if first == "a" else "def step(b, a, optimizer):", "found = []", *statements]
    scope: dict[str, Any] = {}
    exec("\n    ".join([*lines, "return found"]), scope)
    found: Callable[..., Any] = scope["step"]
    return found


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("seed", range(80))
def test_a_leaf_and_what_is_made_of_it_are_arguments_of_one_step(seed: int) -> None:
    draw = random.Random(seed)
    make = MADE[draw.choice(list(MADE))]
    statements = [draw.choice(STATEMENTS) for _ in range(draw.randint(1, 5))]
    first, is_given = draw.choice("ab"), draw.random() < 0.5

    def seen(jit: Callable[..., Any]) -> list[Any]:
        leaf = aj.tensor([1.0, 2.0, 3.0], dtype=aj.float64, requires_grad=True)
        optimizer = aj.optim.SGD([leaf], lr=0.1)
        step = jit(function_of(statements, first))
        found: list[Any] = []
        for call in range(4):
            made = make(leaf)
            if is_given and call != 2:
                leaf.grad = aj.full((3,), 7.0, dtype=aj.float64)
            try:
                result = step(*((leaf, made) if first == "a" else (made, leaf)), optimizer)
            except RuntimeError as error:
                return [*found, str(error).split("\n", 1)[0][:40]]
            found.append([plain(result), plain(leaf), plain(made) if made.is_leaf else None])
        return found

    check_equal(seen(lambda f: f), seen(aj.jit), f"{statements}: ")
