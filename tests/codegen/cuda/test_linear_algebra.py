"""Linear algebra on the emulated device: what LAPACK says, of matrices in shared memory and in the device's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.codegen.cuda import matrices
from autojit.codegen.report_sites import FAILURE_SITE
from autojit.ir.op import Op
from autojit.ops.decompositions import Qr
from autojit.ops.definiteness import FirstBadMinor
from autojit.ops.linalg import Cholesky, Cofactor, Det, Inv, Slogdet, Solve, TriangularSolve
from autojit.ops.reflections import Geqrf
from autojit.ops.triangular_factors import LuPivots, LuSquare, PivotOrder
from tests.codegen.cuda.emulated import ORDERS
from tests.codegen.cuda.test_structured import computed
from tests.covering import covering

Array = np.ndarray[Any, Any]

SHAPES = ((1, 1), (3, 2, 2), (2, 9, 9), (0, 3, 3))


@pytest.fixture(params=["shared", "global"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where blocks have their matrices, whatever their size."""
    if request.param == "global":
        monkeypatch.setattr(matrices, "SHARED_BYTES", 0)


def _agrees(op: Op, *operands: Array) -> None:
    """The kernel's results are those of the eager rule, up to what rounding does to well-conditioned matrices."""
    expected = op.eager(*operands)
    tolerance = 500 * float(np.finfo(operands[0].dtype).eps)
    for order in ORDERS:
        found, words = computed(op, operands, order)
        assert not words.any()
        for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert one.dtype == other.dtype
            assert np.allclose(
                one, other, tolerance, tolerance * np.max(np.abs(other), initial=1.0, where=np.isfinite(other))
            ), (op, one, other)


@covering("shape, dtype", SHAPES, [np.float32, np.float64], every=2)
def test_factors_and_solutions(shape: tuple[int, ...], dtype: Any, memory: None) -> None:
    generator, n = np.random.default_rng(shape[-1]), shape[-1]
    any_matrix = generator.normal(size=shape).astype(dtype)
    right = generator.normal(size=(*shape[:-1], 3)).astype(dtype)
    regular = (any_matrix + 3 * np.sqrt(n) * np.eye(n)).astype(dtype)
    definite = (any_matrix @ any_matrix.swapaxes(-1, -2) + np.eye(n)).astype(dtype)
    _agrees(Cholesky(), definite)
    _agrees(Solve(), regular, right)
    _agrees(Inv(), regular)
    _agrees(Det(), regular / 4)
    _agrees(Slogdet(), any_matrix)
    _agrees(LuSquare(), regular)
    _agrees(Cofactor(), any_matrix)
    for matrix in (any_matrix, right, right.swapaxes(-1, -2)):
        _agrees(Geqrf(), np.ascontiguousarray(matrix))
        if matrix.shape[-2] >= matrix.shape[-1]:
            _agrees(Qr(), np.ascontiguousarray(matrix))
    _agrees(TriangularSolve(True), regular, right)
    _agrees(TriangularSolve(False, True), regular / 9, right)
    for matrix in (definite, any_matrix):
        _agrees(FirstBadMinor(), matrix)
    for matrix in (any_matrix, right, right.swapaxes(-1, -2)):
        _agrees(LuPivots(False), np.ascontiguousarray(matrix))


def test_right_sides_of_several_blocks() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 6, 6)) + 5 * np.eye(6), generator.normal(size=(2, 6, 70))
    for op in (TriangularSolve(True), TriangularSolve(False), Solve()):
        _agrees(op, a, b)


@pytest.mark.parametrize("rank", [0, 2, 3, 4])
def test_cofactors_of_singular_matrices(rank: int) -> None:
    left, right = np.random.default_rng(rank).normal(size=(2, 4, rank))
    (found,), _ = computed(Cofactor(), (left @ right.T,), 1)
    assert np.allclose(found, Cofactor().eager(left @ right.T), atol=1e-12)
    minors = np.delete(np.delete(left @ right.T, 1, 0), 2, 1)
    assert np.isclose(found[1, 2], -np.linalg.det(minors), atol=1e-12)


def test_the_order_of_rows() -> None:
    pivots = np.array([[2, 3, 3], [3, 2, 4]], np.int32)
    for rows in (3, 5):
        found, _ = computed(PivotOrder(rows), (np.minimum(pivots, rows),), 1)
        assert np.array_equal(found[0], PivotOrder(rows).eager(np.minimum(pivots, rows)))


def test_exchanges_take_the_first_of_equal_rows_and_leave_columns_of_zeros() -> None:
    ties = np.array([[1.0, 2, 3], [-1, 0, 0], [1, 5, 5]])
    empty = np.array([[0.0, 1, 2], [0, 3, 4], [0, 0, 0]])
    for matrix in (ties, empty, np.zeros((4, 4))):
        _agrees(LuPivots(False), matrix)
        _agrees(Slogdet(), matrix)
        _agrees(Det(), matrix)


@pytest.mark.parametrize(
    ("op", "good", "bad", "more"),
    [
        (Cholesky(), np.eye(3), -np.eye(3), 0),
        (Inv(), np.eye(3), np.ones((3, 3)), 0),
        (Solve(), np.eye(3), np.zeros((3, 3)), 1),
        (TriangularSolve(True), np.eye(3), np.diag([1.0, 0, 1]), 1),
        (LuPivots(True), np.eye(3), np.zeros((3, 3)), 0),
    ],
    ids=str,
)
def test_a_matrix_without_a_result_is_reported(op: Op, good: Array, bad: Array, more: int) -> None:
    rights = [np.ones((2, 3, 2))] * more
    _, words = computed(op, (bad, *[b[0] for b in rights]), 1)
    assert (int(words[0]), int(words[1])) == (FAILURE_SITE, 1)
    _, words = computed(op, (np.stack([good, bad]), *rights), 1)
    assert int(words[1]) == 1 + 2, "matrix 1 of a batch"
    assert "Batch element 1" in str(op.failure(3))  # type: ignore[attr-defined]
