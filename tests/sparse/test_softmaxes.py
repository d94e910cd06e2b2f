"""Softmax of sparse tensors: that of the kept elements, whichever axes are sparse, with its derivative."""

from __future__ import annotations

import pytest

import autojit as aj

KEPT = (aj.arange(24) % 3 != 1).view(2, 3, 4)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("sparse_dim", [1, 2, 3])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_kept_elements_are_normalised(name: str, sparse_dim: int, dim: int, compiled: bool) -> None:
    function = getattr(aj.sparse, name)
    aj.manual_seed(0)
    x = aj.where(KEPT, aj.randn(2, 3, 4, dtype=aj.float64), 0)
    kept = x.to_sparse(sparse_dim).to_dense().ne(0) if sparse_dim == 3 else aj.ones(2, 3, 4, dtype=aj.bool)
    weights = aj.randn(2, 3, 4, dtype=aj.float64)

    def found(values: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        s = aj.sparse_coo_tensor(pattern.indices(), values, (2, 3, 4), is_coalesced=True)
        y = function(s, dim).to_dense()
        return y.detach(), aj.autograd.grad((y * weights).sum(), values)[0]

    def expected(values: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        s = aj.sparse_coo_tensor(pattern.indices(), values, (2, 3, 4), is_coalesced=True).to_dense()
        full = getattr(s.masked_fill(~kept, -1e30), name)(dim)
        y = aj.where(kept, full, 0)
        return y.detach(), aj.autograd.grad((y * weights).sum(), values)[0]

    pattern = x.to_sparse(sparse_dim).coalesce()
    values = pattern.values().detach().requires_grad_()
    for a, b in zip((aj.jit(found) if compiled else found)(values), expected(values), strict=True):
        aj.testing.assert_close(a, b)


def test_what_has_no_softmax_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a sparse COO tensor"):
        aj.sparse.softmax(aj.ones(2, 2), 1)
    with pytest.raises(IndexError, match="out of range"):
        aj.sparse.log_softmax(aj.ones(2, 2).to_sparse(), 2)
    with pytest.raises(RuntimeError, match="pass dtype"):
        aj.sparse.softmax(aj.ones(2, 2, dtype=aj.int64).to_sparse(), 1)
    assert aj.sparse.softmax(aj.ones(2, 2, dtype=aj.int64).to_sparse(), 1, dtype=aj.float32).sum() == 2
