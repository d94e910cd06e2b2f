"""Fractional pooling, margin and response functions, grouped products, chunked cross-entropy, smoothed resampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit import nn
from autojit.autograd import gradcheck, gradgradcheck


def randn(*shape: int) -> aj.Tensor:
    return aj.randn(*shape, dtype=aj.float64).requires_grad_()


def agrees_compiled(f: Any, *args: aj.Tensor) -> None:
    compiled = aj.jit(f)
    compiled(*args)
    assert aj.allclose(compiled(*args), f(*args))
    assert compiled.stats()["fallbacks"] == 0


@pytest.mark.parametrize("ndim", [2, 3])
def test_fractional_pooling_takes_maxima_of_the_windows_it_drew(ndim: int) -> None:
    x = aj.randn(2, 3, *(7, 8, 6)[:ndim])
    pool = F.fractional_max_pool2d if ndim == 2 else F.fractional_max_pool3d
    best, places = pool(x, 2, output_size=3, return_indices=True)
    assert best.shape == (2, 3, *[3] * ndim)
    assert aj.equal(x.flatten(2).gather(2, places.flatten(2)), best.flatten(2))


def test_fractional_windows_start_where_the_samples_say() -> None:
    line = aj.arange(6.0).reshape(1, 1, 6)
    samples = aj.tensor([[[0.0, 0.0]]])  # no shift: steps of (6 - 2) / (3 - 1) = 2
    assert F.fractional_max_pool2d(line, (1, 2), (1, 3), _random_samples=samples).flatten().tolist() == [1.0, 3.0, 5.0]


def test_fractional_pooling_checks_its_options() -> None:
    with pytest.raises(ValueError, match="output_size or an output_ratio"):
        F.fractional_max_pool2d(aj.ones(1, 4, 4), 2)
    with pytest.raises(RuntimeError, match="too large"):
        F.fractional_max_pool2d(aj.ones(1, 4, 4), 2, output_size=4)
    with pytest.raises(ValueError, match="only one"):
        nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.FractionalMaxPool3d(2, output_ratio=1.5)


def test_the_margin_of_several_labels_is_a_sum_over_pairs() -> None:
    x, labels = randn(2, 4), aj.tensor([[3, 0, -1, 1], [1, -1, 2, 0]])
    expected = []
    for row, wanted in zip(x.tolist(), ([3, 0], [1]), strict=True):
        others = [i for i in range(4) if i not in wanted]
        expected.append(sum(max(0.0, 1 - (row[j] - row[i])) for j in wanted for i in others) / 4)
    found = F.multilabel_margin_loss(x, labels, reduction="none")
    np.testing.assert_allclose(found.tolist(), expected)
    assert gradcheck(lambda x: F.multilabel_margin_loss(x, labels), x)
    agrees_compiled(lambda x: F.multilabel_margin_loss(x, labels), x)
    with pytest.raises(RuntimeError, match="same size"):
        F.multilabel_margin_loss(x, labels[:1])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_local_response_norm_divides_by_neighbouring_channels(size: int) -> None:
    x = randn(2, 6, 3)
    square = np.square(x.detach().numpy())
    mean = np.zeros_like(square)
    for channel in range(6):
        low, high = max(0, channel - size // 2), channel + (size - 1) // 2 + 1
        mean[:, channel] = square[:, low:high].sum(1) / size
    expected = x.detach().numpy() / (1.5 + 0.3 * mean) ** 0.6
    np.testing.assert_allclose(F.local_response_norm(x, size, 0.3, 0.6, 1.5).detach().numpy(), expected)
    assert gradgradcheck(lambda x: F.local_response_norm(x, size, 0.3, 0.6, 1.5), x)


def test_grouped_products_are_products_of_the_groups() -> None:
    rows, stack, ends = randn(5, 3), randn(3, 3, 2), aj.tensor([2, 2, 4], dtype=aj.int32)
    by_rows = aj.cat([rows[:2] @ stack[0], rows[2:4] @ stack[2], aj.zeros(1, 2, dtype=aj.float64)])
    assert aj.allclose(F.grouped_mm(rows, stack, offs=ends), by_rows)
    agrees_compiled(lambda a, b: F.grouped_mm(a, b, offs=ends), rows, stack)
    inner = F.grouped_mm(randn(2, 4).detach(), aj.ones(4, 1, dtype=aj.float64), offs=aj.tensor([1, 4]))
    assert inner.shape == (2, 2, 1)
    columns = F.grouped_mm(stack, aj.ones(2, 4, dtype=aj.float64), offs=aj.tensor([1, 1, 4]))
    assert aj.allclose(columns[:, 0], stack[0].sum(1))
    assert aj.allclose(columns[:, 3], stack[2].sum(1))
    with pytest.raises(RuntimeError, match="offs"):
        F.grouped_mm(rows, stack)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [True, False])
def test_chunks_do_not_change_the_cross_entropy_of_a_linear_map(reduction: str, weighted: bool) -> None:
    x, w, b = randn(5, 3), randn(4, 3), randn(4)
    target = aj.tensor([0, 3, 1, 1, 2])
    weight = aj.tensor([0.5, 1.0, 2.0, 1.5], dtype=aj.float64) if weighted else None

    def loss(options: Any) -> aj.Tensor:
        return F.linear_cross_entropy(
            x, w, target, linear_bias=b, weight=weight, reduction=reduction, ignore_index=3, options=options
        )

    whole, chunked = loss(None), loss(nn.LinearCrossEntropyOptions(batch_chunk_size=2))
    assert aj.allclose(whole, chunked)
    for a, c in zip(*(aj.autograd.grad(y.sum(), (x, w, b)) for y in (whole, chunked)), strict=True):
        assert aj.allclose(a, c)
    with pytest.raises(ValueError, match="chunking_method"):
        nn.LinearCrossEntropyOptions(chunking_method="rows:2")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_smoothed_resampling_keeps_means_of_constants_and_flat_areas(mode: str) -> None:
    found = F.interpolate(aj.ones(1, 1, 9, 8), (4, 3), mode=mode, antialias=True)
    assert aj.allclose(found, aj.ones(1, 1, 4, 3))
    line = aj.arange(8.0).expand(1, 1, 2, 8)
    halves = F.interpolate(line, (2, 4), mode="bilinear", antialias=True)[0, 0, 0]
    np.testing.assert_allclose(halves[1:3].tolist(), [2.5, 4.5], rtol=1e-6)  # inner samples are symmetric means
    with pytest.raises(ValueError, match="Anti-alias"):
        F.interpolate(aj.ones(1, 1, 4), 2, mode="linear", antialias=True)


def test_convolution_by_time_is_the_convolution_of_transposed_sequences() -> None:
    x, w, b = randn(6, 2, 3), randn(2, 3, 4), randn(4)
    expected = F.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1).permute(2, 0, 1)
    assert aj.allclose(F.conv_tbc(x, w, b, 1), expected)


def test_values_outside_of_what_a_loss_is_for_are_refused() -> None:
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(aj.tensor([1.5]), aj.tensor([1.0]))
    with pytest.raises(ValueError, match="negative"):
        F.gaussian_nll_loss(aj.zeros(2), aj.zeros(2), aj.tensor([1.0, -1.0]))
    with pytest.raises(RuntimeError, match="at least 3 dimensions"):
        F.pixel_shuffle(aj.ones(4, 4), 2)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_derivatives_of_convolutions_as_functions(ndim: int) -> None:
    x, w = randn(2, 4, *[5] * ndim), randn(6, 2, *[3] * ndim)
    options = {"stride": 2, "padding": 1, "groups": 2}
    y = getattr(F, f"conv{ndim}d")(x, w, **options)
    y_bar = aj.randn_like(y)
    expected = aj.autograd.grad(y, (x, w), y_bar)
    found = (
        getattr(nn.grad, f"conv{ndim}d_input")(x.shape, w, y_bar, **options),
        getattr(nn.grad, f"conv{ndim}d_weight")(x, w.shape, y_bar, **options),
    )
    for a, b in zip(found, expected, strict=True):
        assert aj.allclose(a, b)


@pytest.mark.parametrize("ndim", [2, 3])
def test_fractional_windows_take_the_first_of_more_places_than_images(ndim: int) -> None:
    pool = getattr(F, f"fractional_max_pool{ndim}d")
    x, samples = aj.randn(2, 4, *[6] * ndim), aj.rand(3, 4, ndim)
    both = pool(x, 2, 3, _random_samples=samples)
    aj.testing.assert_close(both, pool(x, 2, 3, _random_samples=samples[:2]))
    aj.testing.assert_close(pool(x[0], 2, 3, _random_samples=samples), both[0])
    for wrong in (samples[:1], samples[:, :3], samples[..., 1:]):
        with pytest.raises(RuntimeError, match="Expect _random_samples"):
            pool(x, 2, 3, _random_samples=wrong)
