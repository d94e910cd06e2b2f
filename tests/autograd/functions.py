"""Custom functions that several tests of reference rows share, and what is checked of them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import autojit as aj
from autojit.autograd import Function
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
        (y,) = ctx.saved_tensors
        return y_bar * y


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, None)
        return x * x

    @staticmethod
    def backward(ctx: Any, y_bar: Any) -> Any:
        x, _ = ctx.saved_tensors
        return y_bar * 2 * x


class Scaled(Function):
    """Reads everything a ctx tells; ``seen`` collects it."""

    seen: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, w: aj.Tensor, scale: float = 1.0, name: str = "") -> aj.Tensor:
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        Scaled.seen.append((ctx.needs_input_grad, ctx.num_inputs, ctx.requires_grad))
        return x * w * scale

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        x_bar = y_bar * w * ctx.scale if ctx.needs_input_grad[0] else None
        w_bar = y_bar * x * ctx.scale if ctx.needs_input_grad[1] else None
        return x_bar, w_bar, None, None


class Two(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor, y: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, product_bar: aj.Tensor, sum_bar: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x, y = ctx.saved_tensors
        return product_bar * y + sum_bar, product_bar * x + sum_bar


def derivatives(function: Any, x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
    (first,) = aj.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = aj.autograd.grad((first**2).sum(), x)
    return first.detach(), second


def assert_no_python(function: Any) -> None:
    """Later calls of a jitted function ran without Python ops."""
    if hasattr(function, "stats"):
        counts = function.stats()
        assert counts["fallbacks"] == 0
        assert counts["native_calls"] >= 1


def diamond(x: aj.Tensor) -> list[str]:
    """Names in the order in which the nodes of a diamond run."""
    order: list[str] = []

    def named(name: str) -> Any:
        class Step(Function):
            @staticmethod
            def forward(ctx: Any, *inputs: aj.Tensor) -> aj.Tensor:
                ctx.count = len(inputs)
                return inputs[0].clone() if len(inputs) == 1 else inputs[0] + inputs[1]

            @staticmethod
            def backward(ctx: Any, y_bar: aj.Tensor) -> Any:
                order.append(name)
                return (y_bar,) * ctx.count

        return Step.apply

    top = named("top")(x)
    left, right = named("left")(top), named("right")(top)
    named("bottom")(left, right).sum().backward()
    return order


def check_diamond(order: list[str]) -> None:
    assert sorted(order) == ["bottom", "left", "right", "top"]
    assert order[0] == "bottom"
    assert order[-1] == "top"


def two_outputs(mode: Mode) -> None:
    run = mode(lambda x, y: aj.autograd.grad(sum((t * (k + 2)).sum() for k, t in enumerate(Two.apply(x, y))), (x, y)))
    for _ in range(3):
        x_bar, y_bar = run(leaf(1.0, 2.0), leaf(3.0, 4.0))
        np.testing.assert_array_equal(x_bar.numpy(), [9.0, 11.0])
        np.testing.assert_array_equal(y_bar.numpy(), [5.0, 7.0])
    assert_no_python(run)
