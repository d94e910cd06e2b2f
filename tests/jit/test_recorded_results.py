"""Results of native calls that the caller differentiates: what eager mode gives, to the second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.object_layout import layout_is_known

CALLS = 5


class _World:
    """Parameters and what functions of them give."""

    def __init__(self) -> None:
        aj.manual_seed(0)
        self.w = aj.randn(3, 4, dtype=aj.float64, requires_grad=True)
        self.b = aj.randn(4, dtype=aj.float64, requires_grad=True)
        self.hidden = (self.w * 2).sin()  # with a history of its own

    def one(self, x: Any) -> Any:
        return ((x @ self.w + self.b) ** 3).mean()

    def several(self, x: Any) -> Any:
        y = aj.tanh(x @ self.w)
        return y, y.detach() * 2, {"sum": y.sum() + self.b.sum(), "size": 3}

    def behind(self, x: Any) -> Any:
        return (x @ self.hidden).square().sum()

    def part(self, x: Any) -> Any:
        return (x @ self.w)[:, 1:].exp().sum(0)

    def nested(self, x: Any, *, more: Any = None) -> Any:
        y = x @ self.w
        return y.sum() if more is None else (y * more["scale"]).sum()

    def by_argument(self, x: Any) -> Any:
        return (x**3).sum(), x.sum()


def _tensors(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return [t for v in found.values() for t in _tensors(v)]
    if isinstance(found, tuple | list):
        return [t for v in found for t in _tensors(v)]
    return [found] if isinstance(found, aj.Tensor) else []


def _x(k: int, rows: int) -> Any:
    return aj.arange(rows * 3, dtype=aj.float64).reshape(rows, 3) / 10 - k / 7


PROGRAMS: dict[str, Callable[[_World], tuple[Any, Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]]]] = {
    "one": lambda world: (world.one, lambda k: ((_x(k, 5),), {})),
    "several": lambda world: (world.several, lambda k: ((_x(k, 5),), {})),
    "open sizes": lambda world: (world.several, lambda k: ((_x(k, 2 + k % 3),), {})),
    "a history outside": lambda world: (world.behind, lambda k: ((_x(k, 5),), {})),
    "a view": lambda world: (world.part, lambda k: ((_x(k, 5),), {})),
    "arguments that are views": lambda world: (world.one, lambda k: ((_x(k, 7)[1:6],), {})),
    "nests": lambda world: (world.nested, lambda k: ((_x(k, 5),), {"more": {"scale": aj.ones(4, dtype=aj.float64)}})),
    "gradients of arguments": lambda world: (world.by_argument, lambda k: ((_x(k, 5).requires_grad_(),), {})),
}


def _run(make: Any, wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    world = _World()
    body, arguments = make(world)
    step, seen, kept = wrap(body), [], []
    for k in range(CALLS):
        args, named = arguments(k)
        found = _tensors(step(*args, **named))
        kept += [(t, t.detach().numpy().copy()) for t in found]
        seen.append([(t.requires_grad, t.is_leaf, t.grad_fn is None, t.shape) for t in found])
        loss = sum((t.sin().sum() for t in found if t.requires_grad), aj.zeros((), dtype=aj.float64))
        inputs = [t for t in (world.w, world.b, *args) if t.requires_grad]
        first = aj.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
        slope = sum((g.square().sum() for g in first if g is not None), aj.zeros((), dtype=aj.float64))
        second = aj.autograd.grad(slope, inputs, allow_unused=True, retain_graph=True)
        loss.backward()
        seen.append([None if g is None else g.detach().numpy().copy() for g in (*first, *second)])
        seen.append([None if t.grad is None else t.grad.numpy().copy() for t in inputs])
        if world.hidden.grad_fn is not None:
            world.hidden = (world.w * 2).sin()
    for t, value in kept:
        np.testing.assert_array_equal(t.detach().numpy(), value)
    return seen, step


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_first_and_second_derivatives_agree_with_eager_mode(make: Any) -> None:
    found, _ = _run(make, aj.jit)
    wanted, _ = _run(make, lambda function: function)
    for a, b in zip(found, wanted, strict=True):
        for one, other in zip(a, b, strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
            else:
                assert one == other


@pytest.mark.skipif(not layout_is_known(), reason="no native entry here")
@pytest.mark.parametrize("name", ["one", "several", "open sizes", "nests", "arguments that are views"])
def test_calls_that_are_differentiated_outside_are_native(name: str) -> None:
    _, step = _run(PROGRAMS[name], aj.jit)
    stats = step.stats()
    assert stats["native_calls"] > 0
    before = stats["python_calls"]
    world = _World()
    body, arguments = PROGRAMS[name](world)
    step = aj.jit(body)
    for k in range(12):
        args, named = arguments(k)
        sum(t.sum() for t in _tensors(step(*args, **named)) if t.requires_grad).backward()
        if k == 6:
            before = step.stats()["python_calls"]
    assert step.stats()["python_calls"] == before


def test_what_is_changed_before_backward_is_refused_as_in_eager_mode() -> None:
    for wrap in (aj.jit, lambda function: function):
        world = _World()
        step = wrap(lambda x, world=world: world.one(x) * (world.w * world.w).sum())
        for k in range(CALLS):
            loss = step(_x(k, 5))
            if k == CALLS - 1:
                with aj.no_grad():
                    world.w.add_(1.0)
                with pytest.raises(RuntimeError, match=r"changed in place|modified by an inplace"):
                    loss.backward()
            else:
                loss.backward()


def test_modes_keep_their_own_steps() -> None:
    world = _World()
    step = aj.jit(world.one)
    for k in range(CALLS):
        assert step(_x(k, 5)).requires_grad
        with aj.no_grad():
            assert not step(_x(k, 5)).requires_grad
        with aj.inference_mode():
            assert step(_x(k, 5)).is_inference()
    world.w.requires_grad_(False)
    world.b.requires_grad_(False)
    assert not step(_x(0, 5)).requires_grad


def test_memory_of_results_is_used_again_only_when_nobody_differentiates_them() -> None:
    world = _World()
    step = aj.jit(world.several)
    losses = [step(_x(k, 5))[0] for k in range(3 * CALLS)]
    for k, loss in enumerate(losses):
        wanted = world.several(_x(k, 5))[0]
        np.testing.assert_allclose(loss.detach().numpy(), wanted.detach().numpy(), rtol=1e-12)
        (found,) = aj.autograd.grad(loss.square().sum(), (world.w,))
        (slope,) = aj.autograd.grad(wanted.square().sum(), (world.w,))
        np.testing.assert_allclose(found.numpy(), slope.numpy(), rtol=1e-9)
