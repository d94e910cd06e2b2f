"""Kernels that differ in numbers alone are one kernel, and compute what each of them would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj

ROUNDS = 12


def stencil(x: aj.Tensor, k: int) -> aj.Tensor:
    return x + (0.1 + k / 64) * (x.roll(1) + x.roll(-1) - 2.0 * x)


def centred(x: aj.Tensor, k: int) -> aj.Tensor:
    """A reduction in between, numbers that are compared and chosen."""
    y = aj.where(x > k / 8 - 1, x / (1.5 + k), 0.25 * k) - 1e-3 * k
    return y - y.mean()


def powers(x: aj.Tensor, k: int) -> aj.Tensor:
    """Exponents change the code, factors do not."""
    y = (x * x + 1.0 + k) ** (0.5 + k / 4)
    return y / y.max()


def single(x: aj.Tensor, k: int) -> aj.Tensor:
    return centred(x.float(), k).double() * (1.0 + k)


def distinct_kernels(round_of: Callable[[aj.Tensor, int], aj.Tensor], x: aj.Tensor) -> int:
    def step(x: aj.Tensor) -> aj.Tensor:
        for k in range(ROUNDS):
            x = round_of(x, k)
        return x

    compiled = aj.jit(step)
    np.testing.assert_allclose(compiled(x).numpy(), step(x).numpy(), rtol=1e-10 if round_of is not single else 1e-4)
    np.testing.assert_array_equal(compiled(x).numpy(), compiled(x).numpy())
    return len(set(str(compiled.show("llvm")).split("define void @kernel(")))


@pytest.mark.parametrize("round_of", [stencil, centred, single], ids=lambda f: f.__name__)
def test_rounds_with_numbers_of_their_own_share_a_kernel(round_of: Callable[[aj.Tensor, int], aj.Tensor]) -> None:
    x = aj.tensor(np.random.default_rng(0).normal(size=(4, 40)))
    assert distinct_kernels(round_of, x) < ROUNDS


def test_exponents_stay_in_the_code() -> None:
    x = aj.tensor(np.random.default_rng(0).normal(size=40))
    assert distinct_kernels(powers, x) >= ROUNDS
