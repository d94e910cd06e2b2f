"""Pooling and sliding blocks: values that torch gives, laws against plain loops, derivatives, layers, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.autograd import gradcheck, gradgradcheck
from autojit.nn import functional as F
from tests.nn.test_convolution import draw, ramp

nan = float("nan")
POOLS: dict[str, Callable[[aj.Tensor], Any]] = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max overlapping": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    "max dilated": lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 1), (3, 2), return_indices=True),
    "max long": lambda x: F.max_pool1d(x.flatten(2), 20, 3, return_indices=True),
    "max volume": lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True),
    "mean": lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), True, False),
    "mean long": lambda x: F.avg_pool1d(x.flatten(2), 20, 3, 4),
    "mean volume": lambda x: F.avg_pool3d(x, 2, divisor_override=3),
    "adaptive mean": lambda x: F.adaptive_avg_pool2d(x, (3, None)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
    "norm": lambda x: F.lp_pool2d(x, 2, 3, 2),
    "unfold": lambda x: F.unfold(x, (2, 3), 2, (1, 2), (2, 1)),
    "fold": lambda x: F.fold(x.reshape(2, 12, 15), (4, 6), 2),
}


def first(result: Any) -> aj.Tensor:
    found: aj.Tensor = result[0] if isinstance(result, tuple) else result
    return found


@pytest.mark.parametrize("pool", POOLS)
def test_compiled_pools_and_gradients_equal_eager_ones(pool: str) -> None:
    def step(x: aj.Tensor) -> Any:
        x = x.detach().requires_grad_()
        result = POOLS[pool](x)
        y = first(result)
        rest = result[1:] if isinstance(result, tuple) else ()
        return y.detach(), aj.autograd.grad((y * y).sum(), x)[0], *rest

    x = aj.tensor(draw((2, 3, 6, 10)))
    compiled = aj.jit(step)
    for _ in range(2):
        found = compiled(x)
    for y, expected in zip(found, step(x), strict=True):
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)
    assert compiled.stats()["fallbacks"] == 0


@pytest.mark.parametrize("pool", POOLS)
def test_derivatives_to_second_order(pool: str) -> None:
    x = aj.tensor(draw((2, 3, 6, 10)), requires_grad=True)
    assert gradcheck(lambda x: first(POOLS[pool](x)), (x,), fast_mode=True)
    assert gradgradcheck(lambda x: first(POOLS[pool](x)), (x,), fast_mode=True)


@pytest.mark.parametrize("kernel", [2, 3, 17])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_windows_are_those_of_a_plain_loop(kernel: int, ceil_mode: bool) -> None:
    x = draw((2, 41))
    padding, stride = kernel // 2, 2
    best, places = F.max_pool1d(aj.tensor(x), kernel, stride, padding, 1, ceil_mode, True)
    mean = F.avg_pool1d(aj.tensor(x), kernel, stride, padding, ceil_mode, False)
    for i in range(best.shape[1]):
        low, high = max(i * stride - padding, 0), min(i * stride - padding + kernel, 41)
        np.testing.assert_allclose(best[:, i].numpy(), x[:, low:high].max(1))
        np.testing.assert_array_equal(places[:, i].numpy(), low + x[:, low:high].argmax(1))
        np.testing.assert_allclose(mean[:, i].numpy(), x[:, low:high].mean(1))


def test_among_equals_the_first_wins_and_nan_is_greatest() -> None:
    x = aj.tensor([[[1.0, 5.0, 5.0, 2.0], [0.0, nan, 3.0, -1.0], [-2.0, -2.0, 4.0, 4.0]]])
    best, places = F.max_pool2d(x, (2, 3), stride=1, padding=(1, 1), return_indices=True)
    expected = [[5.0, 5.0, 5.0, 5.0], [nan, nan, nan, 5.0], [nan, nan, nan, 4.0], [-2.0, 4.0, 4.0, 4.0]]
    np.testing.assert_array_equal(best[0].numpy(), np.array(expected, np.float32))
    assert places[0].tolist() == [[1, 1, 1, 2], [5, 5, 5, 2], [5, 5, 5, 10], [8, 10, 10, 10]]


def test_values_of_torch() -> None:
    mean = F.avg_pool2d(ramp(1, 5, 5), 3, 2, 1, True, False)
    np.testing.assert_allclose(
        mean[0].numpy(), [[-0.5, 5 / 6, 1.25], [-7 / 6, -4 / 9, -1 / 3], [0.0, -0.5, -1.0]], atol=1e-12
    )
    adaptive = F.adaptive_avg_pool2d(ramp(1, 5, 7), (2, 3))
    np.testing.assert_allclose(adaptive[0].numpy() * 9, [[-3.0, 2.0, -4.0], [-1.0, 4.0, -2.0]], atol=1e-12)
    best, places = F.adaptive_max_pool2d(ramp(1, 5, 7), (3, 2), return_indices=True)
    assert best[0].tolist() == [[5.0, 5.0], [5.0, 5.0], [4.0, 5.0]]
    assert places[0].tolist() == [[3, 3], [14, 25], [28, 25]]
    folded = F.fold(ramp(1, 8, 4), (3, 3), 2)
    assert folded[0, 0].tolist() == [[-5.0, 3.0, -3.0], [-6.0, 14.0, -2.0], [-1.0, 0.0, 1.0]]


def test_integers_pool_as_integers() -> None:
    x = aj.arange(16).reshape(1, 4, 4) - 9
    assert F.max_pool2d(x, 2).tolist() == [[[-4, -2], [4, 6]]]
    assert F.avg_pool2d(x, 2).tolist() == [[[-6, -4], [1, 3]]]


def test_fold_is_the_adjoint_of_unfold() -> None:
    x = aj.tensor(draw((2, 3, 7, 8)))
    options = {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 2), "stride": (1, 2)}
    columns = F.unfold(x, **options)
    y = aj.tensor(draw(tuple(columns.shape), 1))
    back = F.fold(y, (7, 8), **options)
    assert (columns * y).sum().item() == pytest.approx((x * back).sum().item(), rel=1e-12)


def test_unpooling_puts_maxima_back() -> None:
    x = aj.tensor(draw((2, 3, 8, 6)), requires_grad=True)
    best, places = nn.MaxPool2d(2, return_indices=True)(x)
    back = nn.MaxUnpool2d(2)(best, places)
    assert back.shape == x.shape
    np.testing.assert_array_equal(F.max_pool2d(back.abs(), 2).detach().numpy(), best.abs().detach().numpy())
    assert gradcheck(lambda v: F.max_unpool2d(v, places, 2), (best.detach().requires_grad_(),))
    with pytest.raises(ValueError, match="invalid output_size"):
        F.max_unpool2d(best, places, 2, output_size=(20, 20))


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "rank": (lambda: F.max_pool1d(aj.ones(1, 2, 3, 4), 2), "Expected 2D or 3D"),
    "stride": (lambda: F.max_pool2d(aj.ones(1, 4, 4), 2, 0), "stride should not be zero"),
    "padding": (lambda: F.max_pool2d(aj.ones(1, 4, 4), 2, padding=2), "at most half of effective kernel size"),
    "size": (lambda: F.avg_pool2d(aj.ones(1, 4, 4), 9), "Output size is too small"),
    "length": (lambda: F.max_pool2d(aj.ones(1, 4, 4), (2, 2, 2)), "single int, or a tuple of two ints"),
    "divisor": (lambda: F.avg_pool2d(aj.ones(1, 4, 4), 2, divisor_override=0), "divisor must be not zero"),
    "adaptive": (lambda: F.adaptive_avg_pool2d(aj.ones(1, 4, 4), (2, 2, 2)), "output_size must be 2"),
    "blocks": (lambda: F.unfold(aj.ones(1, 4, 4), 5), "its components must be at least one"),
    "columns": (lambda: F.fold(aj.ones(1, 4, 5), (3, 3), 2), "to match the calculated number of sliding blocks"),
    "indices": (lambda: F.max_unpool1d(aj.ones(1, 2), aj.zeros(1, 2), 2), "should be type int64"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_those_of_torch(case: str) -> None:
    call, text = ERRORS[case]
    with pytest.raises(RuntimeError, match=text):
        call()


def test_layers_show_their_parameters_and_call_their_functions() -> None:
    x = aj.tensor(draw((2, 3, 8, 8)))
    layers: dict[str, tuple[nn.Module, aj.Tensor]] = {
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)": (
            nn.MaxPool2d(2), F.max_pool2d(x, 2)
        ),
        "AvgPool2d(kernel_size=3, stride=2, padding=1)": (nn.AvgPool2d(3, 2, 1), F.avg_pool2d(x, 3, 2, 1)),
        "AdaptiveAvgPool2d(output_size=(1, 1))": (nn.AdaptiveAvgPool2d((1, 1)), x.mean((2, 3), keepdim=True)),
        "AdaptiveMaxPool2d(output_size=3)": (nn.AdaptiveMaxPool2d(3), F.adaptive_max_pool2d(x, 3)),
        "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=False)": (
            nn.LPPool2d(2, 3), F.lp_pool2d(x, 2.0, 3)
        ),
        "Unfold(kernel_size=3, dilation=1, padding=0, stride=1)": (nn.Unfold(3), F.unfold(x, 3)),
    }  # fmt: skip
    for text, (layer, expected) in layers.items():
        assert repr(layer) == text
        np.testing.assert_allclose(layer(x).numpy(), expected.numpy(), rtol=1e-12)
    assert repr(nn.AvgPool1d(2)) == "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"
    assert repr(nn.MaxUnpool2d(2)) == "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"


NODES: dict[str, tuple[str, Callable[[aj.Tensor], aj.Tensor]]] = {
    "maxima of lines": ("SqueezeBackward1", lambda x: F.max_pool1d(x.flatten(2), 3)),
    "maxima": ("MaxPool2DWithIndicesBackward0", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True)),
    "maxima of volumes": ("MaxPool3DWithIndicesBackward0", lambda x: F.max_pool3d(x, 2)),
    "means of lines": ("SqueezeBackward1", lambda x: F.avg_pool1d(x.flatten(2), 3)),
    "means": ("AvgPool2DBackward0", lambda x: F.avg_pool2d(x, 2, 1)),
    "means of volumes": ("AvgPool3DBackward0", lambda x: F.avg_pool3d(x, 2)),
}


@pytest.mark.parametrize("side", [8, 40])
@pytest.mark.parametrize("pool", NODES)
def test_a_pool_is_one_node_named_as_torch_names_it(pool: str, side: int) -> None:
    name, call = NODES[pool]
    x = aj.tensor(draw((2, 3, side, side)), requires_grad=True)
    if "volumes" in pool:
        x = x.detach()[None].requires_grad_()
    found = call(x)
    assert found.grad_fn.name() == name
    (before,) = (function for function, _ in found.grad_fn.next_functions)
    assert before.name() in ("torch::autograd::AccumulateGrad", "ViewBackward0"), before


@pytest.mark.parametrize("pool", ["maxima", "means"])
def test_another_layout_of_images_is_kept_and_has_the_values_and_the_node(pool: str) -> None:
    name = NODES[pool][0]
    call = (lambda x: F.max_pool2d(x, 3, 2)) if pool == "maxima" else NODES[pool][1]
    x = aj.tensor(draw((2, 3, 8, 8)))
    other = x.to(memory_format=aj.channels_last).requires_grad_()
    found = call(other)
    assert found.is_contiguous(memory_format=aj.channels_last) and found.grad_fn.name() == name
    assert aj.equal(found, call(x))


def test_an_operand_that_changed_before_backward_is_refused() -> None:
    for _, call in (NODES["maxima"], NODES["means"]):
        x = aj.tensor(draw((2, 3, 8, 8)), requires_grad=True) * 1
        found = call(x).sum()
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.backward()
