"""Products that only the sparse namespace has agree with dense formulas, with derivatives, also compiled."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj

DENSE = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
Y = np.arange(1.0, 7.0).reshape(3, 2)


def csr(requires_grad: bool = False) -> aj.Tensor:
    made = aj.tensor(DENSE).to_sparse_csr()
    return made.requires_grad_() if requires_grad else made


@pytest.mark.parametrize(
    ("reduce", "wanted"),
    [
        ("sum", [[11.0, 14.0], [9.0, 12.0], [0.0, 0.0]]),
        ("mean", [[5.5, 7.0], [9.0, 12.0], [0.0, 0.0]]),
        ("amax", [[10.0, 12.0], [9.0, 12.0], [0.0, 0.0]]),
        ("amin", [[1.0, 2.0], [9.0, 12.0], [0.0, 0.0]]),
    ],
)
def test_products_of_a_row_are_joined(reduce: str, wanted: list[list[float]]) -> None:
    assert aj.sparse.mm(csr(), aj.tensor(Y), reduce).tolist() == wanted
    compiled = aj.jit(lambda s, y: aj.sparse.mm(s, y, reduce))
    assert compiled(csr(), aj.tensor(Y)).tolist() == wanted


def test_a_mean_of_products_differentiates_by_both() -> None:
    s, y = csr(True), aj.tensor(Y, requires_grad=True)
    of_s, of_y = aj.autograd.grad(aj.sparse.mm(s, y, "mean").sum(), (s, y))
    counts = np.maximum((DENSE != 0).sum(1, keepdims=True), 1)
    pattern = (DENSE != 0) / counts
    np.testing.assert_allclose(of_s.to_dense().numpy(), pattern * Y.sum(1))
    np.testing.assert_allclose(of_y.numpy(), np.repeat((DENSE / counts).sum(0)[:, None], 2, 1))


def test_a_product_is_sampled_at_the_places_of_a_pattern() -> None:
    a, b = aj.arange(6.0, dtype=aj.float64).reshape(3, 2), aj.arange(6.0, dtype=aj.float64).reshape(2, 3)
    found = aj.sparse.sampled_addmm(csr(), a, b, beta=0.5, alpha=2.0)
    wanted = 2.0 * (a.numpy() @ b.numpy()) * (DENSE != 0) + 0.5 * DENSE
    np.testing.assert_allclose(found.to_dense().numpy(), wanted)
    assert found.layout is aj.sparse_csr
    operands = (csr(True), a.requires_grad_(), b.requires_grad_())
    assert aj.autograd.gradcheck(
        lambda s, x, y: aj.sparse.sampled_addmm(s, x, y, beta=0.5).to_dense(masked_grad=True), operands, masked=True
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="csr"):
        aj.sparse.sampled_addmm(aj.eye(2), aj.ones(2, 2), aj.ones(2, 2))
    with pytest.raises(RuntimeError, match="shapes"):
        aj.sparse.sampled_addmm(csr(), aj.ones(2, 2), aj.ones(2, 2))
    with pytest.raises(RuntimeError, match="reduce"):
        aj.sparse.mm(csr(), aj.tensor(Y), "median")
    with pytest.raises(RuntimeError, match="dimension"):
        aj.sparse.mm(csr(), aj.ones(3), "mean")
