"""Ops that give elements other places do to a sparse tensor what they do to a dense one, derivatives included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

DENSE = aj.tensor([[[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [3.0, 4.0], [0.0, 5.0]]])
PICKED = aj.tensor([1, 0, 1])
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[1],
    "rows": lambda x: x[0:1],
    "every other": lambda x: x[:, ::2],
    "select": lambda x: x.select(1, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "unbind": lambda x: x.unbind(0)[1],
    "index_select 0": lambda x: x.index_select(0, PICKED),
    "index_select 1": lambda x: x.index_select(1, PICKED),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "unsqueeze 1": lambda x: x.unsqueeze(1),
    "stack": lambda x: aj.stack([x, x * 2]),
    "stack 1": lambda x: aj.stack([x, x * 2], 1),
    "sum": lambda x: x.sum(1, keepdim=True),
    "cat": lambda x: aj.cat([x, x[:1]]),
    "chunk": lambda x: x.chunk(2)[1],
}
OF_ALL_AXES = {
    "reshape": lambda x: x.reshape(3, 4),
    "reshape to a line": lambda x: x.reshape(-1),
    "element": lambda x: x[1, 2, 1],
    "last": lambda x: x[..., 1],
    "index_select 2": lambda x: x.index_select(2, PICKED),
    "squeeze": lambda x: x[:1].squeeze(0),
}


def _check(of: Callable[[Any], Any], sparse_dim: int, is_coalesced: bool) -> None:
    leaf, plain = DENSE.clone().requires_grad_(), DENSE.clone().requires_grad_()
    s = leaf.to_sparse(sparse_dim)
    s, given = (s, plain) if is_coalesced else (s + s, plain + plain)
    found, wanted = of(s), of(given)
    dense = found.to_dense() if found.is_sparse else found
    assert dense.equal(wanted) and dense.shape == wanted.shape
    (dense * dense).sum().backward()
    (wanted * wanted).sum().backward()
    assert leaf.grad is not None and plain.grad is not None
    kept = DENSE.ne(0) if sparse_dim == 3 else DENSE.ne(0).any(-1, keepdim=True).expand(DENSE.shape)
    assert leaf.grad.to_dense().equal(plain.grad * kept)
    if found.is_sparse and found.is_coalesced():
        assert found.indices().equal(found.clone().coalesce().indices())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sparse_dim", [2, 3])
def test_places_are_those_of_the_dense_tensor(name: str, sparse_dim: int) -> None:
    for is_coalesced in (True, False):
        _check(FUNCTIONS[name], sparse_dim, is_coalesced)


@pytest.mark.parametrize("name", OF_ALL_AXES)
def test_places_of_all_axes_are_those_of_the_dense_tensor(name: str) -> None:
    for is_coalesced in (True, False):
        _check(OF_ALL_AXES[name], 3, is_coalesced)


def test_what_is_not_there_is_told() -> None:
    s = DENSE.to_sparse(2)
    for call in (lambda: s.reshape(6, 2, 1), lambda: aj.eye(2).to_sparse_bsr((1, 1))[0]):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(IndexError):
        s.index_select(0, aj.tensor([5]))
    places = aj.tensor([[0, 1], [1, 0]])
    with pytest.raises(RuntimeError, match="captured step"):
        aj.jit(lambda i: aj.sparse_coo_tensor(i, aj.ones(2), (2, 2))[0].to_dense())(places)
    assert aj.jit(lambda x: x.sparse_mask(s)[0].to_dense())(DENSE).equal(DENSE[0]), "places from outside are known"


@pytest.mark.parametrize("layout", [None, aj.sparse_csr, aj.sparse_csc])
def test_diagonals_go_where_scipy_puts_them(layout: aj.layout | None) -> None:
    rows = aj.arange(1.0, 13.0).reshape(3, 4).requires_grad_()
    made = aj.sparse.spdiags(rows, aj.tensor([0, 1, -2]), (4, 3), layout)
    wanted = [[1.0, 6.0, 0.0], [0.0, 2.0, 7.0], [9.0, 0.0, 3.0], [0.0, 10.0, 0.0]]
    assert made.to_dense().tolist() == wanted and made.layout is (layout or aj.sparse_coo)
    made.to_dense().sum().backward()
    assert rows.grad is not None and rows.grad.sum() == 7
    with pytest.raises(RuntimeError, match="duplicate"):
        aj.sparse.spdiags(rows, aj.tensor([0, 0, 1]), (4, 4))
    with pytest.raises(RuntimeError, match="number of offsets"):
        aj.sparse.spdiags(rows, aj.tensor([0]), (4, 4))
