"""Training over many calls: whatever is done to optimiser and parameters between them, compiled is as eager."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

import autojit as aj
from tests.optim.training_programs import ACTIONS, OPTIMISERS, Program, check

QUICK = 10
CAMPAIGN = 300


@pytest.mark.parametrize("seed", range(QUICK))
def test_random_training_programs_agree_with_eager(seed: int) -> None:
    assert check(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, CAMPAIGN))
def test_more_random_training_programs_agree_with_eager(seed: int) -> None:
    assert check(seed) is None


def test_programs_use_every_optimiser_and_every_action() -> None:
    names = {Program(seed, lambda function: function).name for seed in range(CAMPAIGN)}
    assert names == set(OPTIMISERS)
    assert all(hasattr(Program, action) for action in ACTIONS)


def _compiled(make: Any) -> tuple[Any, aj.Tensor, Any]:
    w = aj.tensor([1.0, -2.0], requires_grad=True)
    optimizer = make([w])

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = ((x * w) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return optimizer, w, step


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_a_checkpoint_per_epoch_captures_nothing(name: str) -> None:
    options = {"momentum": 0.9} if name != "Adam" else {}
    optimizer, w, step = _compiled(lambda params: getattr(aj.optim, name)(params, lr=0.01, **options))
    step(aj.ones(2))
    for _ in range(80):
        optimizer.load_state_dict(optimizer.state_dict())
        step(aj.ones(2))
        optimizer.state.clear()
        step(aj.ones(2))
        for group in range(len(optimizer.param_groups)):
            optimizer.param_groups[group] = dict(optimizer.param_groups[group])
        step(aj.ones(2))
    assert step.stats()["captures"] == 1, step.explain()
    assert set(optimizer.state) == {w}


def test_state_dict_after_loading_goes_on_from_what_was_loaded() -> None:
    optimizer, w, step = _compiled(lambda params: aj.optim.Adam(params, lr=0.1))
    for _ in range(2):
        step(aj.ones(2))
    optimizer.load_state_dict(optimizer.state_dict())
    for _ in range(2):
        step(aj.ones(2))
    assert optimizer.state[w]["step"].item() == 4
    assert optimizer.state_dict()["state"][0]["step"].item() == 4


def test_the_state_is_a_dictionary_as_in_torch() -> None:
    optimizer, w, step = _compiled(lambda params: aj.optim.Adam(params, lr=0.1))
    step(aj.ones(2))
    assert isinstance(optimizer.state, defaultdict)
    assert optimizer.state == {w: optimizer.state[w]}
    assert type(optimizer.state_dict()["state"][0]) is dict
    assert isinstance(optimizer.param_groups, list)
    assert isinstance(optimizer.param_groups[0]["params"], list)
