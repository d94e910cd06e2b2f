"""Closures that ``LBFGS.step`` calls in a step: each is a step of its own, and everything is as without ``jit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn, optim
from autojit.jit import pieces

CALLS = 6


class Trainer:
    """A fit by L-BFGS; ``closures`` says how its closure is written."""

    def __init__(self, search: str | None) -> None:
        aj.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        self.optimizer = optim.LBFGS(self.net.parameters(), 1.0 if search else 0.1, max_iter=4, line_search_fn=search)
        self.losses: list[float] = []
        self.evaluations = 0


def _plain(t: Trainer, x: Any, y: Any) -> Any:
    def closure() -> Any:
        t.optimizer.zero_grad()
        loss = (t.net(x) - y).square().mean()
        loss.backward()
        return loss

    return t.optimizer.step(closure)


def _with_helpers(t: Trainer, x: Any, y: Any) -> Any:
    scale = 2.0

    def error() -> Any:
        return (t.net(x) - y) * scale

    def closure() -> Any:
        t.optimizer.zero_grad()
        loss = error().square().mean()
        loss.backward()
        return loss

    return t.optimizer.step(closure)


def _counting(t: Trainer, x: Any, y: Any) -> Any:
    count, seen = 0, []

    def closure() -> Any:
        nonlocal count
        count += 1
        t.optimizer.zero_grad()
        loss = (t.net(x) - y).abs().mean()
        loss.backward()
        seen.append(loss.detach())
        return loss

    found = t.optimizer.step(closure)
    t.evaluations += count
    t.losses += [float(value) for value in seen]
    return found


def _recursive(t: Trainer, x: Any, y: Any) -> Any:
    def power(k: int) -> Any:
        return t.net(x) if k == 0 else lower(k - 1).tanh()

    def lower(k: int) -> Any:
        return power(k)

    def closure(rate: float = 0.01) -> Any:
        t.optimizer.zero_grad()
        loss = (power(2) - y).square().mean() + rate * sum(p.square().sum() for p in t.net.parameters())
        loss.backward()
        return loss

    found = t.optimizer.step(closure)
    assert closure.__closure__ is not None and power.__closure__ is not None
    assert lower in [cell.cell_contents for cell in power.__closure__]
    return found


def _already_compiled(t: Trainer, x: Any, y: Any) -> Any:
    @aj.jit
    def closure() -> Any:
        t.optimizer.zero_grad()
        loss = (t.net(x) - y).square().mean()
        loss.backward()
        return loss

    return t.optimizer.step(closure)


CLOSURES: dict[str, Callable[[Trainer, Any, Any], Any]] = {
    "plain": _plain, "with_helpers": _with_helpers, "counting": _counting, "recursive": _recursive,
    "already_compiled": _already_compiled,
}  # fmt: skip


def fitted(name: str, search: str | None, compiled: bool) -> tuple[Trainer, list[float], Any]:
    """The trainer after some calls, what they returned, and the step."""
    t, rng = Trainer(search), np.random.default_rng(0)

    def call(x: Any, y: Any) -> Any:
        return CLOSURES[name](t, x, y)

    step = aj.jit(call) if compiled else call
    found = []
    for _ in range(CALLS):
        x = aj.tensor(rng.normal(size=(16, 2)))
        found.append(float(step(x, x[:, :1] * x[:, 1:])))
    return t, found, step


@pytest.mark.parametrize("search", (None, "strong_wolfe"))
@pytest.mark.parametrize("name", CLOSURES)
def test_all_is_as_without_jit(name: str, search: str | None) -> None:
    expected, losses, _ = fitted(name, search, False)
    t, found, step = fitted(name, search, True)
    np.testing.assert_allclose(found, losses, rtol=1e-7)
    for a, b in zip(t.net.parameters(), expected.net.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-8)
    assert t.evaluations == expected.evaluations
    np.testing.assert_allclose(t.losses, expected.losses, rtol=1e-7)
    assert "closure as a step of its own" in step.explain()


@pytest.mark.parametrize("name", ("plain", "with_helpers", "recursive"))
def test_the_closure_is_compiled_once_for_all_that_are_made(name: str) -> None:
    _, _, step = fitted(name, None, True)
    ((_, piece),) = step.pieces.steps.values()
    assert piece.stats()["captures"] <= 5, piece.explain()
    assert "closure: " in step.explain()


def test_a_closure_that_is_another_program_every_time_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CAPTURES_LIMIT", 2)
    _, _, step = fitted("counting", None, True)
    ((_, piece),) = step.pieces.steps.values()
    assert piece.stats()["captures"] == 3
    assert "captured too often" in step.explain()


def test_nothing_of_a_call_is_kept_by_what_stands_in_for_its_closure() -> None:
    _, _, step = fitted("with_helpers", None, True)
    ((stand_in, _),) = step.pieces.steps.values()
    for cell in stand_in.cells:
        with pytest.raises(ValueError, match="empty"):
            print(cell.cell_contents)


def test_an_error_in_the_closure_is_the_users() -> None:
    t = Trainer(None)

    @aj.jit
    def step(x: Any) -> Any:
        def closure() -> Any:
            raise KeyError("mine")

        return t.optimizer.step(closure)

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            step(aj.ones(2))


def test_switched_off_nothing_is_compiled() -> None:
    t = Trainer(None)
    x = aj.ones(4, 2, dtype=aj.float64)
    step = aj.jit(lambda x: _plain(t, x, x[:, :1]))
    with aj.eager():
        step(x)
    assert not step.pieces.steps
