"""Composites that eager mode computes in one go: the same values, derivatives and names as their composites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.ir import evaluate, parse_graph
from autojit.nn import functional as F
from autojit.tensor import Tensor
from tests.on_cpu import expand

Case = tuple[Callable[[Tensor], Tensor], str]

CASES: dict[str, Case] = {
    "mean": (lambda x: x.mean(), "MeanBackward0"),
    "mean over an axis": (lambda x: x.mean(1, keepdim=True), "MeanBackward1"),
    "mean over axes": (lambda x: x.mean((0, -1)), "MeanBackward1"),
    "softmax": (lambda x: x.softmax(-1), "SoftmaxBackward0"),
    "log_softmax": (lambda x: x.log_softmax(0), "LogSoftmaxBackward0"),
    "stack": (lambda x: aj.stack((x, x * x), 1), "StackBackward0"),
    "mse_loss": (lambda x: F.mse_loss(x, aj.arange(12, dtype=x.dtype).view(3, 4)), "MseLossBackward0"),
    "cross_entropy": (lambda x: F.cross_entropy(x, aj.tensor([2, 0, 3])), "NllLossBackward0"),
    "linear": (lambda x: F.linear(x, aj.eye(4, dtype=x.dtype) * 2, x[0]), "AddmmBackward0"),
}


@pytest.fixture
def x() -> Tensor:
    return aj.tensor(np.random.default_rng(3).normal(size=(3, 4)), requires_grad=True)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_eager_equals_compiled_to_the_second_derivative(case: Case, x: Tensor) -> None:
    function, _ = case

    def derivatives(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = function(x)
        (slope,) = aj.autograd.grad((y * y * y).sum(), x, create_graph=True)
        (bend,) = aj.autograd.grad((slope * slope).sum(), x)
        return y, slope, bend

    for found, expected in zip(derivatives(x), aj.jit(derivatives)(x), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_derivatives_agree_with_differences(case: Case, x: Tensor) -> None:
    function, _ = case
    assert aj.autograd.gradcheck(function, (x,))
    assert aj.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_one_node_is_recorded_under_the_functions_name(case: Case, x: Tensor) -> None:
    function, name = case
    node: Any = function(x).grad_fn
    assert node.name() == name


@pytest.mark.parametrize("dtype", [aj.float16, aj.bfloat16, aj.complex64])
def test_other_dtypes_take_the_composite(dtype: Any) -> None:
    x = aj.tensor([1.0, 2.0, 4.0]).to(dtype)
    assert complex(x.mean().item()) == pytest.approx(7 / 3, rel=1e-2)
    assert x.mean().dtype is dtype


def test_targets_that_are_ignored_or_wrong_take_the_composite(x: Tensor) -> None:
    ignored = F.cross_entropy(x, aj.tensor([1, -100, 0]))
    assert ignored.item() == pytest.approx(F.cross_entropy(x[[0, 2]], aj.tensor([1, 0])).item())
    for target in ([0, 4, 1], [0, -1, 1]):
        with pytest.raises(IndexError, match="out of bounds"):
            F.cross_entropy(x, aj.tensor(target))


def test_softmax_of_large_and_infinite_numbers() -> None:
    x = aj.tensor([[1e30, 1e30], [-np.inf, 0.0], [-np.inf, -np.inf]])
    np.testing.assert_array_equal(x.softmax(1).numpy(), [[0.5, 0.5], [0, 1], [np.nan, np.nan]])
    np.testing.assert_allclose(x.log_softmax(1).numpy()[:2], [[-np.log(2)] * 2, [-np.inf, 0]], rtol=1e-6)


def test_the_compiler_sees_their_composites() -> None:
    text = (
        "(x: f32[2, 3]) { a: f32[2, 3] = softmax[axis=1](x); b: f32[2] = mean[axes=(1,), keepdim=False](a); return b }"
    )
    graph = expand(parse_graph(text))
    assert not {"softmax", "mean"} & {node.op.name for node in graph.nodes}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(evaluate(graph, [x])[0], [1 / 3, 1 / 3], rtol=1e-6)


def test_adding_a_multiple_in_place_equals_the_sum() -> None:
    x, y = aj.tensor([1.0, 2.0]), aj.tensor([3.0, 5.0])
    expected = x + y * 0.1
    before = x._version
    assert x.add_(y, alpha=0.1) is x
    assert x.tolist() == expected.tolist()
    assert x._version == before + 1
    assert x.sub_(y, alpha=2).tolist() == (expected - y * 2).tolist()


def test_writes_that_need_a_check_are_still_refused_or_recorded() -> None:
    leaf = aj.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.add_(1.0)
    y = leaf * 2
    assert y.mul_(3.0).grad_fn.name() == "MulBackward0"
    with pytest.raises(RuntimeError):
        aj.ones(3).expand(2, 3).add_(1.0)
    with pytest.raises(RuntimeError):
        aj.ones(2).add_(aj.ones(3))
    with aj.inference_mode():
        made = aj.ones(2)
    with pytest.raises(RuntimeError):
        made.requires_grad_(True)


@pytest.mark.parametrize("extents", [(40, 1), (40, 3), (2, 30, 5), (33, 2)])
def test_softmaxes_of_many_rows_are_those_of_each(extents: tuple[int, ...]) -> None:
    """Maxima of many rows are found by position: the same numbers, with infinities, NaN and zeros of both signs."""
    draws = np.random.default_rng(len(extents)).choice([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan], extents)
    for function in (aj.softmax, aj.log_softmax):
        found = function(aj.tensor(draws), -1).numpy().reshape(-1, extents[-1])
        for row, wanted in zip(found, draws.reshape(-1, extents[-1]), strict=True):
            alone = function(aj.tensor(wanted), -1).numpy()
            np.testing.assert_array_equal(row, alone)
            known = ~np.isnan(row)
            np.testing.assert_array_equal(np.signbit(row[known]), np.signbit(alone[known]))
