"""Sobol points: the sequence is SciPy's in whatever way points are asked for, and no step keeps any for later calls."""

from __future__ import annotations

import pytest
from scipy.stats import qmc

import autojit as aj
from autojit.quasirandom import SobolEngine


@pytest.mark.parametrize("dimension", [1, 3, 50])
@pytest.mark.parametrize("scramble", [False, True])
def test_points_are_the_same_however_they_are_asked_for(dimension: int, scramble: bool) -> None:
    wanted = aj.from_numpy(qmc.Sobol(dimension, scramble=scramble, bits=30, seed=3).random(16)).float()
    engine = SobolEngine(dimension, scramble, seed=3)
    aj.testing.assert_close(aj.cat([engine.draw(5), engine.draw(1), engine.draw(10)]), wanted, rtol=0, atol=0)
    assert engine.num_generated == 16 and engine.reset().num_generated == 0
    aj.testing.assert_close(engine.draw_base2(4), wanted, rtol=0, atol=0)
    aj.testing.assert_close(engine.reset().fast_forward(9).draw(3), wanted[9:12], rtol=0, atol=0)
    out = aj.empty(0)
    assert engine.draw(2, out=out) is out and aj.equal(out, wanted[12:14])
    assert engine.draw(2, dtype=aj.float64).dtype is aj.float64


def test_numbers_of_points_and_dimensions_are_checked() -> None:
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="require n to be a power of 2"):
        engine.draw_base2(2)
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match="Supported range of dimensionality"):
            SobolEngine(dimension)
    assert repr(SobolEngine(2, scramble=True, seed=4)) == "SobolEngine(dimension=2, scramble=True, seed=4)"


def test_scrambling_follows_the_generator() -> None:
    def drawn() -> aj.Tensor:
        aj.manual_seed(1)
        return SobolEngine(2, scramble=True).draw(4)

    assert aj.equal(drawn(), drawn())


def test_a_step_draws_no_points_that_later_calls_would_have_again() -> None:
    engine = SobolEngine(2)
    step = aj.jit(lambda x: x + engine.draw(1))
    with pytest.raises(RuntimeError, match="points are drawn outside of steps"):
        step(aj.zeros(1, 2))
