"""Tensors that are related before a step sees them: views, aliases, results of one another, arguments."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.core.errors import TraceError

NAMES = ["leaf", "matrix leaf", "made", "its view", "its alias", "leaf's alias", "matrix", "transposed", "plain"]
VIEWS = {"its view": "made", "transposed": "matrix"}
OUT: list[Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = [
    lambda x, y: x * y,
    lambda x, y: (x * x * y).sum(),
    lambda x, y: x.detach() * y + x,
    lambda x, y: aj.exp(x - y.detach()),
    lambda x, y: (x / y)[1:],
]
IN_PLACE: list[Callable[[aj.Tensor, aj.Tensor], Any]] = [
    lambda t, other: t.mul_(other.detach() * 0.3),
    lambda t, other: t.add_(other),
    lambda t, other: t.__setitem__(0, other),
    lambda t, other: t.data.mul_(1.1),
    lambda t, other: t.copy_((t * 0.5).clone() + other),
]


def _world() -> dict[str, aj.Tensor]:
    generator = aj.Generator().manual_seed(3)

    def numbers(*shape: int) -> aj.Tensor:
        return aj.rand(*shape, generator=generator, dtype=aj.float64) + 0.5

    leaf, other = numbers(3).requires_grad_(), numbers(3, 2).requires_grad_()
    made, matrix = leaf * 1.5, other * 2.0
    found = [leaf, other, made, made[1:], made.detach(), leaf.detach(), matrix, matrix.t(), numbers(3)]
    return dict(zip(NAMES, found, strict=True))


def _as_three(t: aj.Tensor) -> aj.Tensor:
    if t.ndim == 2:
        return t.sum(1) if t.shape[0] == 3 else t.sum(0)
    return t if t.shape[0] == 3 else aj.cat([t, t[:1]])


class _Program:
    """Lines over the tensors, some of which are arguments; the tensors are new at every call."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.lines: list[tuple[str, int, str, str]] = []
        for _ in range(rng.randint(1, 6)):
            kind, t, u = rng.random(), rng.choice(NAMES), rng.choice(NAMES)
            if kind < 0.6:
                self.lines.append(("out", rng.randrange(len(OUT)), t, u))
            elif kind < 0.8:
                self.lines.append(("in", rng.randrange(len(IN_PLACE)), rng.choice(NAMES[2:]), u))
            elif kind < 0.93:
                self.lines.append(("backward", 0, t, u))
            else:
                self.lines.append(("forget", 0, rng.choice(NAMES[:2]), u))
        self.arguments = rng.sample(NAMES, rng.randint(0, 3))
        self.returned = [name for name in NAMES if rng.random() < 0.12]

    def _body(self, world: dict[str, aj.Tensor]) -> list[aj.Tensor]:
        found = []
        for kind, number, t, u in self.lines:
            first, second = world[t], _as_three(world[u].clone())
            if kind == "out":
                found.append(OUT[number](_as_three(first.clone()), second))
            elif kind == "in":
                with aj.set_grad_enabled(t != "leaf's alias"):
                    IN_PLACE[number](first, second.sum())
            elif kind == "forget":
                first.grad = None
            else:
                loss = (_as_three(first.clone()) * second).sum()
                if loss.requires_grad:
                    loss.backward(retain_graph=True)
        return found

    def run(self, jit: Any) -> list[Any]:
        world = _world()

        @jit
        def step(*arguments: aj.Tensor) -> Any:
            everything = {**world, **dict(zip(self.arguments, arguments, strict=True))}
            return (*self._body(everything), *(everything[name] for name in self.returned))

        seen: list[Any] = []
        for _ in range(3):
            world.update(_world())
            results = step(*(world[name] for name in self.arguments))
            seen += [(t.tolist(), t.requires_grad) for t in results]
            for t in world.values():
                seen.append((t.tolist(), t.requires_grad, t.is_leaf))
                seen.append(None if not t.is_leaf or t.grad is None else t.grad.tolist())
            live = [t for t in results if t.requires_grad]
            if live:
                loss = aj.stack([(k + 1) * (t * t).sum() for k, t in enumerate(live)]).sum()
                targets = [world[name] for name in NAMES if world[name].requires_grad]
                grads = aj.autograd.grad(loss, targets, allow_unused=True)
                shapes = [t.shape for t in targets]
                pairs = zip(grads, shapes, strict=True)
                seen += [np.zeros(shape).tolist() if g is None else g.tolist() for g, shape in pairs]
        return seen


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_agree, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-9, abs=1e-9, nan_ok=True)
    return bool(a == b)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(80))
def test_steps_over_them_give_and_leave_what_eager_mode_does(seed: int) -> None:
    eager = _Program(seed).run(lambda function: function)
    try:
        compiled = _Program(seed).run(aj.jit)
    except TraceError as error:
        assert "detached tensor a history in place" in str(error)
        return
    assert len(eager) == len(compiled)
    for a, b in zip(eager, compiled, strict=True):
        assert _agree(a, b), (a, b)


def _changed_by_its_gradient(p: aj.Tensor) -> None:
    if p.grad is not None:
        with aj.no_grad():
            p.sub_(p.grad * 0.125)


LEAF_STEPS: list[Callable[[aj.Tensor, aj.Tensor], Any]] = [
    lambda p, q: (p * p).sum().backward(retain_graph=True),
    lambda p, q: (q * q).sum().backward(retain_graph=True),
    lambda p, q: (p * q).sum().backward(retain_graph=True),
    lambda p, q: setattr(p, "grad", None),
    lambda p, q: None if p.grad is None else p.grad.sum().item(),
    lambda p, q: None if p.grad is None else p.grad.mul_(0.5),
    lambda p, q: _changed_by_its_gradient(p),
    lambda p, q: delattr(p, "grad"),
    lambda p, q: setattr(p, "grad", p.detach() * 3),
]


@pytest.mark.parametrize("seed", range(25))
def test_a_leaf_and_what_is_made_of_it_are_arguments_of_one_step(seed: int) -> None:
    """Its ``.grad``, values and version are as eager mode leaves them, whatever the step does to the gradient."""
    lines = random.Random(seed).choices(LEAF_STEPS, k=3)

    def step(p: aj.Tensor, q: aj.Tensor) -> aj.Tensor:
        for line in lines:
            line(p, q)
        return (p.detach() * q).sum()

    def seen(function: Any) -> list[Any]:
        found: list[Any] = []
        p = aj.tensor([1.0, 2.0], dtype=aj.float64, requires_grad=True)
        for _ in range(3):
            found.append(function(p, p * 2).item())
            found.append((p.tolist(), None if p.grad is None else p.grad.tolist(), p._version))
        return found

    assert _agree(seen(aj.jit(step)), seen(step))


def test_a_step_trains_what_made_its_argument() -> None:
    def losses(jit: Any) -> tuple[list[float], str]:
        aj.manual_seed(0)
        body, head = nn.Linear(3, 4), nn.Linear(4, 1)
        optimizer = aj.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

        @jit
        def step(features: aj.Tensor, y: aj.Tensor) -> float:
            optimizer.zero_grad()
            loss = ((head(features) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        x, y = aj.rand(5, 3), aj.rand(5, 1)
        return [step(body(x).tanh(), y) for _ in range(5)], step.explain() if jit is aj.jit else ""

    found, told = losses(aj.jit)
    assert found == pytest.approx(losses(lambda function: function)[0], rel=1e-5)
    assert "ran line by line" in told


def test_gradients_inside_and_through_an_argument_add_up() -> None:
    leaf = aj.ones(3, requires_grad=True)
    step = aj.jit(lambda x: (leaf * x).sum().backward())
    for k in range(1, 4):
        step(leaf * 2)
        assert leaf.grad.tolist() == [4.0 * k] * 3
    assert "ran line by line" not in step.explain()
