"""Gradients one compiled function leaves for another: native, in place where nobody has read them, not mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn

Wrap = Callable[[Callable[..., Any]], Any]
X = aj.linspace(-1, 1, 12).reshape(4, 3)


def _train(wrap: Wrap, micro_steps: int, reads: bool) -> tuple[list[Any], list[Any]]:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with aj.no_grad():
        for p in model.parameters():
            p.copy_(aj.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def forward_backward(x: aj.Tensor) -> aj.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    compiled = [wrap(forward_backward), wrap(update)]
    seen: list[Any] = []
    for k in range(12):
        for part in range(micro_steps):
            seen.append(compiled[0](X * (1 + k + part)).item())
        if reads and k % 3 == 0:
            seen.append([p.grad for p in model.parameters()])
        compiled[1]()
    return [s if isinstance(s, float) else [g.sum().item() for g in s] for s in seen], compiled


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("micro_steps", [1, 2, 3])
def test_accumulating_and_updating_in_two_functions_agrees_with_eager(micro_steps: int, reads: bool) -> None:
    expected, _ = _train(lambda function: function, micro_steps, reads)
    found, compiled = _train(aj.jit, micro_steps, reads)
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    if not reads:
        calls = [function.stats()["native_calls"] for function in compiled]
        assert calls[0] >= 12 * micro_steps - 5, compiled[0].explain()
        assert calls[1] >= 9, compiled[1].explain()


def _accumulate(wrap: Wrap, log_every: int, schedule: bool) -> tuple[list[float], Any]:
    """One function that accumulates, updates at every fourth call, and logs at others."""
    model = nn.Linear(3, 2)
    with aj.no_grad():
        for p in model.parameters():
            p.copy_(aj.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
    optimizer = aj.optim.AdamW(model.parameters(), lr=0.1)
    decay = aj.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    logged: list[float] = []

    def step(x: aj.Tensor, number: int) -> aj.Tensor:
        loss = model(x).square().mean() / 4
        loss.backward()
        if (number + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if schedule:
                decay.step()
            optimizer.zero_grad()
        if number % log_every == 0:
            logged.append(loss.item())
        return loss

    compiled = wrap(step)
    return [float(compiled(X * (1 + k % 3), k)) for k in range(160)] + logged, compiled


@pytest.mark.parametrize("log_every", [3, 7])
@pytest.mark.parametrize("schedule", [False, True])
def test_whichever_step_has_left_the_gradients_the_next_one_takes_them(log_every: int, schedule: bool) -> None:
    """Steps for several ways through one function accumulate into each other's gradients, and stay native."""
    expected, _ = _accumulate(lambda function: function, log_every, schedule)
    found, compiled = _accumulate(aj.jit, log_every, schedule)
    assert found == pytest.approx(expected, rel=1e-4)
    assert compiled.stats()["python_calls"] <= 20, compiled.explain()


def _keep(case: str, wrap: Wrap) -> list[Any]:
    w, other = aj.tensor([1.0, 2.0], requires_grad=True), aj.ones(2, requires_grad=True)
    kept: dict[str, Any] = {"last": None}

    def forward_backward(x: aj.Tensor) -> None:
        (w * w * x).sum().backward()

    def take() -> Any:
        found = None
        if case == "attribute":
            kept["last"] = w.grad
        elif case == "other leaf":
            other.grad = w.grad
        elif case == "result":
            found = w.grad
        else:
            kept["last"] = w.grad * 1
        w.grad = None
        return found

    forward_backward, take = wrap(forward_backward), wrap(take)
    seen: list[Any] = []
    for k in range(5):
        forward_backward(aj.tensor([1.0 + k, 2.0]))
        result = take()
        forward_backward(aj.tensor([10.0 + k, 20.0]))
        seen.append([t if t is None else t.tolist() for t in (kept["last"], other.grad, result, w.grad)])
        w.grad = None
    return seen


@pytest.mark.parametrize("case", ["attribute", "other leaf", "result", "copy"])
def test_a_gradient_that_a_step_hands_on_is_not_written_again(case: str) -> None:
    assert _keep(case, aj.jit) == _keep(case, lambda function: function)


def test_steps_that_take_turns_run_natively() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    step = aj.jit(lambda x, flips: model(x if not flips else -x).sum().detach())
    for _ in range(2):
        for flips in (True, False):
            step(X, flips)
    calls = step.stats()["native_calls"]
    for k in range(20):
        flips = k % 2 == 0
        assert step(X, flips).item() == pytest.approx(model(-X if flips else X).sum().item(), rel=1e-5)
    assert step.stats()["native_calls"] == calls + 20, step.explain()
    assert step.stats()["captures"] == 2
    model[1] = nn.Tanh()
    for flips in (True, False, True):
        assert step(X, flips).item() == pytest.approx(model(-X if flips else X).sum().item(), rel=1e-5)


def test_arguments_that_do_not_lie_in_row_major_order_are_copied_for_the_native_step() -> None:
    weight, total = aj.linspace(-1, 1, 12).reshape(3, 4), aj.zeros(5, 4)

    def function(x: aj.Tensor, kept: dict[str, aj.Tensor]) -> tuple[aj.Tensor, dict[str, aj.Tensor]]:
        return x @ weight, {"sum": kept["sum"] + x.sum(0)}

    compiled = aj.jit(function)
    data = aj.arange(90.0).reshape(3, 30).t()
    kept = [{"sum": aj.zeros(3)}, {"sum": aj.zeros(3)}]
    for k in range(6):
        x = data[5 * k : 5 * k + 5]
        found, kept[0] = compiled(x, kept[0])
        expected, kept[1] = function(x, kept[1])
        assert found.tolist() == expected.tolist()
        assert kept[0]["sum"].tolist() == kept[1]["sum"].tolist()
    assert compiled.stats()["native_calls"] >= 4, compiled.explain()

    shows = aj.jit(lambda x: x)
    adds = aj.jit(lambda x: total.add_(x).sum())
    flipped = aj.ones(4, 5).t()
    for _ in range(3):
        assert shows(flipped) is flipped
    for k in range(4):
        assert adds(total.t().t()[:, ::2].repeat(1, 2) if k else flipped).item() == total.sum().item()
    for _ in range(3):
        before = total.clone()
        square = total[:4].t()
        doubled = aj.jit(lambda x: (total[:4].mul_(2), x + 1)[1])
        assert doubled(square).tolist() == (2 * before[:4].t() + 1).tolist()
