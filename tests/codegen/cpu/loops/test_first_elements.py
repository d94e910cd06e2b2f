"""Kernels that read slices at different places are one kernel, and compute what each of them would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj

Round = Callable[[aj.Tensor, aj.Tensor, int], aj.Tensor]


def step_of(state: aj.Tensor, steps: aj.Tensor, k: int) -> aj.Tensor:
    return aj.tanh(state + steps[k])


def neighbours(state: aj.Tensor, steps: aj.Tensor, k: int) -> aj.Tensor:
    """Several places of one buffer, one of them behind a guard."""
    shifted = aj.nn.functional.pad(steps[k], (1, 0))[:, :-1]
    return state * steps[k + 1].flip(-1) - shifted


def looked_up(state: aj.Tensor, steps: aj.Tensor, k: int) -> aj.Tensor:
    """Rows and the elements found in them begin at the round's place."""
    found = (10 * steps[k]).abs().long() % steps.shape[-1]
    return aj.sin(state) + aj.gather(steps[k], -1, found)


def texts(round_of: Round, rounds: int) -> set[str]:
    """The kernels of a loop, whose gradient is taken, too."""
    rng = np.random.default_rng(0)
    steps = aj.tensor(rng.normal(size=(rounds + 1, 3, 7)), requires_grad=True)
    state = aj.tensor(rng.normal(size=(3, 7)), requires_grad=True)

    def step(state: aj.Tensor, steps: aj.Tensor) -> tuple[aj.Tensor, ...]:
        after, means = state, []
        for k in range(rounds):
            after = round_of(after.roll(1, -1), steps, k)  # it reads elsewhere than it writes: a kernel of its own
            means.append(after.mean())
        (slope,) = aj.autograd.grad(aj.stack(means).sum(), (state,))
        return after.detach(), slope

    compiled = aj.jit(step)
    for found, expected in zip(compiled(state, steps), step(state, steps), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-11, atol=1e-13)
    return set(str(compiled.show("llvm")).split("define void @kernel("))


@pytest.mark.parametrize("round_of", [step_of, neighbours, looked_up], ids=lambda f: f.__name__)
def test_more_rounds_make_no_more_kernels(round_of: Round) -> None:
    assert len(texts(round_of, 9)) <= len(texts(round_of, 6))
