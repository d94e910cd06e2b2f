"""Custom functions: every part of the ctx, both calling forms, second derivatives, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, gradcheck, gradgradcheck
from autojit.autograd.function import once_differentiable
from tests.autograd.functions import Exp, leaf


class Scale(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, w: aj.Tensor, factor: float = 1.0, name: str = "") -> tuple[Any, ...]:
        ctx.save_for_backward(x, w)
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return x * w * factor, w.sum()

    @staticmethod
    def backward(ctx: Any, product_bar: Any, sum_bar: Any) -> tuple[Any, ...]:
        _, w = ctx.saved_tensors
        assert sum_bar is None
        assert ctx.needs_input_grad == (True, False, False, False)
        return product_bar * w * ctx.factor, None, None, None


def test_a_function_has_right_first_and_second_derivatives_in_both_calling_forms() -> None:
    x = leaf(0.3, -1.0)
    assert gradcheck(Exp.apply, x)
    assert gradgradcheck(Exp.apply, x)
    assert aj.equal(Exp()(x), Exp.apply(x))
    assert Exp.apply(x).grad_fn.name() == "ExpBackward"
    with aj.no_grad():
        assert Exp.apply(x).grad_fn is None


def test_context_carries_numbers_flags_and_keywords() -> None:
    x = leaf(2.0)
    product, total = Scale.apply(x, aj.tensor([3.0], dtype=aj.float64), factor=2.0, name="n")
    product.sum().backward()
    assert x.grad.item() == 6
    assert total.requires_grad


def test_forward_without_ctx_and_setup_context() -> None:
    class Cube(Function):
        @staticmethod
        def forward(x: aj.Tensor) -> aj.Tensor:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: aj.Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
            (x,) = ctx.saved_tensors
            return bar * 3 * x * x

    assert gradgradcheck(Cube.apply, leaf(1.2, -0.4))


def test_non_differentiable_and_dirty_outputs() -> None:
    class SortOf(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
            positions = x.argsort()
            ctx.mark_non_differentiable(positions)
            ctx.save_for_backward(positions)
            return x.sort().values, positions

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor, _: Any) -> aj.Tensor:
            (positions,) = ctx.saved_tensors
            return aj.zeros_like(bar).index_add(0, positions, bar)

    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            ctx.mark_dirty(x)
            return x.mul_(2.0)

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
            return bar * 2

    x = leaf(3.0, 1.0)
    values, positions = SortOf.apply(x)
    assert not positions.requires_grad
    (values * aj.tensor([1.0, 10.0], dtype=aj.float64)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [10, 1])
    y = x * 1
    z = DoubleInPlace.apply(y)
    assert z is y
    x.grad = None
    z.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2])


def test_misuse_raises_at_the_right_time() -> None:
    class NoBackward(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

    class TooMany(NoBackward):
        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> tuple[Any, ...]:
            return bar, bar

    class Once(NoBackward):
        @staticmethod
        @once_differentiable
        def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
            return bar * 2

    x = leaf(1.0)
    y = NoBackward.apply(x)
    with pytest.raises(NotImplementedError):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        TooMany.apply(x).sum().backward()
    (gradient,) = aj.autograd.grad((Once.apply(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_saved_tensors_are_guarded() -> None:
    x = leaf(1.0)
    y = Exp.apply(x)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()
    z = Exp.apply(x)
    z.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        z.sum().backward()


class Fixed(Function):
    """Its gradient is given."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, grad: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(grad)
        return x

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> tuple[aj.Tensor, None]:
        return ctx.saved_tensors[0], None


def test_sparse_gradients_inputs_and_outputs() -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            y = aj.sparse_coo_tensor(x._indices(), x._values() ** 2, x.shape)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
            x, y = ctx.saved_tensors
            assert bar.is_sparse
            assert y.grad_fn is ctx
            return aj.sparse_coo_tensor(x._indices(), 2 * x._values() * bar._values(), x.shape)

    sparse = aj.sparse_coo_tensor(aj.tensor([[0, 2], [1, 0]]), aj.tensor([3.0, 4.0]), (3, 2))
    dense = aj.ones(3, 2)
    for grads in ((sparse, dense), (dense, sparse), (sparse, sparse)):
        x = aj.ones(3, 2, requires_grad=True)
        sum(Fixed.apply(x, g) for g in grads).sum().backward()
        total = sum(g.to_dense() if g.is_sparse else g for g in grads)
        assert aj.equal(x.grad.to_dense() if x.grad.is_sparse else x.grad, total)
        assert x.grad.is_sparse == all(g.is_sparse for g in grads)
    x = sparse.clone().requires_grad_()
    y = Square.apply(x)
    assert y.is_sparse
    assert type(y.grad_fn).__name__ == "SquareBackward"
    y.to_dense().sum().backward()
    assert aj.equal(x.grad.to_dense(), 2 * sparse.to_dense())
