"""Functions that are one node of the history though several ops compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import gradcheck, gradgradcheck


def draws(*shape: int) -> aj.Tensor:
    return aj.randn(*shape, dtype=aj.float64, requires_grad=True)


VARIANCES = [{}, {"dim": 0}, {"dim": (0, 1), "keepdim": True}, {"dim": 1, "correction": 0}, {"unbiased": False}]


@pytest.mark.parametrize("options", VARIANCES, ids=str)
@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
def test_variance_and_mean_are_two_outputs_of_one_node(name: str, options: dict[str, Any]) -> None:
    function = getattr(aj, name)
    x = draws(3, 4)
    variance, mean = function(x, **options)
    assert variance.grad_fn is mean.grad_fn
    assert variance.grad_fn.name() == {"var_mean": "VarMeanBackward0", "std_mean": "StdMeanBackward0"}[name]
    assert (variance.output_nr, mean.output_nr) == (0, 1)
    assert [m.shape for m in variance.grad_fn._input_metadata] == [variance.shape, mean.shape]
    assert gradcheck(lambda t: function(t, **options), (x,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(lambda t: function(t, **options), (x,))


def test_the_derivative_of_a_standard_deviation_of_zero_is_zero() -> None:
    x = aj.ones(3, requires_grad=True)
    aj.std_mean(x)[0].backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_the_variance_of_one_element_has_no_finite_gradient() -> None:
    x = aj.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        variance, _ = aj.var_mean(x)
    variance.backward()
    assert np.isnan(x.grad.numpy()).all()


def test_a_pre_hook_sees_both_gradients() -> None:
    x = draws(3, 3)
    (expected,) = aj.autograd.grad(sum(t.sum() for t in aj.var_mean(x, dim=0)), x)
    variance, mean = aj.var_mean(x, dim=0)
    mean.grad_fn.register_prehook(lambda grads: tuple(g * 2 for g in grads))
    (variance + mean).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * expected.numpy())


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2), (0, 3)])
def test_addmm_is_one_node(beta: float, alpha: float) -> None:
    base, x, w = draws(4), draws(2, 3), draws(3, 4)
    y = aj.addmm(base, x, w, beta=beta, alpha=alpha)
    assert y.grad_fn.name() == "AddmmBackward0"
    np.testing.assert_allclose(y.detach().numpy(), beta * base.detach().numpy() + alpha * (x @ w).detach().numpy())
    function = lambda *operands: aj.addmm(*operands, beta=beta, alpha=alpha)
    assert gradcheck(function, (base, x, w), check_forward_ad=True)
    assert gradgradcheck(function, (base, x, w))


def test_a_linear_layer_is_addmm_of_its_bias() -> None:
    layer = aj.nn.Linear(3, 2)
    x = aj.randn(4, 3, requires_grad=True)
    node = layer(x).grad_fn
    assert node.name() == "AddmmBackward0"
    assert [n.name() for n, _ in node.next_functions] == ["torch::autograd::AccumulateGrad"] * 2 + ["TBackward0"]
    assert layer(aj.randn(2, 4, 3)).shape == (2, 4, 2)


def test_compiled_they_are_the_same() -> None:
    layer = aj.nn.Linear(3, 2)

    def body(x: aj.Tensor) -> Any:
        variance, mean = aj.var_mean(layer(x), dim=0)
        return aj.autograd.grad((variance * mean).sum(), (layer.weight, layer.bias))

    step = aj.jit(body)
    for seed in range(3):
        aj.manual_seed(seed)
        x = aj.randn(4, 3)
        for found, expected in zip(step(x), body(x), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)
    assert step.stats()["fallbacks"] == 0


def test_without_a_gradient_nothing_is_recorded() -> None:
    assert all(t.grad_fn is None for t in aj.var_mean(aj.ones(3)))
    with aj.no_grad():
        assert aj.addmm(draws(2), draws(2, 2), draws(2, 2)).grad_fn is None
