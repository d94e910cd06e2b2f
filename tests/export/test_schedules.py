"""Schedules inside of exported steps: a library goes on as the process does, for as many calls as it was made for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.optim import lr_scheduler

CALLS = 7
Made = tuple[Callable[..., Any], Any]

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda opt: lr_scheduler.ExponentialLR(opt, 0.5),
    "steps": lambda opt: lr_scheduler.StepLR(opt, 3),
    "cosine": lambda opt: lr_scheduler.CosineAnnealingLR(opt, CALLS + 1),
    "lambda": lambda opt: lr_scheduler.LambdaLR(opt, lambda epoch: 1.0 / (epoch + 1)),
    "one cycle": lambda opt: lr_scheduler.OneCycleLR(opt, 0.1, total_steps=2 * CALLS),
    "sequential": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.ConstantLR(opt, 0.5), lr_scheduler.ExponentialLR(opt, 0.5)], [2]
    ),
    "chained": lambda opt: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(opt, 0.5, 2), lr_scheduler.ExponentialLR(opt, 0.9)]
    ),
}


def made(name: str) -> Made:
    aj.manual_seed(0)
    model = aj.nn.Linear(3, 2)
    optimizer = aj.optim.Adam([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.03}], lr=0.05)
    schedule = SCHEDULES[name](optimizer)

    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step, optimizer


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_library_moves_its_schedules_on(name: str, tmp_path: Path) -> None:
    x = aj.tensor(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))
    step, optimizer = made(name)
    run = aj.jit(step)
    run(x)  # a library goes on from there
    aj.export.export(run, (x,), schedule_steps=CALLS).save(tmp_path / "step")
    library = aj.export.load(tmp_path / "step")
    for _ in range(CALLS):
        assert library(x.numpy()).tobytes() == run(x).numpy().tobytes()
        rates = [float(library.state[f"optimizer.param_groups.{k}.lr"]) for k in range(2)]
        assert rates == [group["lr"] for group in optimizer.param_groups]
    before = {key: value.tobytes() for key, value in library.state_dict().items()}
    with pytest.raises(Exception, match=r"test_schedules\.py"):
        library(x.numpy())
    assert {key: value.tobytes() for key, value in library.state_dict().items()} == before


def test_what_a_table_cannot_be_is_told() -> None:
    x = aj.ones(4, 3)
    step, _ = made("exponential")
    with pytest.raises(aj.export.ExportError, match="schedule_steps"):
        aj.export.export(step, (x,))
    step, _ = made("cosine")
    aj.export.export(step, (x,), schedule_steps=CALLS + 1)  # the rate that is 0 is for the call after the last
    with pytest.raises(RuntimeError, match=rf"another sign[\s\S]*schedule_steps be {CALLS + 1} at most"):
        aj.export.export(step, (x,), schedule_steps=CALLS + 3)
