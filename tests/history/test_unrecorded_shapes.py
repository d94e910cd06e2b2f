"""A shape that a tensor gets under ``no_grad`` is not in its history: gradients of another shape are torch's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

MAKERS: list[Callable[[Any], Any]] = [
    lambda x: x * 2,
    lambda x: x @ aj.ones(4, 4),
    lambda x: x.softmax(-1),
    lambda x: x.sum(0, keepdim=True),
]


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("maker", range(len(MAKERS)))
def test_a_gradient_of_the_new_shape_is_refused(maker: int, jit: Callable[[Any], Any]) -> None:
    @jit
    def step(x: Any) -> None:
        y = MAKERS[maker](x)
        with aj.no_grad():
            y.t_()
        y.sum().backward()

    with pytest.raises(RuntimeError, match=r"invalid gradient at index 0 - got .* but expected shape compatible with"):
        step(aj.ones(3, 4).requires_grad_())


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_gradient_that_the_old_shape_expands_to_is_summed(jit: Callable[[Any], Any]) -> None:
    @jit
    def step(x: Any) -> Any:
        y = x * 2
        with aj.no_grad():
            y.unsqueeze_(0)
        (y * aj.ones(2, 1, 1)).sum().backward()
        return x.grad

    assert step(aj.ones(3, 4).requires_grad_()).tolist() == [[4.0] * 4] * 3


@pytest.mark.parametrize("jit", [lambda f: f, aj.jit], ids=["eager", "compiled"])
def test_a_shape_that_was_taken_back_is_the_recorded_one(jit: Callable[[Any], Any]) -> None:
    @jit
    def step(x: Any) -> Any:
        y = x * 2
        with aj.no_grad():
            y.t_().t_()
        y.sum().backward()
        return x.grad

    assert step(aj.ones(3, 4).requires_grad_()).tolist() == [[2.0] * 4] * 3


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("outer", [True, False])
def test_a_step_gives_an_argument_its_shape_as_eager_mode_does(is_recorded: bool, outer: bool) -> None:
    def program(jit: Callable[[Any], Any]) -> list[Any]:
        @jit
        def step(x: Any) -> Any:
            with aj.set_grad_enabled(is_recorded):
                x.transpose_(0, 1)
            return x * 2

        found: list[Any] = []
        for wants in (False, True):
            leaf = aj.arange(12.0).reshape(3, 4).requires_grad_(wants)
            x = leaf * 3 if is_recorded else leaf
            with aj.set_grad_enabled(outer):
                result = step(x)
            found.append((x.tolist(), x.requires_grad, x._version, result.tolist(), result.requires_grad))
            if x.requires_grad and is_recorded:
                x.square().sum().backward()
                found.append(leaf.grad.tolist())
        return found

    assert program(aj.jit) == program(lambda f: f)
