"""Matrices compressed by columns and by blocks: their parts, their conversions and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj

LAYOUTS = [(aj.sparse_csr, None), (aj.sparse_csc, None), (aj.sparse_bsr, (1, 2)), (aj.sparse_bsc, (1, 2))]
MATRIX = [[0.0, 0.0, 0.0, 3.0], [4.0, 0.0, 6.0, 7.0]]


def matrix(layout: Any, blocksize: Any, dtype: Any = aj.float64) -> Any:
    return aj.tensor(MATRIX, dtype=dtype).to_sparse(layout=layout, blocksize=blocksize)


def test_columns_are_kept_in_turn() -> None:
    s = matrix(aj.sparse_csc, None)
    assert s.layout is aj.sparse_csc and not s.is_sparse and s._nnz() == 4
    assert s.ccol_indices().tolist() == [0, 1, 1, 2, 4]
    assert s.row_indices().tolist() == [1, 1, 0, 1]
    assert s.values().tolist() == [4.0, 6.0, 3.0, 7.0]


def test_blocks_are_kept_whole() -> None:
    s = matrix(aj.sparse_bsr, (1, 2))
    assert s.crow_indices().tolist() == [0, 1, 3]
    assert s.col_indices().tolist() == [1, 0, 1]
    assert s.values().tolist() == [[[0.0, 3.0]], [[4.0, 0.0]], [[6.0, 7.0]]]
    s = matrix(aj.sparse_bsc, (1, 2))
    assert s.ccol_indices().tolist() == [0, 1, 3]
    assert s.row_indices().tolist() == [1, 0, 1]
    assert s.values().tolist() == [[[4.0, 0.0]], [[0.0, 3.0]], [[6.0, 7.0]]]
    assert s._nnz() == 3


@pytest.mark.parametrize(("source", "size"), LAYOUTS)
@pytest.mark.parametrize(("target", "blocksize"), [*LAYOUTS, (aj.sparse_coo, None)])
def test_layouts_convert_into_each_other(source: Any, size: Any, target: Any, blocksize: Any) -> None:
    s = matrix(source, size).to_sparse(layout=target, blocksize=blocksize)
    assert s.layout is target
    assert s.to_dense().tolist() == MATRIX


@pytest.mark.parametrize(("layout", "blocksize"), LAYOUTS)
def test_ops_agree_with_dense_ones_and_keep_the_layout(layout: Any, blocksize: Any) -> None:
    s, dense = matrix(layout, blocksize), aj.tensor(MATRIX, dtype=aj.float64)
    for found, expected in [(s * 2, dense * 2), (s + s, dense + dense), (s * s, dense * dense), (s.sin(), dense.sin())]:
        assert found.layout is layout
        assert aj.allclose(found.to_dense(), expected)
    assert aj.allclose(s @ dense.T, dense @ dense.T)
    assert "nnz=" in repr(s)


@pytest.mark.parametrize(("layout", "blocksize"), LAYOUTS)
@pytest.mark.parametrize("fast", [True, False])
def test_derivatives_by_the_kept_elements(layout: Any, blocksize: Any, fast: bool) -> None:
    full = (aj.tensor(MATRIX, dtype=aj.float64) + 1).to_sparse(layout=layout, blocksize=blocksize).requires_grad_()
    assert aj.autograd.gradcheck(lambda t: t.sum(), full, masked=False, fast_mode=fast)
    s = matrix(layout, blocksize).requires_grad_()
    assert aj.autograd.gradcheck(lambda t: (t * t).sum(), s, masked=True, fast_mode=fast)
    (s * s).sum().backward()
    assert s.grad.layout is layout
    assert np.array_equal(s.grad.to_dense().numpy(), 2 * np.array(MATRIX))
    (s.values() ** 3).sum().backward()
    assert np.array_equal(s.grad.to_dense().numpy(), 2 * np.array(MATRIX) + 3 * np.array(MATRIX) ** 2)


def test_parts_and_block_extents_of_another_layout_are_refused() -> None:
    with pytest.raises(RuntimeError, match="to SparseBsr without blocksize"):
        matrix(aj.sparse_bsr, None)
    with pytest.raises(RuntimeError, match="to SparseCsc with blocksize"):
        matrix(aj.sparse_csc, (1, 2))
    with pytest.raises(RuntimeError, match="must be divisible by given blocksize"):
        matrix(aj.sparse_bsr, (2, 3))
    with pytest.raises(RuntimeError, match=r"crow_indices expected sparse row compressed .* but got SparseBsc"):
        matrix(aj.sparse_bsc, (1, 2)).crow_indices()
    with pytest.raises(RuntimeError, match="row_indices expected sparse column compressed"):
        matrix(aj.sparse_csr, None).row_indices()


def test_a_dense_tensor_takes_no_sparse_data() -> None:
    x = aj.zeros(2, 4, dtype=aj.float64)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = matrix(aj.sparse_coo, None)


def test_the_last_user_of_a_sparse_gradient_takes_its_values_over() -> None:
    class Both(aj.autograd.Function):
        address = 0

        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, y_bar: Any) -> Any:
            sparse = y_bar.to_sparse(1)
            Both.address = sparse._values().data_ptr()
            return sparse, sparse

    x, y = aj.ones(3, 2, requires_grad=True), aj.ones(3, 2, requires_grad=True)
    Both.apply(x, y).sum().backward()
    addresses = {x.grad._values().data_ptr(), y.grad._values().data_ptr()}
    assert len(addresses) == 2 and Both.address in addresses
