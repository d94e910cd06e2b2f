"""Sparse tensors: construction, conversion, the ops' sparse rules, history, captures; torch's results are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import gradcheck, gradgradcheck
from autojit.core.errors import UnsupportedError

Matrix = Callable[..., aj.Tensor]

PLACES = [[0, 1, 1, 0], [2, 0, 2, 2]]


def coo(values: Any = (3.0, 4.0, 5.0, 1.0), requires_grad: bool = False) -> aj.Tensor:
    """A 2 x 3 matrix with one place twice."""
    return aj.sparse_coo_tensor(PLACES, values, (2, 3), dtype=aj.float64, requires_grad=requires_grad)


def csr(requires_grad: bool = False) -> aj.Tensor:
    return aj.sparse_csr_tensor(
        [0, 1, 3], [2, 0, 2], [4.0, 4.0, 5.0], (2, 3), dtype=aj.float64, requires_grad=requires_grad
    )


DENSE = np.array([[0.0, 0, 4], [4, 0, 5]])
both_layouts = pytest.mark.parametrize("made", [coo, csr], ids=["coo", "csr"])


def same(s: aj.Tensor, expected: Any) -> None:
    np.testing.assert_allclose(s.to_dense().detach().numpy(), expected, rtol=1e-12)


def test_what_a_coo_tensor_says_of_itself() -> None:
    s = coo()
    assert s.is_sparse and not s.is_sparse_csr and s.layout is aj.sparse_coo
    assert (s.sparse_dim(), s.dense_dim(), s._nnz(), s.shape, s.dtype) == (2, 0, 4, (2, 3), aj.float64)
    assert not s.is_coalesced()
    once = s.coalesce()
    assert once.is_coalesced() and once.coalesce() is once
    assert once.indices().tolist() == [[0, 1, 1], [2, 0, 2]]
    assert once.values().tolist() == [4, 4, 5]
    same(s, DENSE)


def test_what_a_csr_tensor_says_of_itself() -> None:
    s = csr()
    assert s.is_sparse_csr and not s.is_sparse and s.layout is aj.sparse_csr
    assert (s.crow_indices().tolist(), s.col_indices().tolist()) == ([0, 1, 3], [2, 0, 2])
    same(s, DENSE)


def test_dense_axes_and_sizes_without_places() -> None:
    s = aj.sparse_coo_tensor([[0, 2]], [[1.0, 2.0], [3.0, 4.0]])
    assert (s.shape, s.sparse_dim(), s.dense_dim()) == ((3, 2), 1, 1)
    same(s, [[1, 2], [0, 0], [3, 4]])
    same(aj.sparse_coo_tensor((2, 2)), np.zeros((2, 2)))


def test_layouts_convert_into_each_other() -> None:
    x = aj.tensor(DENSE)
    assert x.layout is aj.strided and not x.is_sparse and x.to_dense() is x
    for s in (x.to_sparse(), x.to_sparse_csr(), coo().to_sparse_csr(), csr().to_sparse()):
        same(s, DENSE)
    rows = x.to_sparse(1)
    assert (rows.sparse_dim(), rows.dense_dim()) == (1, 1)
    same(rows, DENSE)


@both_layouts
def test_ops_agree_with_dense_ones(made: Matrix) -> None:
    s, d = made(), aj.tensor(DENSE)
    w, v = aj.arange(12, dtype=aj.float64).reshape(3, 4), aj.arange(3, dtype=aj.float64)
    pairs = [
        (-s, -d), (s * 2, d * 2), (2 * s, 2 * d), (s / 2, d / 2), (s + s, d + d), (s - 3 * s, d - 3 * d),
        (s * s, d * d), (s * d, d * d), (d * s, d * d), (d + s, d + d), (s + d, d + d), (d - s, d - d),
        (s.sin(), d.sin()), (aj.sqrt(s), d.sqrt()), (s**2, d**2), (s @ w, d @ w), (aj.mm(s, w), d @ w), (s @ v, d @ v),
        (w.t() @ s.t(), w.t() @ d.t()), (s.sum(), d.sum()), (s.t(), d.t()), (s.float(), d.float()),
        (s.clone(), d), (s.detach(), d), (aj.sparse.mm(s, s.t()), d @ d.t()), (aj.sparse.sum(s, 0), d.sum(0)),
        (aj.sparse.sum(s, 1), d.sum(1)), (aj.sparse.addmm(aj.ones(2, 4), s, w, alpha=2.0), 1 + 2 * (d @ w)),
        (d.sparse_mask(s.to_sparse().coalesce()), d), (s.abs(), d.abs()),
    ]  # fmt: skip
    for got, expected in pairs:
        assert got.dtype is expected.dtype
        same(got, expected.numpy())


def test_ops_without_a_sparse_form_say_so() -> None:
    with pytest.raises(UnsupportedError, match="exp is not implemented for sparse"):
        coo().exp()
    with pytest.raises(RuntimeError, match="a number cannot be added to a sparse tensor"):
        coo() + 1
    with pytest.raises(TypeError, match="can't convert"):
        coo().numpy()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 1]], [1.0]), "same nnz"),
        (([[0, 5]], [1.0, 2.0], (3,)), "inconsistent"),
        (([[0, -1]], [1.0, 2.0], (3,)), "negative"),
        (([0, 1], [1.0, 2.0], (3,)), "sparse_dim x nnz"),
        (([[0, 1]], [1.0, 2.0], (3, 3)), "number of dimensions"),
    ],
)
def test_parts_that_do_not_fit_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        aj.sparse_coo_tensor(*arguments)


@pytest.mark.parametrize(
    ("starts", "message"), [([1, 1, 2], r"\[..., 0\] == 0"), ([0, 1, 1], "== nnz"), ([0, 3, 2], "0 <=")]
)
def test_row_starts_that_do_not_fit_are_refused(starts: list[int], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        aj.sparse_csr_tensor(starts, [0, 1], [1.0, 2.0], (2, 2))


@both_layouts
def test_a_sparse_leaf_has_a_sparse_gradient(made: Matrix) -> None:
    s = made(requires_grad=True)
    assert s.requires_grad and s.is_leaf and s.grad_fn is None and s.grad is None
    w = aj.arange(12, dtype=aj.float64).reshape(3, 4)
    (s @ w).sum().backward()
    assert s.grad.layout is s.layout
    expected = np.where(DENSE != 0, w.numpy().sum(1), 0)
    same(s.grad, expected)
    s.grad = None
    assert s.grad is None


@pytest.mark.parametrize("compiled", [False, True])
def test_a_place_that_is_kept_twice_has_its_gradient_once(compiled: bool) -> None:
    def gradient(s: aj.Tensor) -> Any:
        return aj.autograd.grad((s.to_dense() ** 2).sum(), s)[0]

    function = aj.jit(gradient) if compiled else gradient
    for _ in range(2):
        same(function(coo(requires_grad=True)), 2 * DENSE)
    s = coo(requires_grad=True)
    s.to_dense().sum().backward()
    assert s.grad._nnz() == 3
    same(s.grad, DENSE != 0)


def test_values_given_as_a_tensor_get_the_gradient() -> None:
    v = aj.tensor([3.0, 4.0, 5.0, 1.0], dtype=aj.float64, requires_grad=True)
    s = aj.sparse_coo_tensor(PLACES, v, (2, 3))
    assert s.requires_grad and not s.is_leaf
    (s.coalesce().values() ** 2).sum().backward()
    assert v.grad.tolist() == [8, 8, 10, 8]


def test_gradients_of_conversions() -> None:
    x = aj.tensor(DENSE, requires_grad=True)
    (x.to_sparse() ** 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * DENSE)
    s = coo(requires_grad=True)
    (g,) = aj.autograd.grad(s.to_dense(), s, aj.ones(2, 3, dtype=aj.float64))
    assert g.is_sparse
    same(g, DENSE != 0)


def test_cotangents_and_hooks_of_sparse_tensors() -> None:
    s = csr(requires_grad=True)
    seen = []
    s.register_hook(lambda g: seen.append(g.is_sparse_csr) or g * 2)
    y = s * 3
    y.backward(csr())
    assert seen == [True]
    same(s.grad, 6 * DENSE)
    assert s.register_hook(lambda g: None) is not None


@both_layouts
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_second_order(made: Matrix, compiled: bool) -> None:
    def f(v: aj.Tensor, w: aj.Tensor) -> Any:
        s = made().with_values(v)
        return ((s @ w) ** 2 + (s * s.coalesce() if s.is_sparse else s * s) @ w).sin()

    v = (made()._values() * 0.1).requires_grad_()
    w = aj.randn(3, 2, dtype=aj.float64, requires_grad=True)
    function = aj.jit(f) if compiled else f
    assert gradcheck(function, (v, w))
    assert gradgradcheck(function, (v, w))


def test_a_captured_step_takes_and_gives_sparse_tensors() -> None:
    def step(s: aj.Tensor, w: aj.Tensor) -> Any:
        loss = ((s @ w) ** 2).sum()
        return (s * 2, *aj.autograd.grad(loss, (s, w)))

    jitted = aj.jit(step)
    for k in range(3):
        s = coo([1.0 + k, 2.0, 3.0, 4.0], requires_grad=True)
        w = aj.ones(3, 2, dtype=aj.float64, requires_grad=True)
        for got, expected in zip(jitted(s, w), step(s, w), strict=True):
            assert got.layout is expected.layout
            same(got, expected.to_dense().detach().numpy())
    assert (jitted.stats()["captures"], jitted.stats()["fallbacks"]) == (1, 0)


def test_looking_up_which_places_two_tensors_share_inside_a_step_is_refused() -> None:
    jitted = aj.jit(lambda s: s * s)
    with pytest.raises(RuntimeError, match="mul"):
        jitted(coo())


@pytest.mark.parametrize("compiled", [False, True])
def test_sparse_embedding_gradients(compiled: bool) -> None:
    def losses(sparse: bool, compiled: bool) -> tuple[list[float], Any, Any]:
        aj.manual_seed(0)
        table = aj.nn.Embedding(10, 4, sparse=sparse, padding_idx=3)
        optimizer = aj.optim.SGD(table.parameters(), lr=0.1)

        def step(rows: aj.Tensor) -> aj.Tensor:
            optimizer.zero_grad()
            loss = (table(rows) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        function = aj.jit(step) if compiled else step
        rows = np.random.default_rng(0).integers(0, 10, (4, 3, 5))
        return [function(aj.tensor(r)).item() for r in rows], table.weight.detach().numpy(), table.weight.grad

    dense, weight, _ = losses(False, False)
    found, sparse_weight, grad = losses(True, compiled)
    np.testing.assert_allclose(found, dense, rtol=1e-5)
    np.testing.assert_allclose(sparse_weight, weight, rtol=1e-5, atol=1e-6)
    assert grad.is_sparse
    assert grad.shape == (10, 4)


def test_sparse_and_dense_gradients_add_up() -> None:
    table = aj.randn(5, 2, requires_grad=True)
    rows = aj.tensor([1, 3, 1])
    look_up = aj.nn.functional.embedding
    look_up(rows, table, sparse=True).sum().backward()
    first = table.grad
    look_up(rows, table, sparse=True).sum().backward()
    assert table.grad is first
    same(first, [[0, 0], [4, 4], [0, 0], [2, 2], [0, 0]])
    look_up(rows, table).sum().backward()
    assert table.grad.layout is aj.strided
    same(table.grad, [[0, 0], [6, 6], [0, 0], [3, 3], [0, 0]])
    dense = table.grad
    look_up(rows, table, sparse=True).sum().backward()
    assert table.grad is dense


def test_printing() -> None:
    text = repr(coo(requires_grad=True))
    assert "indices=" in text and "nnz=4" in text and "requires_grad=True" in text
    assert "crow_indices=" in str(csr())


def test_optimisers_with_sparse_gradients() -> None:
    def trained(make: Any, sparse: bool) -> Any:
        table = aj.nn.Embedding.from_pretrained(aj.ones(6, 2), freeze=False, sparse=sparse)
        optimizer = make(table.parameters())
        for rows in ([0, 1, 1], [0, 1, 4]):
            optimizer.zero_grad()
            (table(aj.tensor(rows)) ** 2).sum().backward()
            optimizer.step()
        return table.weight.detach().numpy()

    for make in (aj.optim.SGD, aj.optim.Adagrad, lambda p: aj.optim.SGD(p, 0.1, momentum=0.5)):
        np.testing.assert_allclose(trained(make, True), trained(make, False), rtol=1e-6)
    found = trained(lambda p: aj.optim.SparseAdam(p, lr=0.1), True)
    recorded = [0.8004123, 0.8083517, 1, 1, 0.9255863, 1]  # torch 2.13
    np.testing.assert_allclose(found, np.repeat(recorded, 2).reshape(6, 2), rtol=1e-5)
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam"):
        trained(aj.optim.Adam, True)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        trained(aj.optim.SparseAdam, False)


@both_layouts
def test_in_place(made: Matrix) -> None:
    s = made()
    assert s.mul_(2) is s
    s += made()
    same(s, 3 * DENSE)
    leaf = made(requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.mul_(2)
    x = aj.zeros(2, 3, dtype=aj.float64)
    x.add_(made())
    same(x, DENSE)


def test_what_only_sparse_tensors_have_is_refused_by_name() -> None:
    x = aj.ones(2, 2)
    assert (x.sparse_dim(), x.dense_dim()) == (0, 2)
    for name in ("indices", "values", "coalesce", "is_coalesced", "crow_indices", "col_indices", "_nnz"):
        with pytest.raises(RuntimeError, match=name):
            getattr(x, name)()
    with pytest.raises(RuntimeError, match="crow_indices expected sparse row compressed tensor layout but got Sparse"):
        coo().crow_indices()


def test_constructors_of_older_programs() -> None:
    s = aj.sparse.DoubleTensor(aj.tensor([[0, 1]]), aj.ones(2, dtype=aj.float64))
    assert (s.dtype, s.shape) == (aj.float64, (2,))
    assert aj.sparse.FloatTensor(2, 3)._nnz() == 0
    assert aj.sparse_coo_tensor(aj.zeros(1, 1), [1.0], (2,)).to_dense().tolist() == [1, 0]


def test_a_sparse_vector_is_its_own_transpose() -> None:
    for x in (aj.arange(3.0).to_sparse(), aj.tensor(2.0).to_sparse()):
        assert x.t().is_sparse and aj.equal(x.t().to_dense(), x.to_dense())


def test_a_dense_operand_is_changed_in_place_by_a_sparse_one() -> None:
    s = aj.eye(2).to_sparse()
    for name in ("add_", "sub_", "mul_"):
        dense = aj.full((2, 2), 3.0)
        assert getattr(dense, name)(s) is dense
        assert aj.equal(dense, getattr(aj.full((2, 2), 3.0), name)(aj.eye(2)))
    small = s.to(aj.uint8)
    assert small.mul_(s.to(aj.int16)).dtype is aj.uint8
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Byte"):
        small.mul_(s)
    with pytest.raises(RuntimeError, match="cannot be changed in place into a dense one"):
        s.add_(aj.ones(2, 2))
    assert s.is_sparse and aj.equal(s.to_dense(), aj.eye(2))


def test_the_history_of_a_product_shows_its_sparse_factors() -> None:
    x = aj.eye(2).to_sparse().requires_grad_()
    y = x * x
    assert y.grad_fn._saved_self is x and y.grad_fn._saved_other is x
    y.to_dense().sum().backward()
    assert x.grad is not None and aj.equal(x.grad.to_dense(), 2 * aj.eye(2))
