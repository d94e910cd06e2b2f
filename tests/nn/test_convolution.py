"""Convolutions: the defining sum, values that torch gives, derivatives, compiled equals eager, layers, errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit as aj
from autojit import nn
from autojit.autograd import gradcheck, gradgradcheck
from autojit.nn import functional as F

Array = NDArray[np.float64]
CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# (input, weight, parameters): every parameter apart and together, runs over one and several rows, several bands
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 6, 7), (4, 3, 3, 2), {}),
    "stride": ((2, 3, 7, 8), (4, 3, 3, 3), {"stride": (2, 3)}),
    "padding": ((1, 2, 4, 5), (3, 2, 3, 3), {"padding": (2, 1)}),
    "dilation": ((1, 2, 7, 9), (3, 2, 3, 2), {"dilation": (2, 3), "padding": 2}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1}),
    "depthwise": ((2, 3, 6, 9), (6, 1, 3, 3), {"groups": 3, "padding": 1}),
    "one by one": ((2, 5, 4, 4), (7, 5, 1, 1), {}),
    "stride beyond kernel": ((1, 2, 9, 9), (2, 2, 2, 2), {"stride": 4}),
    "whole vectors": ((2, 3, 5, 16), (8, 3, 3, 3), {"padding": 1}),
    "signal": ((2, 3, 40), (5, 3, 4), {"stride": 2, "padding": 3, "dilation": 2}),
    "volume": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
    "large kernel": ((1, 1, 9, 9), (2, 1, 7, 7), {"padding": 3}),
}


def draw(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def ramp(*shape: int) -> aj.Tensor:
    return ((aj.arange(int(np.prod(shape)), dtype=aj.float64) * 7) % 11 - 5).reshape(shape)


def spatial(value: Any, ndim: int, default: int) -> tuple[int, ...]:
    value = default if value is None else value
    return (value,) * ndim if isinstance(value, int) else tuple(value)


def by_definition(x: Array, w: Array, **options: Any) -> Array:
    """The sum over taps and channels, one tap at a time over an image inside zeros."""
    ndim, groups = x.ndim - 2, options.get("groups", 1)
    stride, padding, dilation = (
        spatial(options.get(name), ndim, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    sizes = zip(padded.shape[2:], w.shape[2:], stride, dilation, strict=True)
    places = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in sizes]
    y = np.zeros((x.shape[0], w.shape[0], *places))
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for k in product(*map(range, w.shape[2:])):
        seen = tuple(slice(a * d, a * d + (n - 1) * s + 1, s) for a, d, n, s in zip(k, dilation, places, stride))
        part = padded[(slice(None), slice(None), *seen)]
        for o in range(w.shape[0]):
            g = o // outputs
            of_group = part[:, g * inputs : (g + 1) * inputs]
            y[:, o] += np.tensordot(of_group, w[(o, slice(None), *k)], ((1,), (0,)))
    return y


@pytest.mark.parametrize("case", CASES)
def test_a_convolution_is_its_defining_sum(case: str) -> None:
    x_shape, w_shape, options = CASES[case]
    x, w = draw(x_shape), draw(w_shape, 1)
    found = CONVOLVE[len(x_shape) - 2](aj.tensor(x), aj.tensor(w), **options)
    np.testing.assert_allclose(found.numpy(), by_definition(x, w, **options), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_compiled_convolutions_and_derivatives_equal_eager_ones(case: str) -> None:
    x_shape, w_shape, options = CASES[case]
    convolve = CONVOLVE[len(x_shape) - 2]

    def step(x: aj.Tensor, w: aj.Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = convolve(x, w, **options)
        return y.detach(), *aj.autograd.grad((y * y * y).sum(), (x, w))

    compiled = aj.jit(step)
    operands = aj.tensor(draw(x_shape)), aj.tensor(draw(w_shape, 1))
    for _ in range(2):
        found = compiled(*operands)
    for y, expected in zip(found, step(*operands), strict=True):
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-11, atol=1e-11)
    assert compiled.stats()["fallbacks"] == 0


@pytest.mark.parametrize("case", CASES)
def test_a_transposed_convolution_is_the_adjoint(case: str) -> None:
    """<conv(x), y> = <x, conv_transpose(y)>, also compiled."""
    x_shape, w_shape, options = CASES[case]
    ndim = len(x_shape) - 2
    x, w = aj.tensor(draw(x_shape)), aj.tensor(draw(w_shape, 1))
    image = CONVOLVE[ndim](x, w, **options)
    y = aj.tensor(draw(tuple(image.shape), 2))
    least = TRANSPOSED[ndim](y, w, **options)
    extra = tuple(n - m for n, m in zip(x_shape[2:], least.shape[2:], strict=True))
    if any(e < 0 for e in extra):
        extra, x = (0,) * ndim, x[(..., *(slice(0, m) for m in least.shape[2:]))]
    transposed = aj.jit(lambda y, w: TRANSPOSED[ndim](y, w, output_padding=extra, **options))
    for _ in range(2):
        back = transposed(y, w)
    assert back.shape == x.shape
    left, right = (image * y).sum().item(), (x * back).sum().item()
    assert left == pytest.approx(right, rel=1e-11)


@pytest.mark.parametrize("case", ["groups", "dilation", "signal"])
def test_derivatives_to_second_order(case: str) -> None:
    x_shape, w_shape, options = CASES[case]
    ndim = len(x_shape) - 2
    x = aj.tensor(draw((1, *x_shape[1:])), requires_grad=True)
    w = aj.tensor(draw(w_shape, 1), requires_grad=True)
    assert gradcheck(lambda x, w: CONVOLVE[ndim](x, w, **options), (x, w), fast_mode=True)
    assert gradgradcheck(lambda x, w: CONVOLVE[ndim](x, w, **options), (x, w), fast_mode=True)


def test_values_of_torch() -> None:
    found = F.conv2d(
        ramp(1, 2, 4, 5), ramp(2, 1, 2, 3), ramp(2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2
    )
    assert found.tolist() == [[[[-35.0], [-14.0], [6.0]], [[26.0], [1.0], [-22.0]]]]
    back = F.conv_transpose2d(ramp(1, 2, 2, 2), ramp(2, 1, 2, 3), None, stride=2, padding=1, output_padding=1, groups=2)
    assert back[0, 0].tolist() == [[-5.0, 25.0, 2.0, -6.0], [-4.0, -21.0, 10.0, -10.0], [-2.0, 31.0, 5.0, -15.0]]
    same = F.conv1d(ramp(1, 1, 6), ramp(1, 1, 4), padding="same")
    assert same.tolist() == [[[-24.0, 58.0, -19.0, 3.0, -17.0, -11.0]]]


@pytest.mark.parametrize("dtype", [aj.float32, aj.float16, aj.bfloat16, aj.int64, aj.int32, aj.complex128])
def test_dtypes(dtype: Any) -> None:
    x, w = ramp(2, 3, 5, 6), ramp(4, 3, 3, 3)
    expected = by_definition(x.numpy(), w.numpy(), padding=1)
    compiled = aj.jit(lambda x, w: F.conv2d(x, w, padding=1))
    for _ in range(2):
        found = compiled(x.to(dtype), w.to(dtype))
    assert found.dtype is dtype
    np.testing.assert_allclose(found.to(aj.complex128).numpy(), expected, rtol=1e-2 if dtype.size_bytes == 2 else 1e-6)


def test_complex_gradients_conjugate() -> None:
    x = aj.tensor(draw((1, 2, 5)) + 1j * draw((1, 2, 5), 1), requires_grad=True)
    w = aj.tensor(draw((3, 2, 2), 2) + 1j * draw((3, 2, 2), 3), requires_grad=True)
    assert gradcheck(lambda x, w: F.conv1d(x, w, padding=1), (x, w))
    assert gradcheck(lambda x, w: F.conv_transpose1d(x, w.transpose(0, 1), stride=2), (x, w))


def test_an_image_without_a_batch_axis_and_an_empty_batch() -> None:
    x, w, b = aj.tensor(draw((3, 6, 7))), aj.tensor(draw((4, 3, 3, 3))), aj.tensor(draw((4,)))
    alone = F.conv2d(x, w, b, padding=1)
    np.testing.assert_allclose(alone.numpy(), F.conv2d(x.unsqueeze(0), w, b, padding=1)[0].numpy())
    empty = aj.zeros(0, 3, 6, 7, dtype=aj.float64, requires_grad=True)
    weight = w.clone().requires_grad_()
    result = F.conv2d(empty, weight)
    assert result.shape == (0, 4, 4, 5)
    result.sum().backward()
    assert weight.grad is not None
    assert weight.grad.abs().sum().item() == 0


def test_many_images_and_bands_give_the_same_bits_for_any_number_of_threads() -> None:
    x = aj.tensor(draw((3, 16, 70, 66)).astype(np.float32))
    w = aj.tensor(draw((9, 16, 3, 3), 1).astype(np.float32))

    def step(x: aj.Tensor, w: aj.Tensor) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = F.conv2d(x, w, padding=1)
        return y.detach(), *aj.autograd.grad((y * y).sum(), (x, w))

    threads = aj.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            aj.set_num_threads(count)
            compiled = aj.jit(step)
            compiled(x, w)
            results.append([y.numpy().copy() for y in compiled(x, w)])
    finally:
        aj.set_num_threads(threads)
    for y, *others in zip(*results, strict=True):
        for other in others:
            np.testing.assert_array_equal(y, other)
    for y, expected in zip(results[0], step(x, w), strict=True):
        scale = float(expected.abs().max().item())
        np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=2e-6 * scale)


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "channels": (lambda: F.conv2d(aj.ones(1, 2, 4, 4), aj.ones(3, 4, 2, 2)), r"to have 4 channels, but got 2"),
    "rank": (lambda: F.conv2d(aj.ones(4, 4), aj.ones(3, 4, 2, 2)), r"Expected 3D \(unbatched\) or 4D"),
    "bias": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 2), aj.ones(2)), "1-dimensional with 3 elements"),
    "dtype": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 2).double()), "should be the same"),
    "size": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 5)), "Kernel size can't be greater than actual"),
    "stride": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 2), stride=0), "non-positive stride"),
    "dilation": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 2), dilation=0), "non-positive dilation"),
    "padding": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 2), padding=-1), "negative padding"),
    "groups": (lambda: F.conv1d(aj.ones(1, 4, 4), aj.ones(5, 2, 2), groups=2), "divisible by 2 at dimension 0"),
    "same": (lambda: F.conv1d(aj.ones(1, 2, 4), aj.ones(3, 2, 2), stride=2, padding="same"), "strided convolutions"),
    "length": (lambda: F.conv2d(aj.ones(1, 2, 4, 4), aj.ones(3, 2, 2, 2), stride=(1, 2, 3)), "list of 2 values"),
    "output": (
        lambda: F.conv_transpose1d(aj.ones(1, 2, 4), aj.ones(2, 3, 2), output_padding=1),
        "output padding must be smaller than either stride or dilation",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_those_of_torch(case: str) -> None:
    call, text = ERRORS[case]
    with pytest.raises(RuntimeError, match=text):
        call()


def test_layers_show_and_keep_their_parameters() -> None:
    layer = nn.Conv2d(4, 6, 3, 2, 1, 2, 2, False, "reflect")
    assert repr(layer) == (
        "Conv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(2, 2), groups=2, bias=False, "
        "padding_mode=reflect)"
    )
    assert repr(nn.Conv1d(3, 6, 3, padding="same")) == "Conv1d(3, 6, kernel_size=(3,), stride=(1,), padding=same)"
    back = nn.ConvTranspose2d(3, 6, 3, 2, 1, 1)
    assert repr(back) == (
        "ConvTranspose2d(3, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1))"
    )
    assert {name: tuple(p.shape) for name, p in back.state_dict().items()} == {"weight": (3, 6, 3, 3), "bias": (6,)}
    other = nn.ConvTranspose2d(3, 6, 3, 2, 1, 1)
    other.load_state_dict(back.state_dict())
    x = aj.ones(1, 3, 4, 4)
    assert back(x).shape == (1, 6, 8, 8)
    np.testing.assert_array_equal(back(x).detach().numpy(), other(x).detach().numpy())


def test_weights_start_within_the_bound_of_their_fan_in() -> None:
    aj.manual_seed(0)
    layer = nn.Conv2d(8, 16, 3)
    bound = 1 / np.sqrt(8 * 9)
    assert layer.bias is not None
    assert layer.bias.abs().max().item() <= bound
    assert 0.99 * bound < layer.weight.abs().max().item() <= bound  # of 1152 numbers: fails once in 1e5 seeds


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes_pad_first(mode: str) -> None:
    layer = nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode)
    x = aj.tensor(draw((1, 2, 5, 6)).astype(np.float32))
    padded = F.pad(x, (2, 2, 1, 1), mode)
    expected = F.conv2d(padded, layer.weight, layer.bias)
    np.testing.assert_allclose(layer(x).detach().numpy(), expected.detach().numpy(), rtol=1e-6)


def test_a_transposed_layer_takes_an_output_size() -> None:
    layer = nn.ConvTranspose1d(2, 3, 3, stride=3)
    assert layer(aj.ones(1, 2, 4), output_size=[14]).shape == (1, 3, 14)
    with pytest.raises(ValueError, match="valid sizes range from"):
        layer(aj.ones(1, 2, 4), output_size=[20])


def test_layers_refuse_what_torch_refuses() -> None:
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.Conv2d(3, 6, 3, groups=2)
    with pytest.raises(ValueError, match="padding_mode must be one of"):
        nn.Conv2d(4, 6, 3, padding_mode="mirror")
    with pytest.raises(ValueError, match='Only "zeros" padding mode'):
        nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect")


def test_a_small_network_trains_compiled() -> None:
    aj.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 3),
    )  # fmt: skip
    optimizer = aj.optim.SGD(net.parameters(), lr=0.1)
    x, target = aj.tensor(draw((12, 1, 8, 8)).astype(np.float32)), aj.arange(12) % 3

    @aj.jit
    def step(x: aj.Tensor, target: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x, target).item() for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0]
    assert step.stats()["fallbacks"] == 0
