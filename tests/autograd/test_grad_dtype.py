"""``grad_dtype``: the dtype in which gradients of a leaf are kept."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from tests.autograd.modes import Mode


class Widened(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
        return y_bar.to(aj.float64) * 2


def test_a_leaf_has_the_grad_dtype_of_its_own_until_one_is_set() -> None:
    x = aj.ones(2, requires_grad=True)
    assert x.grad_dtype is aj.float32
    x.grad_dtype = aj.float16
    assert x.grad_dtype is aj.float16
    x.grad_dtype = None
    assert x.grad_dtype is None


def test_results_have_none() -> None:
    y = aj.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="only be accessed on leaf tensors"):
        _ = y.grad_dtype
    with pytest.raises(RuntimeError, match="only be set on leaf tensors"):
        y.grad_dtype = aj.float16


@pytest.mark.parametrize(
    ("grad_dtype", "expected"), [("own", aj.float32), (None, aj.float64), (aj.float16, aj.float16)]
)
def test_gradients_are_converted_to_it(mode: Mode, grad_dtype: Any, expected: Any) -> None:
    x = aj.ones(2, requires_grad=True)
    x.clone()  # an accumulator may be there already
    if grad_dtype != "own":
        x.grad_dtype = grad_dtype

    def body() -> None:
        x.grad = None
        Widened.apply(x).sum().backward()

    run = mode(body)
    for _ in range(3):
        run()
        assert x.grad.dtype is expected
        assert x.grad.tolist() == [2.0, 2.0]


def test_a_compiled_step_follows_a_new_grad_dtype() -> None:
    x = aj.ones(2, requires_grad=True)

    @aj.jit
    def step() -> None:
        x.grad = None
        (x * x).sum().backward()

    for dtype in (aj.float32, aj.float64, aj.float32, None):
        x.grad = None
        x.grad_dtype = dtype
        for _ in range(2):
            step()
            assert x.grad.dtype is (dtype or aj.float32)


def test_gradients_are_added_in_the_dtype_of_the_first() -> None:
    x = aj.ones(2, requires_grad=True)
    x.grad_dtype = None
    x.grad = aj.ones(2, dtype=aj.float64)
    (x * 3).sum().backward()
    assert x.grad.dtype is aj.float64
    x.grad = aj.ones(2, dtype=aj.bfloat16)
    (x * 3).sum().backward()
    assert x.grad.dtype is aj.bfloat16
    assert x.grad.tolist() == [4.0, 4.0]


def test_assigned_gradients_are_checked_against_it() -> None:
    x = aj.ones(2, requires_grad=True)
    x.grad_dtype = aj.float16
    with pytest.raises(RuntimeError, match="gradient with dtype 'float' to a tensor with grad_dtype 'Half'"):
        x.grad = aj.ones(2)
    x.grad = aj.ones(2, dtype=aj.float16)
    with pytest.raises(RuntimeError, match="Cannot set grad_dtype to 'Float' because there is already a gradient"):
        x.grad_dtype = aj.float32
    x.grad_dtype = None
    x.grad = aj.ones(2, dtype=aj.float64)
