"""Derivatives of a step go by what it has read, whatever changes afterwards; and by which arguments are one tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

READ: dict[str, Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = {
    "argument": lambda x, state: x.detach() + 1,
    ".grad": lambda x, state: x.grad + 1,
    "state": lambda x, state: state + 1,
    "all": lambda x, state: x.detach() * x.grad + state.exp(),
}


def add_to(t: aj.Tensor) -> None:
    with aj.no_grad():
        t.mul_(5).add_(1)


@pytest.mark.parametrize("changed", [(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("read", READ)
def test_the_derivative_is_of_what_was_read(read: str, changed: tuple[int, ...]) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        state = aj.tensor([0.5, 0.25])
        w = aj.tensor([2.0, 3.0], requires_grad=True)
        x = aj.tensor([1.0, 1.5], requires_grad=True)

        def step(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
            y = (READ[read](x, state) * w * w).sum()
            for k, t in enumerate((x, x.grad, state)):
                if k in changed:
                    add_to(t)
            return y

        run, seen = wrap(step), []
        for k in range(3):
            x.grad = aj.tensor([7.0, 11.0 + k])
            w.grad = None
            run(x, w).backward()
            seen.append([t.tolist() for t in (w.grad, x, x.grad, state)])
        return seen

    assert _close(run(aj.jit), run(lambda f: f))


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_close, a, b))
    return bool(a == pytest.approx(b, rel=1e-5))


@pytest.mark.parametrize("count", [2, 5, 14])
def test_a_step_of_many_arguments_is_for_those_that_are_one_and_called_natively_for_the_same(count: int) -> None:
    def step(*given: aj.Tensor) -> aj.Tensor:
        return sum((k + 1) * t for k, t in enumerate(given))  # type: ignore[return-value]

    compiled = aj.jit(step)

    def call(pattern: tuple[int, ...], run: Callable[..., Any]) -> list[Any]:
        tensors = [aj.tensor([float(k)]) for k in range(count)]
        given = [tensors[pattern[k] if k < len(pattern) else k] for k in range(count)]
        return [run(*given).tolist(), *(t.tolist() for t in tensors)]

    patterns = [(0, 1), (0, 0), (1, 1)] if count == 2 else [(0, 1, 2), (0, 0, 2), (0, 1, 1), (0, 1, 0), (2, 2, 2)]
    for pattern, turn in itertools.product(patterns, range(2)):
        for _ in range(3):
            before = compiled.stats()["native_calls"]
            assert call(pattern, compiled) == call(pattern, step), (pattern, turn)
        assert compiled.stats()["native_calls"] == before + 1, compiled.explain()


SHAPES = ((2, 3), (3, 2), (6, 4), (4, 6), (1, 24), (24, 1))


@pytest.mark.parametrize("look", ["tolist", "numpy", "items", "repr"])
def test_what_python_sees_of_an_open_size_is_of_this_size(look: str) -> None:
    looks: dict[str, Callable[[aj.Tensor], Any]] = {
        "tolist": lambda x: (x * 0).tolist(),
        "numpy": lambda x: (x * 0).numpy().shape,
        "items": lambda x: [[v.item() for v in row] for row in x * 0],
        "repr": lambda x: str((x * 0).tolist()),
    }

    def step(x: aj.Tensor) -> Any:
        return looks[look](x), x + 1

    compiled = aj.jit(step)
    for shape in (*SHAPES, *SHAPES[::-1]):
        x = aj.zeros(shape)
        assert compiled(x)[0] == step(x)[0], shape
