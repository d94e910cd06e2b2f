"""gradcheck passes right derivatives, catches planted wrong ones, and refuses unsuitable inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, functional, gradcheck, gradgradcheck


def leaf(*values: Any) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class WrongSine(Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return bar * x.cos() * 1.01


class WrongSecond(WrongSine):
    @staticmethod
    def backward(ctx: Any, bar: aj.Tensor) -> aj.Tensor:
        (x,) = ctx.saved_tensors
        return bar * x.detach().cos()


def test_wrong_derivatives_are_found_with_a_message_that_shows_both() -> None:
    x = leaf(0.3, 0.7)
    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(WrongSine.apply, x)
    assert gradcheck(WrongSine.apply, x, raise_exception=False) is False
    assert gradcheck(WrongSine.apply, x, rtol=0.1)
    assert gradcheck(WrongSecond.apply, x)
    assert not gradgradcheck(WrongSecond.apply, x, raise_exception=False)


def test_several_inputs_and_outputs_complex_and_strided_vectors() -> None:
    a, b = leaf([0.2, 0.5], [1.0, 2.0]), leaf([1.0, 3.0])
    assert gradcheck(lambda a, b: (a * b, (a @ b.t()).exp()), (a, b))
    assert gradgradcheck(lambda a, b: (a * b).sin(), (a, b), gen_non_contig_grad_outputs=True)
    z = aj.tensor([1 + 2j, 0.5 - 1j], dtype=aj.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z.conj() + z.exp(), z)
    assert gradcheck(lambda z: z.abs(), z)


def test_unsuitable_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(aj.sin, aj.ones(2))
    with pytest.raises(RuntimeError, match="overlap"):
        gradcheck(aj.sin, aj.ones(1, dtype=aj.float64).expand(3).requires_grad_())
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(aj.sin, aj.ones(1, requires_grad=True), raise_exception=False)


def test_functional_derivatives_agree_with_each_other() -> None:
    x, v = aj.tensor([0.3, 1.2], dtype=aj.float64), aj.tensor([1.0, -2.0], dtype=aj.float64)

    def f(x: aj.Tensor) -> aj.Tensor:
        return aj.stack([x[0] * x[1], x[0].sin(), x[1] ** 3])

    jacobian = functional.jacobian(f, x).numpy()
    np.testing.assert_allclose(functional.jvp(f, x, v)[1].numpy(), jacobian @ v.numpy())
    w = aj.tensor([1.0, 2.0, 3.0], dtype=aj.float64)
    np.testing.assert_allclose(functional.vjp(f, x, w)[1].numpy(), w.numpy() @ jacobian)

    def g(x: aj.Tensor) -> aj.Tensor:
        return (f(x) ** 2).sum()

    hessian = functional.hessian(g, x).numpy()
    np.testing.assert_allclose(hessian, hessian.T)
    np.testing.assert_allclose(functional.hvp(g, x, v)[1].numpy(), hessian @ v.numpy())
    np.testing.assert_allclose(functional.vhp(g, x, v)[1].numpy(), v.numpy() @ hessian)
