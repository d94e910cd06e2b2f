"""Gradients and histories that results and arguments show: the same objects, memory and flags as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Wrap = Callable[[Callable[..., Any]], Any]
CALLS = 4


def _seen(t: aj.Tensor | None) -> Any:
    if t is None:
        return None
    return [round(v, 5) for v in t.detach().reshape(-1).tolist()], t.stride(), t.requires_grad, t.is_leaf


def _views_of_a_gradient(jit: Wrap) -> list[Any]:
    w, found = aj.ones(2, 3, requires_grad=True), []

    @jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        w.grad = None
        (w * x).sum().backward()
        assert w.grad is not None
        return w.grad[0], w.grad.detach()

    for k in range(CALLS):
        a, b = step(aj.ones(2, 3) * k)
        a.add_(1)
        found.append([_seen(w.grad), _seen(a), _seen(b), b is w.grad])
    return found


def _gradient_of_an_argument(jit: Wrap) -> list[Any]:
    a, found = aj.ones(3, requires_grad=True), []

    @jit
    def step(a: aj.Tensor, x: aj.Tensor) -> aj.Tensor | None:
        (a * x).sum().backward()
        return a.grad

    for k in range(CALLS):
        grad = step(a, aj.ones(3) * k)
        found.append([_seen(grad), grad is a.grad])
    return found


def _leaf_of_the_step(jit: Wrap) -> list[Any]:
    @jit
    def step(x: aj.Tensor) -> tuple[Any, ...]:
        y = x.detach().clone().requires_grad_()
        (y * y).sum().backward()
        return y, y.grad

    found = []
    for k in range(CALLS):
        y, grad = step(aj.ones(3) * k)
        found.append([_seen(y), _seen(grad), y.grad is grad])
    return found


def _kept_gradient(jit: Wrap) -> list[Any]:
    w = aj.ones(3, requires_grad=True)

    @jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        y = w * x
        y.retain_grad()
        z = (y * y).sum()
        z.backward()
        return y, z

    results = [step(aj.ones(3) * k) for k in range(CALLS)]
    return [[_seen(y), _seen(y.grad), _seen(z)] for y, z in results]


def _argument_with_a_spent_history(jit: Wrap) -> list[Any]:
    w, found = aj.ones(3, requires_grad=True), []

    @jit
    def step(x: aj.Tensor) -> aj.Tensor:
        x.mul_(w)
        (x * w).sum().backward()
        return x

    for k in range(CALLS):
        x = aj.ones(3) * k
        result = step(x)
        found.append([_seen(x), result is x, _seen(w.grad)])
        with pytest.raises(RuntimeError, match="a second time"):
            (x * x).sum().backward()
        w.grad = None
    return found


def _nests_of_spent_results(jit: Wrap) -> list[Any]:
    w, kept, found = aj.ones(3, requires_grad=True), [], []

    @jit
    def step(x: aj.Tensor) -> dict[str, Any]:
        y = (w * x).exp()
        loss = y.sum()
        loss.backward()
        kept.append(loss)
        with aj.no_grad():
            z = y * 2
        return {"loss": loss, "y": y, "n": [loss, loss.detach(), y[0], y.view(3, 1), z]}

    for k in range(CALLS):
        r = step(aj.ones(3) * k)
        found.append([_seen(r["loss"]), _seen(r["y"]), r["n"][0] is r["loss"], *map(_seen, r["n"]), *map(_seen, kept)])
    return found


PROGRAMS = [
    _views_of_a_gradient, _gradient_of_an_argument, _leaf_of_the_step, _kept_gradient, _argument_with_a_spent_history,
    _nests_of_spent_results,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_shown_is_as_in_eager_mode(program: Callable[[Wrap], list[Any]]) -> None:
    assert program(aj.jit) == program(lambda f: f)
