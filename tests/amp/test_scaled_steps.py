"""`GradScaler` inside compiled functions: the factor, its counter and skipped steps go on as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from tests.emulated import emulated_cuda

X = aj.linspace(-1, 1, 12, device="cpu").reshape(4, 3)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda params: aj.optim.SGD(params, lr=0.1, momentum=0.9),
    "damped": lambda params: aj.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.01),
    "plain": lambda params: aj.optim.SGD(params, lr=0.1),
    "adam": lambda params: aj.optim.Adam(params, lr=0.1),
    "adamw": lambda params: aj.optim.AdamW(params, lr=0.1, amsgrad=True),
    "adagrad": lambda params: aj.optim.Adagrad(params, lr=0.1),
}


def _program(
    wrap: Callable[[Any], Any],
    whole: bool,
    *,
    device: str = "cpu",
    optimizer_of: Callable[[Any], Any] = OPTIMIZERS["sgd"],
    infinite: tuple[int, ...] = (4, 5),
) -> list[Any]:
    model = nn.Linear(3, 2, device=device)
    with aj.no_grad():
        for p in model.parameters():
            p.copy_(aj.linspace(0.1, 0.7, p.numel()).reshape(p.shape))
    optimizer = optimizer_of(model.parameters())
    scaler = aj.amp.GradScaler(device, init_scale=64.0, growth_interval=3)

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
        x = (X * (float("inf") if k in infinite else 1.0)).to(device)
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
    stats = compiled[0].stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (1, 0, 0)  # nobody asks whether they were finite


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("infinite", [(0, 4), (3,)], ids=str)
def test_skipped_steps_of_any_optimizer_are_as_if_they_had_not_been(name: str, infinite: tuple[int, ...]) -> None:
    how = {"optimizer_of": OPTIMIZERS[name], "infinite": infinite}
    expected = _program(lambda step: step, True, **how)
    assert _program(aj.jit, True, **how) == pytest.approx(expected, rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_device_scales_and_skips_as_the_cpu_does(name: str) -> None:
    """The factor and what was found stay on the device: of SGD all is one graph, without a copy that is waited for."""
    compiled: list[Any] = []

    def wrap(step: Any) -> Any:
        compiled.append(aj.jit(step))
        return compiled[0]

    with emulated_cuda():
        how = {"optimizer_of": OPTIMIZERS[name], "infinite": (0, 4)}
        expected = _program(lambda step: step, True, **how)
        assert _program(wrap, True, device="cuda", **how) == pytest.approx(expected, rel=1e-5, nan_ok=True)
        stats = compiled[0].stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (1, 0, 0)
    if name == "sgd":
        assert stats["device_entries"] == 1


class _Algorithm(aj.optim.Optimizer):
    """One that is not autojit's own: nobody knows what its step changes."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})
        self.steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        with aj.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * 0.1)


def test_an_algorithm_of_the_users_is_not_asked_for_steps_that_are_skipped() -> None:
    expected = _program(lambda step: step, True, optimizer_of=_Algorithm)
    assert _program(aj.jit, True, optimizer_of=_Algorithm) == pytest.approx(expected, rel=1e-5, nan_ok=True)


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
