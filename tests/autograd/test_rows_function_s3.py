"""Reference rows S3 of ``autograd.Function``: nodes, both forms of ``forward``, everything a ctx stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, gradgradcheck
from tests.autograd.functions import Exp, Scaled, assert_no_python, check_diamond, diamond, leaf, two_outputs
from tests.autograd.modes import Mode


def test_S3_60_every_op_records_a_new_node_that_points_to_its_inputs(mode: Mode) -> None:
    def names(x: aj.Tensor) -> list[str]:
        node = Exp.apply(Exp.apply(x)).grad_fn
        found = []
        while node is not None:
            found.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        return found

    assert mode(names)(leaf(1.0)) == ["ExpBackward", "ExpBackward", "torch::autograd::AccumulateGrad"]


def test_S3_61_backward_runs_in_topological_order(mode: Mode) -> None:
    check_diamond(mode(diamond)(leaf(2.0)))


def test_S3_62_subclassing_extends_autograd(mode: Mode) -> None:
    two_outputs(mode)


def test_S3_63_a_node_is_used_once(mode: Mode) -> None:
    assert mode(lambda x: Exp.apply(x).grad_fn is not Exp.apply(x).grad_fn)(leaf(1.0))


def test_S3_64_the_exp_example(mode: Mode) -> None:
    assert gradgradcheck(mode(Exp.apply), leaf(0.1, 0.7))


def test_S3_65_backward_gets_one_gradient_per_output_and_returns_one_per_input(mode: Mode) -> None:
    class Checked(Scaled):
        @staticmethod
        def backward(ctx: Any, *bars: Any) -> tuple[Any, ...]:
            assert len(bars) == 1
            return (*Scaled.backward(ctx, *bars)[:2], bars[0] if ctx.scale == 3.0 else None)

    def run(x: aj.Tensor, scale: float) -> aj.Tensor:
        return aj.autograd.grad(Checked.apply(x, x, scale).sum(), x)[0]

    assert mode(run)(leaf(2.0), 2.0).item() == 8.0
    with pytest.raises(RuntimeError, match="different than None at position 3"):
        mode(run)(leaf(2.0), 3.0)


def test_S3_66_ctx_has_saved_tensors_and_needs_input_grad_in_backward(mode: Mode) -> None:
    seen: list[Any] = []

    class Seeing(Scaled):
        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[Any, ...]:
            seen.append((ctx.needs_input_grad, len(ctx.saved_tensors)))
            return Scaled.backward(ctx, y_bar)

    mode(lambda x, w: aj.autograd.grad(Seeing.apply(x, w).sum(), x)[0])(leaf(1.0), aj.ones(1, dtype=aj.float64))
    assert seen == [((True, False), 2)]


def test_S3_67_forward_with_ctx_or_with_setup_context(mode: Mode) -> None:
    class Split(Function):
        @staticmethod
        def forward(x: aj.Tensor, power: int = 3) -> aj.Tensor:
            return x**power

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: aj.Tensor) -> None:
            x, ctx.power = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[Any, ...]:
            (x,) = ctx.saved_tensors
            return y_bar * ctx.power * x ** (ctx.power - 1), None

    assert gradgradcheck(mode(Split.apply), leaf(1.2, 0.4))
    run = mode(lambda x: aj.autograd.grad(Split.apply(x, power=2).sum(), x)[0])
    for _ in range(2):
        assert run(leaf(3.0)).item() == 6.0


class Everything(Function):
    """Uses every method of a ctx at once."""

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, target: aj.Tensor) -> tuple[aj.Tensor, ...]:
        target.mul_(2)
        ctx.mark_dirty(target)
        order = x > 1.5
        ctx.mark_non_differentiable(order)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, None, order)
        ctx.factor = 3.0
        return x * ctx.factor, target, order, x + 1

    @staticmethod
    def backward(ctx: Any, x_bar: Any, target_bar: Any, order_bar: Any, unused_bar: Any) -> tuple[Any, ...]:
        x, nothing, order = ctx.saved_tensors
        assert nothing is None
        assert order_bar is None
        assert unused_bar is None
        assert order.dtype is aj.bool
        return x_bar * ctx.factor + 0 * x, target_bar * 2


def test_S3_68_everything_a_ctx_stores_is_honoured(mode: Mode) -> None:
    def run(x: aj.Tensor) -> tuple[aj.Tensor, ...]:
        target = x * 5
        scaled, changed, order, _ = Everything.apply(x, target)
        assert changed is target
        assert not order.requires_grad
        (grad,) = aj.autograd.grad((scaled + changed).sum(), x)
        return grad, changed.detach(), order

    function = mode(run)
    for _ in range(3):
        grad, changed, order = function(leaf(2.0, 1.0))
        np.testing.assert_array_equal(grad.numpy(), [13.0, 13.0])
        np.testing.assert_array_equal(changed.numpy(), [20.0, 10.0])
        np.testing.assert_array_equal(order.numpy(), [True, False])
    assert_no_python(function)
