"""Function transforms give what loops and differences give, nested in any order, eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

X = np.array([0.5, -1.2, 2.0])
M = np.array([[0.1, 0.4, -0.3], [1.0, -0.7, 0.2]])


@pytest.fixture(params=["eager", "jit"])
def mode(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return aj.jit if request.param == "jit" else lambda function: function


def vector(x: Any) -> Any:
    return x.sin() * x.prod()


def scalar(x: Any) -> Any:
    return vector(x).sum()


def close(found: Any, expected: Any) -> None:
    assert not found.requires_grad
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=1e-6, atol=1e-9)


def jacobian_of(function: Callable[[Any], Any], x: Any, step: float = 1e-5) -> Any:
    columns = []
    for index in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            values.append(function(aj.tensor(moved)).numpy())
        columns.append((values[0] - values[1]) / (2 * step))
    return np.stack(columns, -1).reshape(*columns[0].shape, *x.shape)


GRADIENT = jacobian_of(scalar, X)
JACOBIAN = jacobian_of(vector, X)
HESSIAN = jacobian_of(grad(scalar), X)


def test_jvp_and_vjp_pair(mode: Any) -> None:
    x, v = aj.tensor(X), aj.tensor([1.0, 2.0, -1.0], dtype=aj.float64)
    value, product = mode(lambda x, v: jvp(vector, (x,), (v,)))(x, v)
    close(value, vector(x).numpy())
    close(product, JACOBIAN @ v.numpy())
    value, pulled = mode(lambda x, v: (vjp(vector, x)[0], vjp(vector, x)[1](v)[0]))(x, v)
    close(value, vector(x).numpy())
    close(pulled, v.numpy() @ JACOBIAN)


def test_gradients_of_any_order(mode: Any) -> None:
    x = aj.tensor(2.0, dtype=aj.float64)
    function = lambda x: x**5
    for expected in (80.0, 160.0, 240.0, 240.0):
        function = grad(function)
        close(mode(function)(x), expected)
    found, value = mode(grad_and_value(scalar))(aj.tensor(X))
    close(found, GRADIENT)
    close(value, scalar(aj.tensor(X)).numpy())


def test_jacobians_and_hessians(mode: Any) -> None:
    x = aj.tensor(X)
    close(mode(jacrev(vector))(x), JACOBIAN)
    close(mode(jacfwd(vector))(x), JACOBIAN)
    for function in (hessian(scalar), jacrev(jacrev(scalar)), jacfwd(jacfwd(scalar)), jacrev(jacfwd(scalar))):
        np.testing.assert_allclose(mode(function)(x).numpy(), HESSIAN, rtol=1e-6, atol=1e-8)


def test_batches_of_derivatives_are_loops(mode: Any) -> None:
    m = aj.tensor(M)
    for function in (scalar, vector, grad(scalar), jacrev(vector), jacfwd(vector), hessian(scalar)):
        expected = np.stack([function(aj.tensor(row)).numpy() for row in M])
        close(mode(vmap(function))(m), expected)
    close(mode(grad(lambda m: vmap(scalar)(m).sum()))(m), np.stack([jacobian_of(scalar, row) for row in M]))


def test_gradients_per_sample_of_a_shared_input(mode: Any) -> None:
    def loss(w: Any, x: Any) -> Any:
        return (w * x).sum() ** 2

    found = mode(vmap(grad(loss), in_dims=(None, 0)))(aj.tensor(X), aj.tensor(M))
    close(found, 2 * (M @ X)[:, None] * M)


def test_forward_mode_nests(mode: Any) -> None:
    ones = aj.ones(3, dtype=aj.float64)
    x = aj.tensor(X)
    _, second = mode(lambda x: jvp(lambda x: jvp(vector, (x,), (ones,))[1], (x,), (ones,)))(x)
    expected = np.tensordot(jacobian_of(jacrev(vector), X), np.ones((3, 3)), 2)
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-6)


def test_batches_nest_and_axes_are_free(mode: Any) -> None:
    outer = mode(vmap(vmap(lambda x, y: x * y, (None, 0)), (0, None)))(aj.tensor(X), aj.tensor(M[0]))
    close(outer, np.outer(X, M[0]))
    close(mode(vmap(lambda x: x * 2, in_dims=1, out_dims=1))(aj.tensor(M)), 2 * M)
    close(mode(vmap(lambda x: x.sum(), in_dims=-1))(aj.tensor(M)), M.sum(0))
    found = vmap(lambda d, k: {"sum": d["a"] + d["b"] * k}, in_dims=({"a": 0, "b": None}, None))(
        {"a": aj.tensor(X), "b": aj.tensor(1.0)}, 2.0
    )
    close(found["sum"], X + 2)
    first, second = vmap(lambda x: (x, x * 2), out_dims=(0, 1))(aj.tensor(M))
    close(first, M)
    close(second, 2 * M.T)


def test_in_place_changes_and_control_by_shape_inside_a_batch(mode: Any) -> None:
    def function(x: Any) -> Any:
        y = x.clone()
        y[0] = y[1] * y[2]
        y += 1
        z = aj.zeros_like(x)
        z[1:] = y[:-1]
        return z if x.ndim == 1 else y

    expected = np.stack([function(aj.tensor(row)).numpy() for row in M])
    close(mode(vmap(function))(aj.tensor(M)), expected)


def test_several_arguments_and_nested_outputs(mode: Any) -> None:
    x, y = aj.tensor(X), aj.tensor(M[0])
    by_x, by_y = mode(grad(lambda x, y: (x * y * y).sum(), argnums=(0, 1)))(x, y)
    close(by_x, M[0] ** 2)
    close(by_y, 2 * X * M[0])
    for transform in (jacrev, jacfwd):
        product, rest = transform(lambda x, y: (x * y, {"sum": x.sum()}), argnums=(0, 1))(x, y)
        close(product[0], np.diag(M[0]))
        close(product[1], np.diag(X))
        close(rest["sum"][0], np.ones(3))
        close(rest["sum"][1], np.zeros(3))
    found, extra = grad(lambda x: ((x * x).sum(), x * 3), has_aux=True)(x)
    close(found, 2 * X)
    close(extra, 3 * X)


def test_autograd_inside_a_batch_works_on_elements(mode: Any) -> None:
    def per_element(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = scalar(x)
        (first,) = aj.autograd.grad(y, x, create_graph=True)
        (second,) = aj.autograd.grad(first.sum(), x)
        return first.detach(), second

    first, second = mode(vmap(per_element))(aj.tensor(M))
    close(first, np.stack([jacobian_of(scalar, row) for row in M]))
    np.testing.assert_allclose(
        second.detach().numpy(), np.stack([hessian(scalar)(aj.tensor(row)).sum(0).numpy() for row in M]), rtol=1e-6
    )


def test_backward_inside_a_batch_sums_over_it() -> None:
    p = aj.tensor(X, requires_grad=True)

    def run(x: Any) -> Any:
        y = (p * x).sum()
        y.backward()
        return y.detach()

    vmap(run)(aj.tensor(M))
    assert p.grad is not None
    close(p.grad, M.sum(0))


def test_the_callers_history_goes_through() -> None:
    p = aj.tensor(X, requires_grad=True)
    found = grad(lambda x: (p * x * x).sum())(aj.tensor(M[0]))
    (by_p,) = aj.autograd.grad(found.sum(), p)
    close(by_p, 2 * M[0])
    assert grad(scalar)(p).requires_grad
    assert p.grad is None
    (through,) = aj.autograd.grad(vmap(grad(lambda w, x: (w * x).sum() ** 2), (None, 0))(p, aj.tensor(M)).sum(), p)
    close(through, jacobian_of(lambda w: (2 * (aj.tensor(M) @ w)[:, None] * aj.tensor(M)).sum(), X))


def test_random_numbers_are_the_same_different_or_refused(mode: Any) -> None:
    x = aj.zeros(3, 100, dtype=aj.float64)
    draw = lambda x: x + aj.rand(100, dtype=aj.float64)
    same = mode(vmap(draw, randomness="same"))(x).numpy()
    np.testing.assert_array_equal(same[0], same[2])
    different = mode(vmap(draw, randomness="different"))(x).numpy()
    assert np.abs(np.corrcoef(different) - np.eye(3)).max() < 0.4
    assert ((different >= 0) & (different < 1)).all()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(draw)(x)
    with pytest.raises(ValueError, match="randomness must be"):
        vmap(draw, randomness="other")
    aj.manual_seed(3)
    first = vmap(draw, randomness="different")(x).numpy()
    aj.manual_seed(3)
    np.testing.assert_array_equal(vmap(draw, randomness="different")(x).numpy(), first)


def test_what_does_not_fit_is_refused() -> None:
    x, m = aj.tensor(X), aj.tensor(M)
    with pytest.raises(RuntimeError, match="return a scalar tensor"):
        grad(vector)(x)
    with pytest.raises(RuntimeError, match="argnum=1, but only 1 positional inputs"):
        grad(scalar, argnums=1)(x)
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        vmap(lambda x, y: x)(x, m)
    with pytest.raises(ValueError, match="at least one argument must have a batch axis"):
        vmap(scalar, in_dims=None)(x)
    with pytest.raises(ValueError, match="must only return Tensors"):
        vmap(lambda x: 3)(x)
    with pytest.raises(ValueError, match="expected in_dim to satisfy -2 <= in_dim < 2"):
        vmap(scalar, in_dims=2)(m)
    with pytest.raises(RuntimeError, match="vmap: a tensor that differs along a batch"):
        vmap(lambda x: x if bool(x.sum() > 0) else -x)(m)
    with pytest.raises(RuntimeError, match="written to is the same for all elements"):
        vmap(lambda x: aj.zeros(3, dtype=aj.float64).add_(x))(m)
    with pytest.raises(RuntimeError, match="primals and tangents to have the same python structure"):
        jvp(vector, (x,), (x, x))


@pytest.mark.parametrize("compiled", [False, True])
def test_strided_views_of_views_of_an_element_lie_in_the_memory_of_the_batch(compiled: bool) -> None:
    def write(x: aj.Tensor) -> Any:
        y = x.clone()
        b = y.as_strided((2,), (2,)).as_strided((2,), (1,))
        c = y.as_strided((3,), (1,), 1).as_strided((2,), (1,), 1)
        b.mul_(10.0)
        return y, b + 0, c + 0

    function = aj.vmap(write)
    y, b, c = (aj.jit(function) if compiled else function)(aj.arange(8.0).reshape(2, 4))
    assert y.tolist() == [[0, 10, 2, 3], [40, 50, 6, 7]]
    assert b.tolist() == [[0, 10], [40, 50]]
    assert c.tolist() == [[10, 2], [50, 6]]


def test_what_is_made_like_an_element_is_batched_in_every_layer() -> None:
    def f(r: Any) -> Any:
        out = aj.zeros_like(r)
        out[1:] = r[:-1] * aj.sin(r[1:])
        return (out**2).sum()

    x = aj.rand(2, 3, dtype=aj.float64)
    for transform in (aj.func.jacfwd, aj.func.hessian, aj.func.grad):
        rows = aj.stack([transform(f)(row) for row in x])
        assert aj.allclose(aj.func.vmap(transform(f))(x), rows)
