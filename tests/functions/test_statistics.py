"""Histograms, quantiles without NaN, segments and random counts follow their definitions."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import autojit as aj


def draws(*shape: int, seed: int = 0) -> aj.Tensor:
    return aj.tensor(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("bins", [1, 5, 8])
@pytest.mark.parametrize("limits", [None, (-1.0, 1.0), (0.5, 0.5)])
@pytest.mark.parametrize("density", [False, True])
def test_histograms_are_numpys(bins: int, limits: Any, density: bool) -> None:
    x, w = draws(4, 10), draws(4, 10, seed=1) ** 2
    for weight in (None, w):
        found = aj.histogram(x, bins, range=limits, weight=weight, density=density)
        expected, edges = np.histogram(
            x.numpy(), bins, limits, weights=None if weight is None else w.numpy(), density=density
        )
        np.testing.assert_allclose(found.bin_edges.numpy(), edges, atol=1e-12)
        np.testing.assert_allclose(found.hist.numpy(), expected, atol=1e-12)


def test_histograms_between_given_edges() -> None:
    edges = aj.tensor([-1.0, 0.0, 0.25, 2.0], dtype=aj.float64)
    found = aj.histogram(draws(50), edges)
    np.testing.assert_array_equal(found.hist.numpy(), np.histogram(draws(50).numpy(), edges.numpy())[0])


def test_histograms_of_points_are_numpys() -> None:
    points = draws(30, 3)
    found = aj.histogramdd(points, [2, 3, 4], weight=points[:, 0] ** 2, density=True)
    expected, edges = np.histogramdd(points.numpy(), [2, 3, 4], weights=points.numpy()[:, 0] ** 2, density=True)
    np.testing.assert_allclose(found.hist.numpy(), expected)
    for a, b in zip(found.bin_edges, edges, strict=True):
        np.testing.assert_allclose(a.numpy(), b)
    given = aj.histogramdd(points, [aj.tensor([-1.0, 0.0, 1.0], dtype=aj.float64)] * 3)
    np.testing.assert_array_equal(given.hist.numpy(), np.histogramdd(points.numpy(), [[-1, 0, 1]] * 3)[0])
    assert aj.histogramdd(points, 2, range=[0.0, 1.0] * 3).hist.shape == (2, 2, 2)


def test_weights_of_histograms_differentiate() -> None:
    x, w = draws(20), draws(20, seed=1).requires_grad_()
    aj.autograd.gradcheck(lambda w: aj.histogram(x, 4, weight=w).hist, (w,))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: aj.histogram(aj.tensor([1]), 2), NotImplementedError),
        (lambda: aj.histogram(aj.ones(2), 0), RuntimeError),
        (lambda: aj.histogram(aj.ones(2), 2, range=(1.0, 0.0)), RuntimeError),
        (lambda: aj.histogram(aj.ones(2), aj.ones(2, 2)), RuntimeError),
        (lambda: aj.histogram(aj.ones(2), 2, weight=aj.ones(3)), RuntimeError),
        (lambda: aj.histogramdd(aj.ones(2), 2), RuntimeError),
        (lambda: aj.histogramdd(aj.ones(2, 2), [1, 2, 3]), RuntimeError),
        (lambda: aj.segment_reduce(aj.ones(3), "sum"), RuntimeError),
        (lambda: aj.segment_reduce(aj.ones(3), "sum", lengths=aj.tensor([1, 1])), RuntimeError),
        (lambda: aj.segment_reduce(aj.ones(3), "middle", lengths=aj.tensor([3])), RuntimeError),
        (lambda: aj.nanquantile(aj.ones(3), 1.5), RuntimeError),
        (lambda: aj.nanquantile(aj.ones(3), 0.5, interpolation="cubic"), RuntimeError),
        (lambda: aj.nanquantile(aj.tensor([1]), 0.5), RuntimeError),
        (lambda: aj.poisson(aj.tensor([-1.0])), RuntimeError),
        (lambda: aj.poisson(aj.tensor([1])), NotImplementedError),
        (lambda: aj.binomial(aj.tensor([1]), aj.tensor([0.5])), ValueError),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_quantiles_without_nan_are_numpys(interpolation: Any, dim: int | None, keepdim: bool) -> None:
    x = draws(6, 5)
    x[0, 1] = x[3, 1] = x[5, 4] = math.nan
    q = aj.tensor([0.1, 0.5, 0.93], dtype=aj.float64)
    expected = np.nanquantile(x.numpy(), q.numpy(), axis=dim, keepdims=keepdim, method=interpolation)
    found = aj.nanquantile(x, q, dim, keepdim, interpolation=interpolation)
    np.testing.assert_allclose(found.numpy(), expected)
    one = aj.jit(lambda x: aj.nanquantile(x, 0.5, dim, keepdim, interpolation=interpolation))(x)
    np.testing.assert_allclose(one.numpy(), expected[1])


def test_quantiles_without_nan_differentiate() -> None:
    x = draws(5, 3)
    x[2, 1] = math.nan
    given = aj.tensor([0.3, 0.6], dtype=aj.float64, requires_grad=True)
    (slope,) = aj.autograd.grad(aj.nanquantile(x.requires_grad_(), given, 0).sum(), x, create_graph=True)
    np.testing.assert_allclose(slope.detach().sum(0).numpy(), [2.0, 2.0, 2.0])
    assert slope[2, 1].item() == 0
    aj.autograd.gradcheck(lambda q: aj.nanquantile(x.detach(), q, 0), (given,))
    assert aj.nanquantile(aj.tensor([math.nan]), 0.5).isnan()


FOLDS = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("by", ["lengths", "offsets"])
def test_segments_are_slices_folded(fold: str, by: str) -> None:
    x = draws(7, 2)
    lengths = [2, 4, 1]
    offsets = [0, 2, 6, 7]
    given = aj.tensor(lengths if by == "lengths" else offsets)
    expected = [FOLDS[fold](x.numpy()[a:b], 0) for a, b in pairwise(offsets)]
    found = aj.segment_reduce(x, fold, **{by: given})
    np.testing.assert_allclose(found.numpy(), expected)
    compiled = aj.jit(lambda x: aj.segment_reduce(x, fold, **{by: given}))
    np.testing.assert_allclose(compiled(x).numpy(), expected)
    aj.autograd.gradcheck(lambda x: aj.segment_reduce(x, fold, **{by: given}), (x.requires_grad_(),))


def test_segments_along_a_later_axis_differ_by_row() -> None:
    x = aj.arange(6.0).reshape(2, 3)
    found = aj.segment_reduce(x, "sum", lengths=aj.tensor([[2, 1], [1, 2]]), axis=1)
    np.testing.assert_array_equal(found.numpy(), [[1.0, 2.0], [3.0, 9.0]])


def test_empty_segments_give_the_neutral_element() -> None:
    lengths = aj.tensor([2, 0, 1])
    values = {fold: aj.segment_reduce(aj.ones(3), fold, lengths=lengths)[1].item() for fold in FOLDS}
    assert math.isnan(values.pop("mean"))
    assert values == {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
    found = aj.segment_reduce(aj.ones(3), "min", lengths=lengths, initial=0.5)
    np.testing.assert_array_equal(found.numpy(), [0.5, 0.5, 0.5])


@pytest.mark.parametrize("rate", [0.5, 4.0, 50.0])
def test_counts_have_the_moments_of_their_distribution(rate: float) -> None:
    aj.manual_seed(0)
    found = aj.poisson(aj.full((20000,), rate))
    assert abs(found.mean().item() - rate) < 5 * math.sqrt(rate / 20000)
    assert abs(found.var().item() / rate - 1) < 0.1
    drawn = aj.binomial(aj.full((20000,), 40.0), aj.tensor(rate / 100))
    assert abs(drawn.mean().item() - 0.4 * rate) < 5 * math.sqrt(0.4 * rate / 20000)
    assert drawn.max() <= 40


def test_counts_repeat_with_their_generator() -> None:
    rates = aj.full((100,), 20.0)
    first = aj.poisson(rates, aj.Generator().manual_seed(3))
    aj.poisson(rates)
    np.testing.assert_array_equal(first.numpy(), aj.poisson(rates, aj.Generator().manual_seed(3)).numpy())
    count = aj.binomial(rates, aj.full((100,), 0.5), aj.Generator().manual_seed(3))
    again = aj.binomial(rates, aj.full((100,), 0.5), generator=aj.Generator().manual_seed(3))
    np.testing.assert_array_equal(count.numpy(), again.numpy())
