"""Histories outside that `backward` in a step goes through, uses up or leaves: each call meets what is there then."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda s, y: s.add_(y),
    "mul_": lambda s, y: s.mul_(y),
    "copy_": lambda s, y: s.copy_(y),
    "a row": lambda s, y: s[0].copy_(y[0]),
    "an item": lambda s, y: s.__setitem__((0, slice(None)), y[1]),
    "under no_grad": lambda s, y: aj.no_grad()(lambda: s.add_(y))(),
}
BEFORE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda s: None,
    "detach_": lambda s: s.detach_(),
    "zeroed": lambda s: aj.no_grad()(lambda: s.zero_())(),
}
ENDS: dict[str, Callable[[Any], Any]] = {
    "backward": lambda loss: loss.backward(),
    "retain_graph": lambda loss: loss.backward(retain_graph=True),
    "no backward": lambda loss: None,
}
BETWEEN: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda s: None,
    "detach_ outside": lambda s: s.detach_(),
    "every second time": lambda s: s.detach_() if s.requires_grad and s.sum() > 5 else None,
}


def seen(wrap: Callable[[Any], Any], write: str, before: str, end: str, between: str) -> list[Any]:
    w, state, found = aj.tensor(0.5, requires_grad=True), aj.ones(2, 3), list[Any]()

    @wrap
    def step(x: Any) -> Any:
        BEFORE[before](state)
        WRITES[write](state, w * x)
        loss = (state * state).sum() + w * 2
        ENDS[end](loss)
        return state.detach().sum()

    for k in range(4):
        try:
            found.append(round(step(aj.ones(2, 3)).item(), 4))
        except RuntimeError as error:
            return [*found, str(error)[:50]]
        node = state.grad_fn if end == "backward" else None  # a live one is the call's own
        found.append((state.requires_grad, state.is_leaf, None if node is None else node.name()))
        found.append(None if w.grad is None else round(w.grad.item(), 4))
        if k != 1:
            BETWEEN[between](state)
    return found


@pytest.mark.parametrize(("write", "end"), list(itertools.product(WRITES, ENDS)))
def test_the_next_call_begins_with_what_backward_left(write: str, end: str) -> None:
    for before, between in itertools.product(BEFORE, BETWEEN):
        wanted = seen(lambda f: f, write, before, end, between)
        assert seen(aj.jit, write, before, end, between) == wanted, (before, between)


MADE: dict[str, Callable[[Any], Any]] = {
    "no history": lambda w: aj.ones(3),
    "mul": lambda w: w * aj.ones(3),
    "add": lambda w: w + aj.ones(3),
    "written": lambda w: (w + aj.ones(3)).mul_(w),
    "written twice": lambda w: (w * aj.ones(3)).exp().mul_(w).sin_(),
}


def _doubled(e: Any) -> None:
    with aj.no_grad():
        e.mul_(2)


OTHERWISE: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda e, w: None,
    "detached": lambda e, w: e.detach_(),
    "another history": lambda e, w: e.mul_(w),
    "other values": lambda e, w: _doubled(e),
}


def differentiated(wrap: Callable[[Any], Any], made: str, change: str, has_grad: bool, keeps: bool) -> list[Any]:
    w, found = aj.tensor(0.5, requires_grad=True), list[Any]()
    w.grad = aj.tensor(0.0) if has_grad else None
    e = MADE[made](w)

    @wrap
    def step(x: Any) -> Any:
        loss = (e * e * x).sum() + w * 2
        loss.backward(retain_graph=keeps)
        return loss.detach()

    for k in range(5):
        try:
            found.append(round(step(aj.ones(3)).item(), 4))
            found.append(round(w.grad.item(), 4))
        except RuntimeError as error:
            return [*found, str(error)[:50]]
        if k == 2:
            OTHERWISE[change](e, w)
    return found


@pytest.mark.parametrize(("made", "change"), list(itertools.product(MADE, OTHERWISE)))
def test_gradients_go_on_through_the_history_that_is_there_now(made: str, change: str) -> None:
    for has_grad, keeps in itertools.product((False, True), (False, True)):
        wanted = differentiated(lambda f: f, made, change, has_grad, keeps)
        assert differentiated(aj.jit, made, change, has_grad, keeps) == wanted, (has_grad, keeps)
