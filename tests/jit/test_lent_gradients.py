"""Reading, replacing or clearing gradients between calls of a step: as in eager mode, and the step stays native."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.runtime.object_layout import layout_is_known

Grad = aj.Tensor
needs_layout = pytest.mark.skipif(not layout_is_known(), reason="without reference counts a gradient read stays lent")


def _clears(w: Grad, x: Grad) -> None:
    w.grad = None
    (w * x).sum().backward()


def _finds_none_or_adds(w: Grad, x: Grad) -> None:
    (w * x).sum().backward()


def _updates(w: Grad, x: Grad) -> None:
    w.grad = None
    (w * w * x).sum().backward()
    with aj.no_grad():
        w -= 0.125 * w.grad


STEPS = [_clears, _finds_none_or_adds, _updates]
HOLDS: dict[str, Callable[[Grad], Any]] = {
    "itself": lambda g: g,
    "detached": lambda g: g.detach(),
    "a view": lambda g: g[1:],
    "its array": lambda g: g.numpy(),
    "a view of its array": lambda g: g.numpy()[1:],
    "its buffer": lambda g: memoryview(g.numpy()),
    "in a history": lambda g: (g * aj.ones(4, requires_grad=True)).sum(),
    "an exchanged array": np.from_dlpack,
    "as a field": lambda g: {"g": [g]},
}
MARKS: dict[str, Callable[[Grad], Any]] = {
    "a weak reference": weakref.ref,
    "an attribute": lambda g: setattr(g, "label", "mine"),
    "requires_grad": lambda g: g.requires_grad_(),
    "changed in place": lambda g: g.mul_(2.0),
    "zeroed": lambda g: g.zero_(),
}
DROPS: dict[str, Callable[[Grad], Any]] = {
    "norm": lambda g: g.norm().item(),
    "text": str,
    "array": lambda g: float(g.numpy().sum()),
    "view": lambda g: g[1:].sum().item(),
    "in place": lambda g: g.clamp_(-1.0, 1.0).sum().item(),
}


def _values(held: Any) -> Any:
    if isinstance(held, dict):
        held = held["g"][0]
    if isinstance(held, aj.Tensor):
        found = held.detach().numpy().copy()
        if held.grad_fn is not None:
            return None
        return found
    return np.array(held) if isinstance(held, np.ndarray | memoryview) else None


def _run(wrap: Callable[[Any], Any], body: Any, look: Callable[[Grad], Any], clears: bool) -> list[Any]:
    w = aj.arange(4, dtype=aj.float32).requires_grad_()
    step, seen, held = wrap(lambda x: body(w, x)), [], []
    for k in range(6):
        step(aj.ones(4) * (k % 2 + 1))
        held.append(look(w.grad))
        if clears:
            w.grad = None
        seen += [_values(one) for one in held]
    return [*seen, _values(w.grad), w.detach().numpy().copy()]


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("body", STEPS[:2])
@pytest.mark.parametrize("look", [*HOLDS.values(), *MARKS.values(), *DROPS.values()], ids=[*HOLDS, *MARKS, *DROPS])
def test_whoever_holds_a_gradient_sees_what_eager_mode_shows(body: Any, look: Any, clears: bool) -> None:
    for found, wanted in zip(_run(aj.jit, body, look, clears), _run(lambda f: f, body, look, clears), strict=True):
        np.testing.assert_array_equal(found, wanted)


@needs_layout
@pytest.mark.parametrize("body", STEPS)
@pytest.mark.parametrize("look", DROPS.values(), ids=DROPS)
def test_what_is_read_and_dropped_costs_no_call_through_python(body: Any, look: Any) -> None:
    w = aj.arange(4, dtype=aj.float32).requires_grad_()
    w.grad = aj.zeros(4)
    step = aj.jit(lambda x: body(w, x))
    for k in range(12):
        step(aj.ones(4))
        look(w.grad)
        if k == 4:
            before = step.stats()
    after = step.stats()
    assert after["python_calls"] == before["python_calls"]
    assert after["captures"] == before["captures"]


@needs_layout
def test_clearing_and_keeping_gradients_outside_stays_native() -> None:
    ws = [aj.arange(3, dtype=aj.float32).requires_grad_() for _ in range(3)]

    @aj.jit
    def step(x: Grad) -> Any:
        loss = aj.stack([(w * x).sum() for w in ws]).sum()
        loss.backward()
        return loss.detach()

    optimizer = aj.optim.SGD(ws, lr=0.1)
    kept: list[Any] = []
    for k in range(12):
        optimizer.zero_grad()
        step(aj.ones(3) * k)
        kept.append([w.grad for w in ws[:2]])
        optimizer.step()
        if k == 4:
            before = step.stats()["python_calls"]
    assert step.stats()["python_calls"] == before
    for k, grads in enumerate(kept):
        for grad in grads:
            np.testing.assert_array_equal(grad.numpy(), np.full(3, k, np.float32))


@needs_layout
def test_a_weakly_held_gradient_is_not_written_again() -> None:
    w = aj.ones(2, requires_grad=True)

    @aj.jit
    def step(x: Grad) -> None:
        w.grad = None
        (w * x).sum().backward()

    step(aj.ones(2))
    step(aj.ones(2))
    ref = weakref.ref(w.grad)
    step(aj.ones(2) * 2)
    assert ref() is None
    assert w.grad.tolist() == [2.0, 2.0]


@needs_layout
def test_a_failing_call_leaves_the_gradients_that_somebody_holds() -> None:
    w = aj.ones(2, requires_grad=True)

    @aj.jit
    def step(x: Grad, k: Grad) -> None:
        w.grad = None
        (w * x[k]).sum().backward()

    index = aj.tensor([0, 1])
    for _ in range(3):
        step(aj.ones(2), index)
    held = w.grad
    with pytest.raises(IndexError):
        step(aj.ones(2) * 5, aj.tensor([0, 7]))
    assert held.tolist() == [1.0, 1.0]
    step(aj.ones(2) * 3, index)
    assert held.tolist() == [1.0, 1.0]
    assert w.grad.tolist() == [3.0, 3.0]
