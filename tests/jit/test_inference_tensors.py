"""What a step makes in inference mode is an inference tensor, wherever it leaves it: nobody may change it outside."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import autojit as aj


def _seen(found: list[Any], *tensors: Any) -> None:
    for t in tensors:
        found.append(t.is_inference())
        try:
            t.add_(1)
            found.append("changed")
        except RuntimeError as error:
            found.append(str(error).split("\n", 1)[0])


def _agree(program: Callable[[Callable[..., Any]], list[Any]]) -> list[Any]:
    eager, compiled = program(lambda f: f), program(aj.jit)
    assert compiled == eager
    return eager


def test_results_attributes_and_gradients_of_a_step_in_inference_mode_are_inference_tensors() -> None:
    def program(jit: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        w, holder = aj.ones(3).requires_grad_(), SimpleNamespace(whole=None, part=None)

        @jit
        @aj.inference_mode()
        def step(x: Any) -> Any:
            w.grad = x * 2
            holder.whole, holder.part = x * 3, (x * 4)[1:]
            x.grad = x * 5
            y = x * 6
            return y[:2], y[1:], x.detach(), aj.zeros(3), y

        for k in range(4):
            x = aj.ones(3) * k
            results = step(x)
            _seen(found, *results, w.grad, holder.whole, holder.part, x.grad)
        return found

    assert _agree(program).count(True) == 4 * 8


def test_only_what_was_made_inside_the_mode_is_an_inference_tensor() -> None:
    def program(jit: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        v, w = aj.ones(2).requires_grad_(), aj.ones(3).requires_grad_()
        optimizer = aj.optim.Adam([v], lr=0.1)

        @jit
        def step(x: Any) -> Any:
            with aj.inference_mode():
                inside = x * 2
                w.grad = inside
            outside = x * 2
            v.grad = aj.ones(2) * outside.sum().detach()
            optimizer.step()
            return inside, outside

        for k in range(4):
            _seen(found, *step(aj.ones(3) * k), w.grad, v.grad, optimizer.state[v]["exp_avg"])
        return found

    assert _agree(program).count(False) == 4 * 3


def test_a_gradient_of_inference_mode_is_refused_by_a_later_step_outside_it() -> None:
    def program(jit: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        w = aj.ones(3).requires_grad_()
        optimizer = aj.optim.SGD([w], lr=0.1)

        @jit
        def step(x: Any) -> None:
            optimizer.zero_grad(set_to_none=False)
            w.grad = x * 2

        for inference in (True, True, False, True):
            try:
                with aj.inference_mode(inference):
                    step(aj.ones(3))
                found.append("no error")
            except RuntimeError as error:
                found.append(str(error).split("\n", 1)[0])
        return found

    assert len(set(_agree(program))) == 2
