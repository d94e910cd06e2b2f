"""What schedules warn of, and what of them is saved and given back."""

from __future__ import annotations

import copy
import pickle
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.optim import SGD, Optimizer, lr_scheduler


def optimizer(lr: float = 0.4) -> Optimizer:
    parameter = aj.nn.Parameter(aj.zeros(1))
    parameter.grad = aj.ones(1)
    return SGD([parameter], lr=lr, momentum=0.9)


MADE: dict[str, Callable[[Optimizer], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.4, 3),
    "exp_range": lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.4, 3, mode="exp_range", gamma=0.9),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.4, total_steps=20, three_phase=True),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "chained": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2), lr_scheduler.ExponentialLR(o, 0.9)]),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o)]), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
}


def rates(schedule: Any, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        schedule.optimizer.step()
        schedule.step()
        found += schedule.get_last_lr()
    return found


@pytest.mark.filterwarnings("ignore:Detected call")  # a nested schedule's first step, which torch warns of too
@pytest.mark.parametrize("kind", MADE)
def test_a_saved_schedule_goes_on_where_it_was(kind: str) -> None:
    one, other = MADE[kind](optimizer()), MADE[kind](optimizer())
    rates(one, 4)
    other.load_state_dict(pickle.loads(pickle.dumps(one.state_dict())))
    other.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))
    for group, saved in zip(other.optimizer.param_groups, one.optimizer.param_groups, strict=True):
        group["lr"] = saved["lr"]
    assert rates(one, 6) == rates(other, 6)
    kept = {name: value for name, value in vars(one).items() if name not in ("optimizer", "_schedulers")}
    if kind not in ("cyclic", "exp_range"):  # which keep a function
        assert kept == {name: vars(other)[name] for name in kept}


@pytest.mark.parametrize("kind", ["step", "restarts"])
def test_a_given_epoch_is_warned_of_and_counts(kind: str) -> None:
    one, other = MADE[kind](optimizer()), MADE[kind](optimizer())
    one.optimizer.step()
    with (
        pytest.warns(UserWarning, match=r"epoch parameter in `scheduler\.step\(\)`")
        if kind == "step"
        else (warnings.catch_warnings())
    ):
        one.step(5)
    rates(other, 5)
    assert one.get_last_lr() == pytest.approx(other.get_last_lr())


def test_a_step_put_over_the_optimisers_is_told() -> None:
    schedule = MADE["step"](optimizer())
    schedule.optimizer.step = types.MethodType(lambda self: None, schedule.optimizer)
    schedule.optimizer.step()
    with pytest.warns(UserWarning, match=r"(?s)overridden.*how-to-adjust-learning-rate"):
        schedule.step()


def test_hyper_parameters_given_as_tensors_are_copied() -> None:
    low, high = aj.tensor(0.1), aj.tensor(0.4)
    schedule = lr_scheduler.CyclicLR(optimizer(), low, high, 3)
    low.mul_(2)
    high.mul_(2)
    assert schedule.base_lrs == pytest.approx([0.1]) and schedule.max_lrs == pytest.approx([0.4])


def test_a_plateau_follows_added_groups_unless_lists_were_given() -> None:
    for min_lr in (0.0, [0.0]):
        one = optimizer()
        schedule = lr_scheduler.ReduceLROnPlateau(one, patience=0, min_lr=min_lr)
        one.add_param_group({"params": [aj.nn.Parameter(aj.zeros(1))], "lr": 0.2})
        schedule.step(1.0)
        if isinstance(min_lr, list):
            with pytest.raises(RuntimeError, match=r"param groups in the `optimizer` .2. differs"):
                schedule.step(1.0)
        else:
            schedule.step(1.0)
            assert schedule.get_last_lr() == pytest.approx([0.04, 0.02])


@pytest.mark.parametrize(
    "make",
    [
        lambda p: aj.optim.Adam([p], lr=0.9, amsgrad=True, differentiable=True),
        lambda p: aj.optim.AdamW([p], lr=0.9, amsgrad=True, differentiable=True),
        lambda p: aj.optim.NAdam([p], lr=0.9, differentiable=True),
    ],
)
def test_a_differentiable_step_has_the_derivatives_of_its_states(make: Callable[[aj.Tensor], Optimizer]) -> None:
    generator = aj.Generator().manual_seed(0)

    def drawn() -> aj.Tensor:
        return aj.rand(4, generator=generator, dtype=aj.float64).requires_grad_()

    names = list(make(drawn()).defaults)
    assert "differentiable" in names
    first, second, greatest = drawn(), drawn(), drawn()
    product = aj.tensor(1.0, dtype=aj.float64, requires_grad=True)

    def stepped(p: aj.Tensor, grad: aj.Tensor, *states: aj.Tensor) -> aj.Tensor:
        p = p.clone()
        p.grad = grad
        optimizer = make(p)
        state = dict(zip(("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "mu_product"), states, strict=True))
        kept = {name: value.clone() for name, value in state.items()}
        optimizer.state[p].update({"step": aj.tensor(10.0), **kept})
        optimizer.step()
        return p

    assert aj.autograd.gradcheck(stepped, (drawn(), drawn(), first, second, greatest, product))
