"""What a step makes in inference mode is an inference tensor, wherever it leaves it: nobody may change it outside."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.dispatch.dispatch import apply
from autojit.ir import Op


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


def _samples() -> list[tuple[Op, tuple[Any, ...]]]:
    """A small sample of every op of the registry."""
    found = []
    for cls in Op.registry.load().values():
        if cls.__module__.startswith("autojit.ops.") and hasattr(cls, "samples"):
            samples = [s for dtype in (aj.float64, aj.int64, aj.bool) for s in cls.samples(dtype)]
            small = [(op, arrays) for op, arrays in samples if all(a.size <= 64 for a in arrays)]
            found += small[:1]
    return found


def _inside(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(*args: Any) -> Any:
        with aj.inference_mode():
            return function(*args)

    return step


@pytest.mark.parametrize("entering", [aj.inference_mode(), _inside], ids=["decorator", "inside"])
def test_the_results_of_every_op_are_inference_tensors_with_what_is_made_of_them(entering: Any) -> None:
    """Of ops with several results (sort, qr, scan) as of those with one (seeds 2004794 and 3001325)."""
    samples = _samples()
    for start in range(0, len(samples), 50):
        group = samples[start : start + 50]

        def program(jit: Callable[..., Any], group: Any = group) -> list[Any]:
            def function(*given: Any) -> list[Any]:
                made: list[Any] = []
                rest = iter(given)
                for op, arrays in group:
                    results = apply(op, *[next(rest) for _ in arrays])
                    for t in results if isinstance(results, tuple) else (results,):
                        made += [t, t.data, t.detach(), t[...], t.reshape(-1)]
                return made

            given = [aj.tensor(np.array(a)) for _, arrays in group for a in arrays]
            return [t.is_inference() for t in jit(entering(function))(*given)]

        _agree(program)


def test_what_is_taken_of_an_inference_tensor_outside_the_step_is_one() -> None:
    def program(jit: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        with aj.inference_mode():
            outside = aj.ones(100)

        @jit
        def step() -> Any:
            with aj.inference_mode():
                return outside[1:], outside.detach(), outside.detach()[1:], outside.data[:2], outside.view(10, 10).T

        for _ in range(3):
            _seen(found, *step())
        return found

    assert set(_agree(program)[::2]) == {True}


def test_transforms_make_inference_tensors_in_inference_mode() -> None:
    def program(jit: Callable[..., Any]) -> list[Any]:
        @jit
        @aj.inference_mode()
        def step(x: Any) -> Any:
            found = [aj.func.vmap(lambda row: row.sort())(x), aj.func.jvp(aj.sin, (x,), (x,))]
            pair = aj.autograd.functional.jvp(lambda z: z * 2, x, x)
            return [*found[0], *found[1], *pair]

        return [t.is_inference() for t in step(aj.ones(2, 3))]

    assert True in _agree(program)


@pytest.mark.parametrize("layer", [aj.nn.BatchNorm1d(4), aj.nn.LayerNorm(4), aj.nn.Linear(4, 2)], ids=str)
def test_what_a_layer_keeps_of_inference_mode_is_refused(layer: Any) -> None:
    def program(jit: Callable[..., Any]) -> list[Any]:
        @jit
        def step(x: Any) -> Any:
            with aj.inference_mode():
                x = x * 1
            return layer(x)

        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            step(aj.ones(3, 4))
        return []

    _agree(program)
