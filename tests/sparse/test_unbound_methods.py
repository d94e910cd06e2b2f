"""A method called by the name of ``Tensor`` is the one of the tensor's own layout."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.functions import layouts

MADE = {
    "coo": lambda d: d.to_sparse(),
    "csr": lambda d: d.to_sparse_csr(),
    "csc": lambda d: d.to_sparse_csc(),
    "bsr": lambda d: d.to_sparse_bsr((1, 1)),
}
METHODS = [
    name for name, method in layouts.METHODS.items() if not isinstance(method, property) and name != "sparse_mask"
]


def _said(method: Any, *arguments: Any) -> str:
    try:
        return str(method(*arguments))
    except RuntimeError as error:
        return str(error).partition("\n")[0]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("layout", MADE)
def test_a_method_by_the_name_of_tensor_is_that_of_the_layout(layout: str, name: str) -> None:
    x = MADE[layout](aj.tensor([[0.0, 1.0], [2.0, 0.0]]))
    assert _said(getattr(aj.Tensor, name), x) == _said(getattr(x, name))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("compiled", [False, True])
def test_sparse_tensors_are_joined_along_a_sparse_axis(axis: int, compiled: bool) -> None:
    dense = [aj.tensor([[0.0, 1.0], [2.0, 0.0]]), aj.tensor([[0.0, 6.0], [3.0, 0.0]])]

    pattern = dense[0].to_sparse()

    def joined(a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        first, second = a.sparse_mask(pattern), b.sparse_mask(pattern)
        whole = aj.cat([first, second, first], axis).to_dense()
        return whole.detach(), aj.autograd.grad((whole * whole).sum(), (a,))[0]

    first = dense[0].clone().requires_grad_()
    found, slope = (aj.jit(joined) if compiled else joined)(first, dense[1])
    assert found.equal(aj.cat([dense[0], dense[1], dense[0]], axis)) and slope.equal(dense[0] * 4)


def test_other_sparse_tensors_are_not_joined() -> None:
    d = aj.eye(2)
    for given in ([d.to_sparse(), d], [d.to_sparse_csr()] * 2, [d.to_sparse(), d.to_sparse(1)]):
        with pytest.raises(NotImplementedError, match="cat: only COO tensors"):
            aj.cat(given)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("compiled", [False, True])
def test_sparse_tensors_are_joined_along_axes_that_are_kept_whole(axis: int, compiled: bool) -> None:
    dense = aj.arange(12.0).reshape(3, 2, 2) * (aj.arange(3) != 1)[:, None, None]
    pattern = dense.to_sparse(1)

    def joined(values: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        s = aj.sparse_coo_tensor(pattern.indices(), values, (3, 2, 2), is_coalesced=True)
        whole = aj.cat([s, 2 * s], axis).to_dense()
        return whole.detach(), aj.autograd.grad((whole * whole).sum(), (values,))[0]

    values = pattern.values().clone().requires_grad_()
    found, slope = (aj.jit(joined) if compiled else joined)(values)
    assert found.equal(aj.cat([dense, 2 * dense], axis)) and slope.equal(values.detach() * 10)


def test_rows_of_compressed_tensors_are_those_of_their_elements() -> None:
    dense = aj.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    for s in (dense.to_sparse_csr(), dense.to_sparse_csc()):
        assert s[1].layout is aj.sparse_coo and s[1].to_dense().equal(dense[1])
        assert s[:, 1:].to_dense().equal(dense[:, 1:])
