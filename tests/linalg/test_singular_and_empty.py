"""Condition numbers of singular matrices, and norms of nothing."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

import autojit as aj

SINGULAR = aj.tensor([[1.0, 2.0], [2.0, 4.0]])


@pytest.mark.parametrize("p", ["fro", 1, -1, inf, -inf])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_singular_matrix_has_an_infinite_condition_number(p: Any, compiled: bool) -> None:
    def condition(x: aj.Tensor) -> aj.Tensor:
        return aj.linalg.cond(x, p)

    of = aj.jit(condition) if compiled else condition
    assert of(SINGULAR).item() == inf
    assert of(aj.diag(aj.tensor([1.0, 0.0]))).item() == inf, "its least sum is 0"
    both = of(aj.stack([SINGULAR, aj.eye(2)]))
    assert both[0] == inf and both[1].item() == pytest.approx(2.0 if p == "fro" else 1.0)
    assert aj.linalg.cond(aj.ones(0, 0), p).item() == 0.0


@pytest.mark.parametrize("p", [None, 2, "nuc"])
def test_by_singular_values_it_is_large(p: Any) -> None:
    assert aj.linalg.cond(SINGULAR, p).item() > 1e6


@pytest.mark.parametrize("order", [-1, -3, inf, -inf])
@pytest.mark.parametrize(("shape", "dim"), [((0,), None), ((0,), 0), ((2, 0), 1)])
def test_norms_without_an_identity_of_nothing_are_errors(order: float, shape: tuple[int, ...], dim: Any) -> None:
    with pytest.raises(RuntimeError, match="does not have an identity"):
        aj.linalg.vector_norm(aj.ones(shape), order, dim)


def test_orders_and_forms_that_there_are_not() -> None:
    for order in ("fro", "nuc"):
        with pytest.raises(RuntimeError, match="at least 2 dimensions"):
            aj.linalg.norm(aj.ones(3), order)
    with pytest.raises(RuntimeError, match="non-complex"):
        aj.linalg.vector_norm(aj.ones(3), 2j)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="floating point or complex"):
        aj.slogdet(aj.eye(2, dtype=aj.int64))
    assert aj.linalg.matrix_rank(aj.eye(2), 0.1, True).item() == 2
    assert aj.nuclear_norm(aj.eye(2), out=aj.empty(0)).item() == 2.0


def test_errors_name_the_matrix_of_the_batch_and_its_entry() -> None:
    matrices = aj.eye(3).repeat(3, 1, 1)
    matrices[1, 2, 2] = 0
    with pytest.raises(aj.linalg.LinAlgError, match=r"inv_ex: \(Batch element 1\): The diagonal element 3 is zero"):
        aj.linalg.inv_ex(matrices, check_errors=True)
    with pytest.raises(aj.linalg.LinAlgError, match="inv_ex: The diagonal element 3 is zero"):
        aj.linalg.inv_ex(matrices[1], check_errors=True)
    matrices[2, 1, 1] = -1
    with pytest.raises(aj.linalg.LinAlgError, match=r"\(Batch element 1\).*leading minor of order 3 is not positive"):
        aj.linalg.cholesky_ex(matrices, check_errors=True)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (4, 3, 2)])
def test_powers_are_those_of_square_matrices(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        RuntimeError, match=r"linalg\.matrix_power: .*(at least 2 dimensions|batches of square matrices)"
    ):
        aj.linalg.matrix_power(aj.ones(shape), 2)


def test_a_number_has_as_many_powers_as_are_asked_for() -> None:
    assert aj.linalg.vander(aj.tensor(2.0), N=3).tolist() == [[1.0, 2.0, 4.0]]
    assert aj.vmap(lambda x: aj.linalg.vander(x, N=3))(aj.tensor([2.0, 3.0])).tolist() == [[[1, 2, 4]], [[1, 3, 9]]]
    with pytest.raises(RuntimeError, match="vander: a number has no extent, so N must be given"):
        aj.linalg.vander(aj.tensor(2.0))
