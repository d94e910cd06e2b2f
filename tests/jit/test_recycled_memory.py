"""Memory that a step writes again: who reads, keeps, replaces or swaps gradients sees what eager execution gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

Wrap = Callable[[Callable[..., Any]], Any]
LEAVES = 3


def _plain(function: Any) -> Any:
    return function


def _in_step(rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Random operations on gradients, for the step or for what happens between two calls."""
    kinds = ["backward", "backward", "clear", "replace", "add in place", "swap", "share", "move", "keep", "flip"]
    return [
        (str(rng.choice(kinds)), int(rng.integers(LEAVES)), int(rng.integers(LEAVES)), float(rng.integers(1, 4)))
        for _ in range(int(rng.integers(1, 5)))
    ]


def _apply(operation: tuple[Any, ...], leaves: list[aj.Tensor], x: aj.Tensor, kept: list[Any]) -> None:
    kind, i, j, number = operation
    a, b = leaves[i], leaves[j]
    if kind == "backward":
        (a * x * number + b * x.flip(0)).sum().backward()
    elif kind == "clear":
        a.grad = None
    elif kind == "swap":
        a.grad, b.grad = b.grad, a.grad
    elif kind == "move":
        a.grad, b.grad = b.grad, None
    elif kind == "share":
        a.grad = b.grad
    elif a.grad is None:
        return
    elif kind == "replace":
        a.grad = a.grad * 0.5 + x * number
    elif kind == "flip":
        a.grad = a.grad.flip(0)  # each element is read after another one was written, if the two share memory
    elif kind == "add in place":
        a.grad.add_(x * number)
    else:
        kept.append(a.grad)


def _sharing(tensors: list[aj.Tensor | None]) -> list[int]:
    """For every tensor the first that is the same object."""
    return [next(k for k, other in enumerate(tensors) if other is t) for t in tensors]


def _run(seed: int, wrap: Wrap) -> list[Any]:
    rng = np.random.default_rng(seed)
    inside, calls = _in_step(rng), int(rng.integers(4, 8))
    between = [_in_step(rng) if rng.random() < 0.5 else [] for _ in range(calls)]
    leaves = [aj.tensor(rng.standard_normal(4), requires_grad=True) for _ in range(LEAVES)]
    returns = bool(rng.random() < 0.3)

    def function(x: aj.Tensor) -> Any:
        results: list[Any] = []
        for operation in inside:
            _apply(operation, leaves, x, results)
        return (x.sum(), *results) if returns else x.sum()

    step, held, seen = wrap(function), [], []
    for k in range(calls):
        found = step(aj.arange(4, dtype=aj.float64) + k)
        held += [found] if isinstance(found, aj.Tensor) else found
        for operation in between[k]:
            _apply(operation, leaves, aj.ones(4, dtype=aj.float64) * k, held)
        if rng.random() < 0.4 or k == calls - 1:  # whoever looks at a gradient changes what the step may do next
            grads = [leaf.grad for leaf in leaves]
            seen.append([None if g is None else g.tolist() for g in grads])
            seen.append(_sharing(grads))
        seen.append([t.tolist() for t in held])
    return seen


@pytest.mark.parametrize("seed", range(60))
def test_gradients_read_replaced_swapped_and_kept_are_as_in_eager_mode(seed: int) -> None:
    assert _run(seed, aj.jit) == _run(seed, _plain)


def _thrown_away(wrap: Wrap, looks: bool) -> Any:
    w = aj.nn.Parameter(aj.ones(2))
    optimizer = aj.optim.SGD([w], lr=0.0)

    def function(x: aj.Tensor) -> aj.Tensor:
        (w * x).sum().backward()
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        return (w * x).sum().detach()

    step, seen = wrap(function), []
    for _ in range(6):
        step(aj.ones(2))
        if looks:
            seen.append(w.grad.tolist())
    return step, seen, w.grad.tolist()


@pytest.mark.parametrize("looks", [False, True])
def test_gradients_of_a_pass_that_was_thrown_away_do_not_come_back(looks: bool) -> None:
    step, seen, last = _thrown_away(aj.jit, looks)
    assert (seen, last) == _thrown_away(_plain, looks)[1:]
    assert last == [1, 1]
    if not looks:
        assert step.stats()["native_calls"] >= 3, step.explain()


def test_a_gradient_that_is_a_result_is_the_same_tensor() -> None:
    w = aj.ones(3, requires_grad=True)

    @aj.jit
    def step(x: aj.Tensor) -> Any:
        w.grad = None
        (w * w * x).sum().backward()
        return w.grad

    found = [step(aj.ones(3) * k) for k in range(5)]
    assert w.grad is found[-1]
    found[-1].mul_(2)
    assert w.grad.tolist() == [16, 16, 16]
    assert [t.tolist()[0] for t in found] == [0, 2, 4, 6, 16]
    assert step.stats()["native_calls"] >= 3, step.explain()
