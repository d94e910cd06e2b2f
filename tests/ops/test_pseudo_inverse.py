"""The pseudo-inverse meets Penrose's conditions at every rank, and its derivative does not need distinct values."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.ops import matrix_rank, pinv
from tests.ops.laws import check_derivatives
from tests.ops.running import record, run


def low_rank(rows: int, columns: int, rank: int) -> np.ndarray:
    generator = np.random.default_rng(rows * columns)
    return generator.standard_normal((rows, rank)) @ generator.standard_normal((rank, columns))


@pytest.mark.parametrize(("rows", "columns", "rank"), [(4, 4, 4), (5, 3, 2), (2, 4, 1), (3, 3, 0)])
def test_penroses_conditions_hold(rows: int, columns: int, rank: int) -> None:
    a = low_rank(rows, columns, rank)
    p = run(pinv, a)
    np.testing.assert_allclose(a @ p @ a, a, atol=1e-12)
    np.testing.assert_allclose(p @ a @ p, p, atol=1e-12)
    np.testing.assert_allclose(a @ p, (a @ p).T, atol=1e-12)
    np.testing.assert_allclose(p @ a, (p @ a).T, atol=1e-12)
    assert run(matrix_rank, a) == rank


def test_equal_singular_values_have_a_derivative() -> None:
    check_derivatives(record(pinv, np.eye(3) * 2.0), [np.eye(3) * 2.0])


def test_tolerances_decide_what_counts_as_zero() -> None:
    a = np.diag([2.0, 1.0, 1e-3])
    for given in ({"cutoff": 0.5}, {"relative": 0.3}, {"cutoff": 0.1, "hermitian": True}):
        np.testing.assert_allclose(run(lambda x, g=given: pinv(x, **g), a), np.diag([0.5, 1.0, 0.0]), atol=1e-15)
        assert run(lambda x, g=given: matrix_rank(x, **g), a) == 2
    negative = np.diag([-2.0, 1.0])
    np.testing.assert_allclose(run(lambda x: pinv(x, hermitian=True), negative), np.diag([-0.5, 1.0]), atol=1e-15)
