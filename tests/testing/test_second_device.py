"""The second device for tests: custom functions run on it, and what they return stays there."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.testing import second_device


class Exp(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, i: aj.Tensor) -> aj.Tensor:
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: aj.Tensor) -> aj.Tensor:
        (result,) = ctx.saved_tensors
        return grad_output * result


def test_a_custom_function_runs_on_the_second_device() -> None:
    x = aj.zeros(2, requires_grad=True)
    with second_device() as fake:
        y = Exp.apply(x.to(fake))
        assert y.device.type == fake
        y.sum().backward()
    assert x.grad.device.type == "cpu"
    assert x.grad.tolist() == [1.0, 1.0]
