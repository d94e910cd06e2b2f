"""A schedule made after a step was compiled: no order warning, no second capture."""

from __future__ import annotations

import autojit as aj
from autojit import nn


def test_a_schedule_can_follow_the_first_compiled_steps() -> None:
    aj.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = aj.optim.AdamW(model.parameters(), lr=0.01)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    x = aj.ones(4, 3)
    for _ in range(3):
        step(x)
    schedule = aj.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    model.eval()
    model.train()  # the compiled step looks at all its guards again
    for _ in range(3):
        step(x)
        schedule.step()  # a warning would fail the test
    assert step.stats()["captures"] == 1
    assert optimizer.param_groups[0]["lr"] == 0.01 * 0.5**3


def test_what_the_optimiser_itself_relies_on_is_still_guarded() -> None:
    weight = nn.Parameter(aj.ones(2))
    optimizer = aj.optim.SGD([weight], lr=0.5)
    before = optimizer._guard_snapshot()
    optimizer.param_groups[0]["note"] = 3.0
    assert optimizer._guard_snapshot() == before
    optimizer.param_groups[0]["nesterov"] = True
    assert optimizer._guard_snapshot() != before
