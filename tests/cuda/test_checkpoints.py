"""Checkpoints go from one device to another: modules, optimisers, generators; recomputation draws the same numbers."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from tests.covering import covering

pytestmark = pytest.mark.gpu
KINDS: dict[str, Any] = {
    "adamw": lambda p: aj.optim.AdamW(p, lr=1e-2),
    "sgd": lambda p: aj.optim.SGD(p, lr=1e-2, momentum=0.9),
    "rmsprop": lambda p: aj.optim.RMSprop(p, lr=1e-2),
}


def saved_and_loaded(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    aj.save(value, file)
    file.seek(0)
    return aj.load(file, **options)


class Trained:
    """A small model with its optimiser and a compiled step."""

    def __init__(self, kind: str, place: str) -> None:
        aj.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(place)
        self.optimizer = KINDS[kind](self.model.parameters())
        self.place = place
        self.step = aj.jit(self.update)

    def update(self, x: aj.Tensor) -> aj.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, count: int) -> list[float]:
        return [self.step(aj.linspace(-1, 1, 12, device=self.place).reshape(3, 4)).item() for _ in range(count)]

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


@covering("kind, resumes_on, location", KINDS, ["cpu", "cuda"], [None, "cpu", "cuda"], every=2)
def test_a_run_goes_on_where_it_stopped_on_any_device(
    device: str, kind: str, resumes_on: str, location: str | None
) -> None:
    if device == "cpu":
        pytest.skip("needs both devices")
    before = Trained(kind, "cuda")
    before.run(3)
    state = saved_and_loaded(before.state(), map_location=location)
    places = {t.device.type for t in state["model"].values()}
    assert places == {location or "cuda"}
    after = Trained(kind, resumes_on)
    after.load(state)
    np.testing.assert_allclose(after.run(3), before.run(3), rtol=1e-5)
    moments = [t for kept in after.optimizer.state.values() for name, t in kept.items() if name != "step"]
    assert {t.device.type for t in moments if isinstance(t, aj.Tensor)} <= {resumes_on}
    assert (after.step.stats()["captures"], after.step.stats()["fallbacks"]) == (1, 0)


def test_memory_that_is_shared_stays_shared(device: str) -> None:
    x = aj.arange(6, device=device).reshape(2, 3)
    found = saved_and_loaded({"whole": x, "row": x[1], "column": x[:, 0]})
    found["whole"].zero_()
    assert (found["row"].tolist(), found["column"].tolist()) == ([0, 0, 0], [0, 0])
    assert {t.device.type for t in found.values()} == {device}


def test_maps_of_every_form_say_where_tensors_go(device: str) -> None:
    x = aj.ones(2, device=device)
    forms: list[Any] = ["cpu", aj.device("cpu"), {f"{device}:0": "cpu"}, lambda storage, place: storage]
    for form in forms:
        assert saved_and_loaded(x, map_location=form).device.type == "cpu"


@pytest.mark.parametrize("is_reentrant", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_is_computed_again_draws_the_same_numbers(device: str, is_reentrant: bool, is_compiled: bool) -> None:
    drop, w = nn.Dropout(0.5), aj.full((8, 8), 0.1, device=device, requires_grad=True)

    def block(x: aj.Tensor) -> aj.Tensor:
        return drop((x @ w).tanh())

    def step(x: aj.Tensor, is_kept: bool) -> tuple[aj.Tensor, aj.Tensor]:
        w.grad = None
        x = x.detach().requires_grad_()
        y = block(x) if is_kept else aj.utils.checkpoint.checkpoint(block, x, use_reentrant=is_reentrant)
        y.square().sum().backward()
        return y.detach(), w.grad

    run = aj.jit(step) if is_compiled else step
    x = aj.linspace(-1, 1, 24, device=device).reshape(3, 8)
    found = []
    for is_kept in (True, False):
        aj.manual_seed(5)
        found.append([t.cpu().numpy().copy() for t in run(x, is_kept)])
    for kept, again in zip(*found, strict=True):
        np.testing.assert_allclose(again, kept, rtol=1e-6)


def test_lazy_modules_are_saved_before_their_first_batch(device: str) -> None:
    lazy = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)).to(device)
    whole = saved_and_loaded(lazy, weights_only=False)
    state = saved_and_loaded(lazy.state_dict())
    other = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)).to(device)
    other.load_state_dict(state)
    for module in (whole, other):
        assert module[0].has_uninitialized_params()
        assert module(aj.ones(4, 5, device=device)).shape == (4, 2)
        assert type(module[0]) is nn.Linear
        assert module[0].weight.device.type == device
        assert not module[0]._forward_pre_hooks and not module[0]._load_state_dict_pre_hooks
    trained = saved_and_loaded(whole.state_dict())
    fresh = saved_and_loaded(lazy, weights_only=False)
    fresh.load_state_dict(trained)
    x = aj.ones(4, 5, device=device)
    np.testing.assert_array_equal(fresh(x).detach().cpu().numpy(), whole(x).detach().cpu().numpy())


def test_generators_go_on(device: str) -> None:
    aj.manual_seed(3)
    aj.rand(2, device=device)
    state = saved_and_loaded(aj.cuda.get_rng_state() if device == "cuda" else aj.get_rng_state())
    expected = aj.rand(3, device=device).tolist()
    aj.rand(5, device=device)
    (aj.cuda.set_rng_state if device == "cuda" else aj.set_rng_state)(state)
    assert aj.rand(3, device=device).tolist() == expected
