"""`GradScaler` inside compiled functions: the factor, its counter and skipped steps go on as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn

X = aj.linspace(-1, 1, 12).reshape(4, 3)


def _program(wrap: Callable[[Any], Any], whole: bool) -> list[Any]:
    model = nn.Linear(3, 2)
    with aj.no_grad():
        for p in model.parameters():
            p.copy_(aj.linspace(0.1, 0.7, p.numel()).reshape(p.shape))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = aj.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)

    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        if whole:
            scaler.update()
        return loss.detach()

    run = wrap(step)
    seen: list[Any] = []
    for k in range(11):
        x = X * (float("inf") if k in (4, 5) else 1.0)
        seen.append(run(x).item())
        if not whole:
            scaler.update()
        seen.append(scaler.get_scale())
        seen.append(model.weight.sum().item())
    seen.append(scaler.state_dict()["_growth_tracker"])
    return seen


@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_step_scales_skips_and_grows_as_eager_does(whole: bool) -> None:
    compiled: list[Any] = []

    def wrap(step: Any) -> Any:
        compiled.append(aj.jit(step))
        return compiled[0]

    expected = _program(lambda step: step, whole)
    assert _program(wrap, whole) == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert [expected[3 * k + 1] for k in range(11)] == [64, 64, 128, 128, 64, 32, 32, 32, 64, 64, 64]
    assert compiled[0].stats()["captures"] == 2  # one per answer to: were the gradients finite
    assert compiled[0].stats()["fallbacks"] == 0


def test_settings_changed_later_hold_in_compiled_steps() -> None:
    w = aj.ones(2, requires_grad=True)
    optimizer = aj.optim.SGD([w], lr=0.0)
    scaler = aj.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1)

    @aj.jit
    def step() -> None:
        optimizer.zero_grad()
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    step()
    step()
    scaler.set_growth_factor(4.0)
    step()
    assert scaler.get_scale() == 16.0


def test_what_is_called_out_of_turn_is_refused_with_torchs_types() -> None:
    w = aj.ones(2, requires_grad=True)
    optimizer = aj.optim.SGD([w], lr=0.1)
    scaler = aj.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(optimizer, closure=lambda: 0)
    half = aj.ones(2, dtype=aj.float16, requires_grad=True)
    scaler.scale(half.sum()).backward()
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(aj.optim.SGD([half], lr=0.1))
    with pytest.raises(AssertionError, match="growth"):
        aj.amp.GradScaler("cpu", growth_factor=1.0)


def test_a_scaled_loss_of_half_precision_is_float32() -> None:
    assert aj.amp.GradScaler("cpu").scale(aj.ones((), dtype=aj.bfloat16)).dtype is aj.float32
