"""Values and derivatives at hard points as torch documents them: NaN, infinities, zeros, negative options, rare dtypes.

Each case is computed eagerly, in one pass over a large array, and compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

F = aj.nn.functional
NAN, INF = math.nan, math.inf
Function = Callable[..., aj.Tensor]
# function, operands, values, derivatives by the first operand, and by the second
ONE: dict[str, tuple[Function, list[float], list[float], list[float]]] = {
    "elu, negative": (
        lambda x: F.elu(x, -0.5),
        [-INF, -1.0, 0.0, 2.0, NAN],
        [0.5, -0.5 * math.expm1(-1), 0.0, 2.0, NAN],
        [0.0, -0.5 * math.exp(-1), -0.5, 1.0, 1.0],
    ),
    "elu, zero": (lambda x: F.elu(x, 0.0), [-INF, -1.0, 2.0, NAN], [0.0, 0.0, 2.0, NAN], [0.0, 0.0, 1.0, 1.0]),
    "relu": (F.relu, [-1.0, 0.0, 2.0, NAN], [0.0, 0.0, 2.0, NAN], [0.0, 0.0, 1.0, 1.0]),
    "softshrink": (F.softshrink, [-1.0, 0.2, 2.0, NAN], [-0.5, 0.0, 1.5, NAN], [1.0, 0.0, 1.0, 1.0]),
    "hardshrink": (F.hardshrink, [-1.0, 0.2, 2.0, NAN], [-1.0, 0.0, 2.0, NAN], [1.0, 0.0, 1.0, 1.0]),
    "threshold": (lambda x: F.threshold(x, 0.5, 7.0), [0.2, 2.0, NAN], [7.0, 2.0, NAN], [0.0, 1.0, 1.0]),
    "hardswish": (F.hardswish, [-INF, -4.0, 0.0, 4.0], [NAN, 0.0, 0.0, 4.0], [0.0, 0.0, 0.5, 1.0]),
}
TWO: dict[str, tuple[Function, list[float], list[float], list[float], list[float], list[float]]] = {
    "xlogy": (
        aj.xlogy,
        [0.0, 0.0, 0.0, 2.0],
        [-1.0, 0.5, NAN, 1.0],
        [0.0, 0.0, NAN, 0.0],
        [0.0, math.log(0.5), NAN, 0.0],
        [0.0, 0.0, NAN, 2.0],
    ),
    "xlog1py": (
        aj.special.xlog1py,
        [0.0, 0.0, 0.0, 2.0],
        [-2.0, 0.25, NAN, 1.0],
        [0.0, 0.0, NAN, 2 * math.log(2)],
        [0.0, math.log1p(0.25), NAN, math.log(2)],
        [0.0, 0.0, NAN, 1.0],
    ),
}
WAYS = {"eager": (lambda f: f, 1), "large": (lambda f: f, 5000), "compiled": (aj.jit, 1)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ONE)
def test_of_one(name: str, way: str) -> None:
    function, given, values, slopes = ONE[name]
    prepare, times = WAYS[way]
    x = aj.tensor(given * times, requires_grad=True)
    y = prepare(lambda x: function(x))(x)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), values * times, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(x.grad.numpy(), slopes * times, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TWO)
def test_of_two(name: str, way: str) -> None:
    function, first, second, values, by_first, by_second = TWO[name]
    prepare, times = WAYS[way]
    x, y = aj.tensor(first * times, requires_grad=True), aj.tensor(second * times, requires_grad=True)
    z = prepare(lambda x, y: function(x, y))(x, y)
    z.sum().backward()
    np.testing.assert_allclose(z.detach().numpy(), values * times, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), by_first * times, rtol=1e-6)
    np.testing.assert_allclose(y.grad.numpy()[:2], by_second[:2], rtol=1e-6)
    np.testing.assert_allclose(y.grad.numpy()[3], by_second[3], rtol=1e-6)


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("dim", [None, 0, (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [aj.complex64, aj.complex128, aj.bfloat16, aj.float16], ids=str)
def test_means_of_rare_dtypes(dtype: Any, dim: Any, way: str) -> None:
    x = aj.tensor([[1.0, 2.0], [3.0, -2.0]]).to(dtype).requires_grad_()
    y = WAYS[way][0](lambda x: x.mean(dim))(x)
    assert y.dtype is dtype
    assert y.grad_fn.name() in ("MeanBackward0", "MeanBackward1") or way == "compiled"
    (y.abs() if dtype.is_complex else y).float().sum().backward()
    wanted = np.asarray([[1.0, 2.0], [3.0, -2.0]]).mean(dim)
    np.testing.assert_allclose(y.detach().to(aj.complex64 if dtype.is_complex else aj.float32).numpy(), wanted)
    share = np.full((2, 2), 0.25 if dim != 0 else 0.5) * (np.sign(wanted) if dtype.is_complex else 1)
    assert x.grad.dtype is dtype
    np.testing.assert_allclose(x.grad.to(aj.complex64).numpy(), share, atol=1e-6)


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("sizes", [[0, 8], [8, 0], [0, 8, 0], [3, 0, 5]], ids=str)
def test_pieces_beside_empty_ones(sizes: list[int], way: str) -> None:
    leaf = aj.arange(8.0).requires_grad_()
    for source in (leaf, leaf * 1):
        leaf.grad = None
        pieces = WAYS[way][0](lambda x: x.split(sizes))(source)
        assert source.is_leaf is (source is leaf)
        for piece in pieces:
            (piece * piece).sum().backward(retain_graph=True)
        assert leaf.grad.tolist() == [2 * float(k) for k in range(8)]
