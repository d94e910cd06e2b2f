"""Random tensors repeat with the seed, continue from a saved state, and have the distribution they claim."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj


def draw() -> list[np.ndarray]:
    drawn = [
        aj.rand(5),
        aj.randn(3, 2),
        aj.randint(0, 9, (4,)),
        aj.randperm(6),
        aj.bernoulli(aj.full((5,), 0.3)),
        aj.multinomial(aj.ones(4), 2),
        aj.zeros(3).uniform_(1, 2),
    ]
    return [t.numpy() for t in drawn]


def test_a_seed_repeats_everything() -> None:
    aj.manual_seed(7)
    first = draw()
    aj.manual_seed(7)
    for a, b in zip(first, draw(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_saved_state_continues() -> None:
    aj.manual_seed(1)
    aj.rand(10)
    saved = aj.get_rng_state()
    expected = aj.rand(10)
    aj.set_rng_state(saved)
    assert aj.equal(aj.rand(10), expected)


def test_what_is_drawn_is_a_view_of_nothing(device: str) -> None:
    like = aj.ones(2, 3, device=device)
    drawn = [aj.rand(2, 3, device=device), aj.randn(6, device=device), aj.rand_like(like), aj.randn_like(like)]
    assert [x._is_view() for x in drawn] == [False] * 4
    x = aj.rand(2, device=device)
    assert x[:]._base is x


def test_generators_are_independent_of_the_default_one() -> None:
    own = aj.Generator().manual_seed(3)
    expected = aj.rand(4, generator=aj.Generator().manual_seed(3))
    aj.rand(100)
    assert aj.equal(aj.rand(4, generator=own), expected)


def test_generators_that_a_step_makes_are_new_in_every_call_unless_somebody_keeps_them() -> None:
    kept: list[aj.Generator] = []

    def made(x: aj.Tensor) -> aj.Tensor:
        generator = aj.Generator()
        return x + aj.rand(3, generator=generator) - aj.rand(3, generator=generator)

    def found(x: aj.Tensor) -> aj.Tensor:
        if not kept:
            kept.append(aj.Generator())
        return x + aj.rand(3, generator=kept[0])

    for function in (made, found):
        step, x = aj.jit(function), aj.zeros(3)
        compiled = [step(x).tolist() for _ in range(4)]
        kept.clear()
        assert compiled == [function(x).tolist() for _ in range(4)]
        assert (compiled[0] == compiled[1]) == (function is made)
        kept.clear()


def test_seeds_of_the_system_are_new_in_every_call_of_a_step() -> None:
    @aj.jit
    def step() -> aj.Tensor:
        generator = aj.Generator()
        generator.seed()
        return aj.rand(3, generator=generator)

    assert len({step().tolist()[0] for _ in range(4)}) == 4
    assert "asks the system for a seed" in str(step.explain())


def test_moments() -> None:
    aj.manual_seed(0)
    uniform, gaussian = aj.rand(100_000, dtype=aj.float64), aj.randn(100_000, dtype=aj.float64)
    assert 0 <= float(uniform.min())
    assert float(uniform.max()) < 1
    assert abs(float(uniform.mean()) - 0.5) < 0.005
    assert abs(float(gaussian.mean())) < 0.02
    assert abs(float(gaussian.std()) - 1) < 0.02
    assert sorted(aj.randperm(50).tolist()) == list(range(50))
    assert set(aj.randint(2, 5, (1000,)).tolist()) == {2, 3, 4}


def test_drawing_does_not_disturb_saved_tensors() -> None:
    x = aj.ones(3, requires_grad=True)
    y = (x * aj.rand(3)).sum()
    aj.rand(3)
    y.backward()
    assert x.grad is not None


def test_parameters_of_a_distribution_have_slope_zero_not_none() -> None:
    mean, std = aj.zeros(3, requires_grad=True), aj.ones(3, requires_grad=True)
    for draw, leaves in ((aj.normal(mean, std), [mean, std]), (aj.bernoulli(std), [std])):
        for slope in aj.autograd.grad(draw.sum(), leaves):
            assert slope.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    "draw",
    [
        lambda: aj.normal(aj.zeros(2), -1.0),
        lambda: aj.normal(aj.zeros(2), aj.tensor([1.0, -1.0])),
        lambda: aj.zeros(2).normal_(0, -1),
        lambda: aj.zeros(2).uniform_(1, 0),
        lambda: aj.zeros(2).exponential_(-1.0),
        lambda: aj.bernoulli(aj.tensor([1.5])),
        lambda: aj.multinomial(aj.tensor([1, 2]), 1),
        lambda: aj.multinomial(aj.tensor([1.0, 2.0]), 0),
        lambda: aj.multinomial(aj.tensor([1.0, -2.0]), 1),
        lambda: aj.multinomial(aj.tensor([0.0, 0.0]), 1, replacement=True),
    ],
)
def test_impossible_parameters_are_runtime_errors(draw: Callable[[], aj.Tensor]) -> None:
    with pytest.raises(RuntimeError):
        draw()
