"""Backward passes of results of native calls: each way of asking for one gives, and refuses, what eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.object_layout import layout_is_known

CALLS = 5


class _World:
    """Leaves, functions of them, and what hooks have seen."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        generator = np.random.default_rng(0)
        self.w = aj.tensor(generator.normal(size=(3, 4)), requires_grad=True)
        self.b = aj.tensor(generator.normal(size=4), requires_grad=True)
        self.unused = aj.ones(2, dtype=aj.float64, requires_grad=True)
        self.seen: list[Any] = []
        self.loss = wrap(lambda x: ((x @ self.w + self.b) ** 3).mean())
        self.layer = wrap(lambda x: aj.tanh(x @ self.w))
        self.head = wrap(lambda y: (y * self.b).square().sum())
        self.both = wrap(lambda x: ((x @ self.w).exp().sum(), (x @ self.w) * self.b))
        self.own = wrap(lambda x: (x.sum() * self.b * self.b).sum())
        self.wave = wrap(lambda x: (x @ self.w * 1j + self.b).sum())

    def leaves(self) -> tuple[Any, ...]:
        return self.w, self.b, self.unused

    def see(self, *found: Any) -> None:
        self.seen += [None if g is None else np.array(g.detach().numpy()) for g in found]


def _hooked(world: _World, x: Any) -> None:
    handle = world.w.register_hook(lambda g: g * 2)
    world.loss(x).backward()
    handle.remove()


def _hooked_after(world: _World, x: Any) -> None:
    handle = world.b.register_post_accumulate_grad_hook(lambda t: world.see(t.grad))
    world.loss(x).backward()
    handle.remove()


def _hooked_result(world: _World, x: Any) -> None:
    loss = world.loss(x)
    loss.register_hook(lambda g: g * 3)
    loss.backward()


def _hooked_node(world: _World, x: Any) -> None:
    loss = world.loss(x)
    loss.grad_fn.register_prehook(lambda grads: (grads[0] * 5,))
    loss.backward()


def _hooked_end(world: _World, x: Any) -> None:
    loss = world.loss(x)
    ends = [node for node in _behind(loss.grad_fn) if getattr(node, "variable", None) is world.w]
    kept = [node.register_prehook(lambda grads: (grads[0] * 7,)) for node in ends]
    loss.backward()
    for handle in kept:
        handle.remove()


def _behind(node: Any) -> list[Any]:
    """The nodes behind one, each once."""
    found = [node]
    for one in found:
        found += [other for other, _ in one.next_functions if other is not None and other not in found]
    return found


def _kept(world: _World, x: Any) -> None:
    y, loss = world.both(x)[1], world.loss(x)
    y.retain_grad()
    (y.sum() + loss).backward()
    world.see(y.grad)


def _twice(world: _World, x: Any) -> None:
    a, b = world.both(x)
    a.backward(retain_graph=True)
    b.backward(aj.ones_like(b) * 2)
    with pytest.raises(RuntimeError, match="second time"):
        b.backward(aj.ones_like(b))
    a.backward()
    with pytest.raises(RuntimeError, match="second time"):
        a.backward()


def _given(world: _World, x: Any) -> None:
    y = world.layer(x)
    y.backward(aj.arange(y.numel(), dtype=aj.float64).reshape(y.shape), retain_graph=True)
    y.backward(aj.arange(y.numel(), dtype=aj.float64).reshape(y.shape[::-1]).T)
    with pytest.raises(RuntimeError, match=r"shape|second time"):
        y.backward(aj.ones(2, dtype=aj.float64))


def _asked(world: _World, x: Any) -> None:
    world.see(*aj.autograd.grad(world.loss(x), (world.b, world.w)))
    world.see(*aj.autograd.grad(world.layer(x), world.w, aj.ones(x.shape[0], 4, dtype=aj.float64)))
    world.see(*aj.autograd.grad(world.loss(x), (world.w, world.unused), allow_unused=True))
    with pytest.raises(RuntimeError, match="not have been used"):
        aj.autograd.grad(world.loss(x), (world.w, world.unused))
    first = aj.autograd.grad(world.loss(x), (world.w,), create_graph=True)
    world.see(*aj.autograd.grad(first[0].square().sum(), (world.w, world.b)))


def _of_arguments(world: _World, x: Any) -> None:
    x = x.detach().requires_grad_()
    world.loss(x).backward()
    world.see(x.grad, *aj.autograd.grad(world.loss(x), (x, world.w)), *aj.autograd.grad(world.loss(x), x))
    for _ in range(2):
        y = (x * world.unused[:1]).sin()
        world.see(*aj.autograd.grad(world.loss(y), (x, world.unused, world.b)))
        y = (x * world.unused[:1]).sin()
        world.see(*aj.autograd.grad(world.loss(y), (y, world.b)))


def _chained(world: _World, x: Any) -> None:
    world.head(world.layer(x)).backward()
    world.head(world.layer(x) * 2).backward()
    (world.loss(x) / 4).backward()


def _some(world: _World, x: Any) -> None:
    world.loss(x).backward(inputs=[world.b])


def _switched_off(world: _World, x: Any) -> None:
    loss = world.loss(x)
    world.w.requires_grad_(False)
    loss.backward()
    world.w.requires_grad_(True)


def _changed(world: _World, x: Any) -> None:
    loss, other = world.own(x), world.layer(x)
    with aj.no_grad():
        world.b.mul_(1.01)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    other.sum().backward()
    y = world.layer(x)
    with aj.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def _refused(world: _World, x: Any) -> None:
    with pytest.raises(RuntimeError, match="scalar outputs"):
        world.layer(x).backward()
    with pytest.raises(RuntimeError, match="real scalar outputs"):
        world.wave(x).backward()
    with aj.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
        world.loss(x).backward()
    with aj.no_grad():
        assert not world.loss(x).requires_grad


def _grad_modes(world: _World, x: Any) -> None:
    loss = world.loss(x)
    with aj.no_grad():
        loss.backward()
    held = world.w.grad
    world.w.grad, world.b.grad = None, aj.ones(4, dtype=aj.float64)
    world.loss(x).backward()
    world.see(held, world.w.grad)


WAYS = (
    _hooked, _hooked_after, _hooked_result, _hooked_node, _hooked_end, _kept, _twice, _given, _asked, _of_arguments,
    _chained, _some, _switched_off, _changed, _refused, _grad_modes,
)  # fmt: skip


def _plain(world: _World, x: Any) -> None:
    world.loss(x).backward()


def _seen(way: Callable[[_World, Any], None], wrap: Callable[[Any], Any]) -> list[Any]:
    world = _World(wrap)
    for k in range(CALLS):
        rows = 3 + (k == 4)
        x = aj.arange(rows * 3, dtype=aj.float64).reshape(rows, 3) / 10 - k / 7
        way(world, x)
        _plain(world, x)  # what comes in between leaves nothing behind
        world.see(*(t.grad for t in world.leaves()))
        if k % 2:
            world.w.grad = None
    return world.seen


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__[1:])
def test_every_way_of_asking_for_gradients_gives_those_of_eager_mode(way: Any) -> None:
    found, wanted = _seen(way, aj.jit), _seen(way, lambda function: function)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not layout_is_known(), reason="no native entry here")
def test_passes_of_native_calls_are_native_calls() -> None:
    world = _World(aj.jit)
    x = aj.ones(5, 3, dtype=aj.float64)
    for _ in range(CALLS):
        loss = world.loss(x)
        loss.backward(retain_graph=True)
        aj.autograd.grad(loss, (world.w, world.b))
    passes = loss.grad_fn.passes
    steps = [*passes._accumulating.values(), *(step for step, _ in passes._asking.values())]
    assert len(steps) == 2
    assert all(step.stats()["native_calls"] >= 2 for step in steps)


def test_nodes_lead_where_those_of_eager_mode_lead() -> None:
    world = _World(aj.jit)
    for _ in range(CALLS):
        loss = world.loss(aj.ones(5, 3, dtype=aj.float64))
        ends = [node.variable for node, _ in loss.grad_fn.next_functions if node is not None]
        assert {id(t) for t in ends} == {id(world.w), id(world.b)}
        loss.backward()
        assert len(loss.grad_fn.next_functions) >= len(ends)
