"""A step that leaves a hook on an argument leaves it, one more at every call, as the function does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj


def _unused(x: aj.Tensor, y: aj.Tensor) -> Any:
    x.register_hook(lambda g: g * 2)
    return y * 2


def _used(x: aj.Tensor, y: aj.Tensor) -> Any:
    x.register_hook(lambda g: g * 2)
    return (x * y).sum()


def _differentiated(x: aj.Tensor, y: aj.Tensor) -> Any:
    x.register_hook(lambda g: g * 2)
    return aj.autograd.grad((x * y).sum(), [x])


def _accumulated(x: aj.Tensor, y: aj.Tensor) -> Any:
    x.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(2), None)[1])
    (x * y).sum().backward()


def _removed(x: aj.Tensor, y: aj.Tensor) -> Any:
    handle = x.register_hook(lambda g: g * 2)
    (found,) = aj.autograd.grad((x * y).sum(), [x])
    handle.remove()
    return found


STEPS = {f.__name__.strip("_"): f for f in (_unused, _used, _differentiated, _accumulated, _removed)}


def _gradients(step: Callable[..., Any], is_leaf: bool) -> list[Any]:
    w, found = aj.ones(3, requires_grad=True), []
    for _ in range(3):
        x = w if is_leaf else w * 1
        result = step(x, aj.ones(3))
        (x * 1).sum().backward()
        assert w.grad is not None
        found.append((w.grad.tolist(), [t.tolist() for t in result] if isinstance(result, tuple) else None))
        w.grad = None
    return found


@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "result"])
@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_those_of_the_function(name: str, is_leaf: bool) -> None:
    if name == "accumulated" and not is_leaf:
        return  # refused: only leaves have such hooks
    assert _gradients(aj.jit(STEPS[name]), is_leaf) == _gradients(STEPS[name], is_leaf)


def test_a_hook_that_is_removed_is_compiled() -> None:
    step = aj.jit(_removed)
    _gradients(step, True)
    assert step.stats()["fallbacks"] == 0


def test_a_result_that_retains_its_gradient_gets_it() -> None:
    def step(x: aj.Tensor) -> aj.Tensor:
        y = x * 2
        y.retain_grad()
        return y

    for run in (step, aj.jit(step)):
        for _ in range(3):
            x = aj.ones(3, requires_grad=True)
            y = run(x)
            (y * y).sum().backward()
            assert y.retains_grad
            assert y.grad is not None
            assert y.grad.tolist() == [4.0, 4.0, 4.0]
