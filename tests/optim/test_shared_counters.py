"""Parameters that step together share one counter; those that do not keep counts of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.optim.known_steps import TIMES

OPTIMISERS: dict[str, Callable[..., Any]] = {
    "Adam": aj.optim.Adam,
    "AdamW": aj.optim.AdamW,
    "Adamax": aj.optim.Adamax,
    "NAdam": aj.optim.NAdam,
    "RAdam": aj.optim.RAdam,
}


def parameters() -> list[aj.Tensor]:
    generator = np.random.default_rng(0)
    return [aj.tensor(generator.normal(size=n), requires_grad=True) for n in (3, 4, 2)]


def alone(make: Callable[..., Any], p: aj.Tensor, steps: list[bool]) -> aj.Tensor:
    """The parameter after the steps in which it has a gradient, with an optimiser of its own."""
    p = p.detach().clone().requires_grad_()
    optimiser = make([p], lr=0.05)
    for takes_part in steps:
        p.grad = p.detach() * 0.5 + 1.0 if takes_part else None
        optimiser.step()
    return p.detach()


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_every_parameter_moves_as_with_an_optimiser_of_its_own(name: str, is_compiled: bool) -> None:
    make = OPTIMISERS[name]
    together = parameters()
    optimiser = make(together, lr=0.05)
    takes_part = [[True, True, False], [True, False, True], [True, True, True], [False, True, True], [True, True, True]]

    def step(who: list[bool]) -> None:
        for p, moves in zip(together, who, strict=True):
            p.grad = p.detach() * 0.5 + 1.0 if moves else None
        optimiser.step()

    run = aj.jit(step) if is_compiled else step
    for who in takes_part:
        run(who)
    for k, (p, start) in enumerate(zip(together, parameters(), strict=True)):
        expected = alone(make, start, [who[k] for who in takes_part])
        np.testing.assert_allclose(p.detach().numpy(), expected.numpy(), rtol=1e-6)
        assert optimiser.state[p]["step"].item() == sum(who[k] for who in takes_part)


MORE = {**OPTIMISERS, "RMSprop": aj.optim.RMSprop, "Adadelta": aj.optim.Adadelta, "Rprop": aj.optim.Rprop}


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("how", ["eager", "compiled", "known"])
def test_parameters_that_leave_their_group_and_come_back_keep_their_counts(name: str, how: str) -> None:
    """Whether another takes the place of one in its group, or the group itself goes for a while."""
    first, second, third = together = parameters()
    optimiser = MORE[name]([first, second], lr=0.05)

    def step() -> None:
        for p in together:
            p.grad = p.detach() * 0.5 + 1.0
        optimiser.step()

    run = aj.jit(step) if how == "compiled" else step
    steps = TIMES + 8 if how == "known" else 3
    group = optimiser.param_groups[0]
    counts = [0, 0, 0]
    for members in ([first, second], [first, third], [first, second], [third], [second, third, first], [first, second]):
        if members == [third]:
            optimiser.param_groups.remove(group)
            optimiser.add_param_group({"params": members})
        elif len(members) == 3:
            optimiser.param_groups.append(group)
        else:
            del optimiser.param_groups[:]
            optimiser.param_groups.append(group)
            group["params"] = members
        for _ in range(steps):
            run()
        counts = [n + steps * any(p is q for q in members) for n, p in zip(counts, together, strict=True)]
        for p, n in zip(together, counts, strict=True):
            assert p not in optimiser.state or optimiser.state[p]["step"].item() == n
    assert counts == [5 * steps, 4 * steps, 3 * steps]


def test_a_compiled_step_counts_once_for_all() -> None:
    together = parameters()
    optimiser = aj.optim.Adam(together)

    @aj.jit
    def step() -> None:
        for p in together:
            p.grad = p.detach() * 0.5
        optimiser.step()

    state = vars(optimiser)["state"]  # as nobody from outside sees it
    for count in range(1, 4):
        step()
        assert [state[p]["step"].item() for p in together] == [count] * 3
    assert len({id(state[p]["step"]) for p in together}) == 1
    assert step.show("graph").count("pow") == 2


HOW = ["eager", "compiled", "known"]


def moved_by(optimiser: Any, together: list[aj.Tensor], how: str) -> Callable[[int], None]:
    def step() -> None:
        for p in together:
            p.grad = p.detach() * 0.5 + 1.0
        optimiser.step()

    run = aj.jit(step) if how == "compiled" else step

    def several(times: int) -> None:
        for _ in range(times + (TIMES + 8 if how == "known" else 0)):
            run()

    return several


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("how", HOW)
def test_what_is_written_to_the_count_of_one_parameter_is_of_no_other(name: str, how: str) -> None:
    found, expected = [], []
    for owns in (False, True):
        together = parameters()
        optimisers = [MORE[name]([p], lr=0.05) for p in together] if owns else [MORE[name](together, lr=0.05)]
        runs = [moved_by(one, together[k : k + 1] if owns else together, how) for k, one in enumerate(optimisers)]
        for times in (3, 2, 4):
            for run in runs:
                run(times)
            state = optimisers[1 if owns else 0].state[together[1]]
            for value in state.values():
                if isinstance(value, aj.Tensor):
                    value.mul_(0.5).round_()
        (expected if owns else found).extend(p.detach().numpy() for p in together)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("how", HOW)
def test_state_that_goes_to_another_optimiser_counts_on_there_alone(how: str) -> None:
    first, second = together = parameters()[:2]
    old = aj.optim.Adam(together, lr=0.05)
    moved_by(old, together, how)(3)
    counts = [old.state[p]["step"].item() for p in together]
    new = aj.optim.Adam([second], lr=0.05)
    new.state[second] = old.state.pop(second)
    old.param_groups[0]["params"] = [first]
    moved_by(old, [first], how)(2)
    assert new.state[second]["step"].item() == counts[1]
    moved_by(new, [second], how)(1)
    assert new.state[second]["step"].item() > counts[1]
    assert old.state[first]["step"].item() > counts[0]


def test_saved_and_loaded_state_counts_on() -> None:
    together = parameters()
    optimiser = aj.optim.Adam(together)
    for p in together:
        p.grad = aj.ones_like(p)
    optimiser.step()
    other = parameters()
    loaded = aj.optim.Adam(other)
    loaded.load_state_dict(optimiser.state_dict())
    for p in other:
        p.grad = aj.ones_like(p)
    loaded.step()
    assert [loaded.state[p]["step"].item() for p in other] == [2.0] * 3
    assert [optimiser.state[p]["step"].item() for p in together] == [1.0] * 3
