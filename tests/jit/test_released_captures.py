"""When a jitted function goes, everything goes that its captures held: whatever was asked of its results."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn

F = nn.functional
Step = Callable[[Any], Any]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(aj.ones(3, 3))

    def forward(self, x: Any) -> Any:
        return (x @ self.weight).tanh()


def closure(model: Scaled) -> Step:
    weight = model.weight
    return aj.jit(lambda x: (x @ weight).tanh())


def closure_of_module(model: Scaled) -> Step:
    return aj.jit(lambda x: model(x) * 2)


def with_a_loop(model: Scaled) -> Step:
    def step(x: Any) -> Any:
        return aj.scan(lambda h, _: ((h @ model.weight).tanh(), h), x, aj.ones(4))[0]

    return aj.jit(step)


def with_a_branch(model: Scaled) -> Step:
    return aj.jit(lambda x: aj.cond(x.sum() > 0, lambda y: y @ model.weight, lambda y: y - model.weight[0], (x,)))


def with_several_results(model: Scaled) -> Step:
    return aj.jit(lambda x: (x @ model.weight, model(x)))


def changed_in_place(model: Scaled) -> Step:
    memory = aj.zeros(2, 3)

    def step(x: Any) -> Any:
        memory.add_(x.detach())
        return model(x + memory)

    return aj.jit(step)


def with_a_decision(model: Scaled) -> Step:
    return aj.jit(lambda x: model(x) if x.sum() > 0 else -model(x))


def bound_method(model: Scaled) -> Step:
    return aj.jit(model.forward)


MADE: list[Callable[[Scaled], Step]] = [
    closure, closure_of_module, aj.jit, bound_method, with_a_loop, with_a_branch, with_several_results,
    changed_in_place, with_a_decision,
]  # fmt: skip


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def nothing(step: Step, x: Any, model: Scaled) -> None:
    step(x)


def backward(step: Step, x: Any, model: Scaled) -> None:
    first(step(x)).sum().backward()


def second_order(step: Step, x: Any, model: Scaled) -> None:
    leaf = x if x.requires_grad else model.weight
    (slope,) = aj.autograd.grad(first(step(x)).sum(), (leaf,), create_graph=True)
    slope.square().sum().backward()


def backward_inside(step: Step, x: Any, model: Scaled) -> None:
    def both(given: Any) -> Any:
        loss = first(step(given)).sum()
        loss.backward()
        return loss.detach()

    aj.jit(both)(x)


def saved(step: Step, x: Any, model: Scaled) -> None:
    node = first(step(x)).grad_fn
    dir(node)
    str(node), getattr(node, "_saved_self", None)


def forward_mode(step: Step, x: Any, model: Scaled) -> None:
    aj.func.jvp(lambda given: first(step(given)), (x.detach(),), (aj.ones(2, 3),))


def without_gradients(step: Step, x: Any, model: Scaled) -> None:
    with aj.no_grad():
        step(x)


USES = [nothing, backward, second_order, backward_inside, saved, forward_mode, without_gradients]


def references(make: Callable[[Scaled], Step], use: Callable[..., None], wanted: str) -> list[weakref.ref[Any]]:
    model = Scaled()
    model.weight.requires_grad_("weight" in wanted)
    step = make(model)
    x = aj.ones(2, 3, requires_grad="argument" in wanted)
    use(step, x, model)
    use(step, x, model)
    return [weakref.ref(each) for each in (step, model, model.weight, x)]


@pytest.mark.parametrize("wanted", ["weight", "argument", "weight and argument"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("make", MADE)
def test_what_a_step_held_goes_with_it(make: Callable[[Scaled], Step], use: Callable[..., None], wanted: str) -> None:
    seen = references(make, use, wanted)
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)


@pytest.mark.parametrize("make", MADE)
def test_a_result_keeps_its_history_and_nothing_after_it(make: Callable[[Scaled], Step]) -> None:
    model = Scaled()
    step = make(model)
    result = first(step(aj.ones(2, 3)))
    seen = [weakref.ref(model), weakref.ref(model.weight), weakref.ref(step)]
    del model, step
    gc.collect()
    result.sum().backward()
    weight = seen[1]()
    assert weight is not None
    assert weight.grad is not None
    del result, weight
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)
