from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.ir import evaluate
from autojit.ops import cummax, cummin, cumprod, cumsum, linear_recurrence, logcumsumexp
from autojit.transforms.adjoint import adjoint
from tests.ops.running import normal, record, run


def test_scans_agree_with_numpy() -> None:
    x = normal(3, 5)
    np.testing.assert_allclose(run(lambda x: cumsum(x, -1), x), np.cumsum(x, -1))
    np.testing.assert_allclose(run(lambda x: cumprod(x, 0, reverse=True), x), np.cumprod(x[::-1], 0)[::-1])
    np.testing.assert_allclose(run(lambda x: logcumsumexp(x, 1), x), np.log(np.cumsum(np.exp(x), 1)))


def test_logcumsumexp_neither_overflows_nor_turns_minus_infinity_into_nan() -> None:
    x = np.array([-np.inf, 1000.0, 1000.0, -np.inf])
    np.testing.assert_allclose(
        run(lambda x: logcumsumexp(x, 0), x), [-np.inf, 1000, 1000 + np.log(2), 1000 + np.log(2)]
    )
    backward = adjoint(record(lambda x: logcumsumexp(x, 0), x))
    (x_bar,) = evaluate(backward, [x, np.array([0.0, 0, 0, 1])])
    np.testing.assert_allclose(x_bar, [0, 0.5, 0.5, 0])


def test_extremes_name_the_latest_place_and_keep_nan() -> None:
    x = np.array([1.0, 3.0, 2.0, 3.0, np.nan, 5.0])
    values, places = run(lambda x: cummax(x, 0), x)
    np.testing.assert_array_equal(values, [1, 3, 3, 3, np.nan, np.nan])
    np.testing.assert_array_equal(places, [0, 1, 1, 3, 4, 4])
    values, places = run(lambda x: cummin(x, 0), -x)
    np.testing.assert_array_equal(places, [0, 1, 1, 3, 4, 4])


def test_the_gradient_of_cumprod_is_right_at_zeros() -> None:
    x = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
    (x_bar,) = evaluate(adjoint(record(lambda x: cumprod(x, 0), x)), [x, np.ones(5)])
    np.testing.assert_allclose(x_bar, [1, 2 + 6, 0, 0, 0])


@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence_agrees_with_a_loop(reverse: bool) -> None:
    a, b = normal(6), normal(6, seed=1)
    s, expected = 0.0, np.empty(6)
    for i in reversed(range(6)) if reverse else range(6):
        s = expected[i] = a[i] * s + b[i]
    np.testing.assert_allclose(run(lambda a, b: linear_recurrence(a, b, 0, reverse), a, b), expected)


def test_integers_keep_their_dtype() -> None:
    x = np.array([100, 100, 100], np.int8)
    assert run(lambda x: cumsum(x, 0), x).dtype == np.int8


@pytest.mark.parametrize("shape", [(100_000,), (100_000, 1), (3, 5000, 70), (5000, 1100), (1, 1), (0, 3)])
@pytest.mark.parametrize("kind", ["cumsum", "cumprod"])
def test_running_folds_of_float32_are_kept_in_float64(shape: tuple[int, ...], kind: str) -> None:
    rng = np.random.default_rng(3)
    array = (rng.random(shape) if kind == "cumsum" else 1 + 1e-4 * rng.standard_normal(shape)).astype(np.float32)
    axis = int(np.argmax(shape))
    exact = getattr(np, kind)(array.astype(np.float64), axis)

    def function(x: Any) -> Any:
        return getattr(x, kind)(axis)

    x = aj.from_numpy(array)
    eager, compiled = function(x).numpy(), aj.jit(function)(x).numpy()
    assert np.array_equal(eager, compiled)
    assert np.allclose(compiled, exact, rtol=2.0**-23, atol=0)
