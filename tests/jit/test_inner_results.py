"""Results of a compiled function from which it has computed others: whoever looks at one sees what eager mode shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj


def chain(x: Any, w: Any) -> Any:
    inner = (x @ w).tanh()
    middle = inner.exp() + inner
    return middle.sum(1), inner, middle


def views(x: Any, w: Any) -> Any:
    inner = x @ w
    return inner.t() * 2, inner, inner[0]


def changed(x: Any, w: Any) -> Any:
    inner = (x @ w).clone()
    inner[:, 0] = 0
    return inner.sin(), inner, inner * 3


def apart(x: Any, w: Any) -> Any:
    inner = x @ w
    return inner.sin(), inner.cos(), inner.exp()


FUNCTIONS = {"chain": chain, "views": views, "changed": changed, "apart": apart}


def retained(outputs: Any, seen: list[Any]) -> None:
    outputs[1].retain_grad()


def watched(outputs: Any, seen: list[Any]) -> None:
    outputs[1].register_hook(lambda g: seen.append(g.clone()))


def turned(outputs: Any, seen: list[Any]) -> None:
    outputs[1].register_hook(lambda g: g * 2 + 1)


def looked_at_twice(outputs: Any, seen: list[Any]) -> None:
    outputs[2].register_hook(lambda g: seen.append(g.clone()))
    outputs[1].retain_grad()


def turned_each(outputs: Any, seen: list[Any]) -> None:
    """In which order hooks of results run that are not computed from each other is left open."""
    for t in outputs:
        of_one: list[Any] = []
        seen.append(of_one)
        t.register_hook(lambda g, of_one=of_one: (of_one.append(g.clone()), g * 3 - 1)[1])
    outputs[1].retain_grad()


LOOKS = {look.__name__: look for look in (retained, watched, turned, looked_at_twice, turned_each)}
LOSSES: dict[str, Callable[[Any], Any]] = {
    "the first": lambda o: o[0].square().sum(),
    "two": lambda o: o[0].sum() + (o[1] * o[1]).sum(),
    "all": lambda o: sum(t.square().sum() for t in o),
    "the inner one": lambda o: o[1].square().sum(),
    "the last": lambda o: o[2].square().sum(),
}


def operands() -> tuple[aj.Tensor, aj.Tensor]:
    x = aj.linspace(-1, 1, 6, dtype=aj.float64).reshape(2, 3).requires_grad_()
    return x, aj.linspace(0.5, 2, 12, dtype=aj.float64).reshape(3, 4).requires_grad_()


def agree(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or aj.allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hooks_and_retained_gradients_see_what_comes_from_inside(name: str, look: str, loss: str) -> None:
    def gradients(function: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            x, w = operands()
            outputs = function(x, w)
            seen: list[Any] = []
            LOOKS[look](outputs, seen)
            LOSSES[loss](outputs).backward()
            seen = [g for part in seen for g in (part if isinstance(part, list) else [part])]
            found += [x.grad, w.grad, *seen, *[t.grad for t in outputs if t.retains_grad]]
        return found

    agree(gradients(aj.jit(FUNCTIONS[name])), gradients(FUNCTIONS[name]))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_by_a_result_are_those_of_eager_mode(name: str, loss: str) -> None:
    def gradients(function: Callable[..., Any]) -> list[Any]:
        found: list[Any] = []
        for _ in range(3):
            x, w = operands()
            outputs = function(x, w)
            total = LOSSES[loss](outputs)
            chosen = [outputs[1], w, outputs[2]]
            first = aj.autograd.grad(total, chosen, create_graph=True, allow_unused=True)
            found += first
            found += aj.autograd.grad(total, [outputs[1]], retain_graph=True, allow_unused=True)
            second = sum(g.square().sum() for g in first if g is not None)
            found += aj.autograd.grad(second, [x, w], retain_graph=True, allow_unused=True)
            total.backward(inputs=[outputs[1], w])
            found += [outputs[1].grad, w.grad, x.grad]
        return found

    agree(gradients(aj.jit(FUNCTIONS[name])), gradients(FUNCTIONS[name]))


def test_a_hook_is_not_called_where_nothing_arrives() -> None:
    x, w = operands()
    outputs = aj.jit(apart)(x, w)
    seen: list[Any] = []
    outputs[1].register_hook(seen.append)
    outputs[0].sum().backward()
    assert seen == []
