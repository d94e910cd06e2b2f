"""Transforms equal NumPy's, their gradients are exact to second order, and steps compute what eager code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj

ONE_AXIS = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY_AXES = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]
HERMITIAN = ["hfft2", "ihfft2", "hfftn", "ihfftn"]


def operand(name: str, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    if name.startswith(("rfft", "ihfft")):
        return x.astype(dtype)
    return (x + 1j * np.random.default_rng(1).standard_normal(x.shape)).astype(np.result_type(dtype, np.complex64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ONE_AXIS)
def test_one_axis_equals_numpy_in_the_operands_precision(name: str, dtype: Any) -> None:
    x = operand(name, dtype)
    for options in ({}, {"norm": "ortho"}, {"n": 3, "norm": "forward"}, {"n": 8}):
        for axis in (-1, 1):
            found = getattr(aj.fft, name)(aj.from_numpy(x), dim=axis, **options).numpy()
            expected = getattr(np.fft, name)(x, axis=axis, **options)
            assert found.dtype.itemsize == expected.astype(np.result_type(expected, dtype)).dtype.itemsize or (
                dtype is np.float32
            )
            assert found.real.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("name", MANY_AXES)
def test_many_axes_equal_numpy(name: str) -> None:
    x = operand(name)
    for options in ({}, {"norm": "ortho"}, {"s": (3, 7)}):
        axes = {"axes": (-2, -1)} if "s" in options else {}
        found = getattr(aj.fft, name)(aj.from_numpy(x), **options).numpy()
        np.testing.assert_allclose(found, getattr(np.fft, name)(x, **options, **axes), atol=1e-12)


def test_hermitian_transforms_are_those_of_the_whole_signal() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6))
    signal = np.fft.ihfft(np.fft.ifft(x, axis=0).real, axis=1)
    assert aj.fft.hfft(aj.from_numpy(signal)).dtype is aj.float64
    spectrum = aj.from_numpy(x)
    for forward, back in (("hfft2", "ihfft2"), ("hfftn", "ihfftn")):
        half = getattr(aj.fft, back)(spectrum)
        np.testing.assert_allclose(half.numpy(), np.fft.ifft2(x)[:, :4], atol=1e-12)
        np.testing.assert_allclose(getattr(aj.fft, forward)(half).numpy(), x, atol=1e-12)


@pytest.mark.parametrize("name", ONE_AXIS + MANY_AXES + HERMITIAN)
def test_gradients_to_second_order(name: str) -> None:
    transform = getattr(aj.fft, name)
    x = aj.from_numpy(operand(name)[0, :3, :3].copy()).requires_grad_()
    assert aj.autograd.gradcheck(transform, x, check_forward_ad=True, check_batched_grad=True)
    assert aj.autograd.gradgradcheck(lambda v: transform(v).abs().square(), x)


@pytest.mark.parametrize("name", ONE_AXIS)
@pytest.mark.parametrize("n", [3, 4, 6])
def test_gradients_of_cut_and_padded_operands(name: str, n: int) -> None:
    x = aj.from_numpy(operand(name)[0, :2, :4].copy()).requires_grad_()
    assert aj.autograd.gradcheck(lambda v: getattr(aj.fft, name)(v, n, norm="ortho"), x)


@pytest.mark.parametrize("name", ONE_AXIS + ["rfft2", "irfftn"])
def test_steps_compute_what_eager_code_does(name: str) -> None:
    def energy_and_gradient(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        leaf = x.detach().requires_grad_()
        energy = getattr(aj.fft, name)(leaf).abs().square().sum()
        energy.backward()
        assert leaf.grad is not None
        return energy.detach(), leaf.grad

    x = aj.from_numpy(operand(name))
    jitted = aj.jit(energy_and_gradient)
    for _ in range(3):
        for found, expected in zip(jitted(x), energy_and_gradient(x), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10)


def test_vmap_and_jvp_pass_through() -> None:
    x = aj.from_numpy(np.random.default_rng(0).standard_normal((3, 4)))
    np.testing.assert_allclose(aj.func.vmap(aj.fft.rfft)(x).numpy(), aj.fft.rfft(x).numpy())
    _, tangent = aj.func.jvp(aj.fft.fft, (x,), (x,))
    np.testing.assert_allclose(tangent.numpy(), aj.fft.fft(x).numpy())


def test_a_convolution_is_a_product_of_spectra() -> None:
    a, b = aj.tensor([1.0, 2.0, 3.0]), aj.tensor([0.5, -1.0])
    product = aj.fft.irfft(aj.fft.rfft(a, 4) * aj.fft.rfft(b, 4), 4)
    np.testing.assert_allclose(product.numpy(), np.convolve(a.numpy(), b.numpy()), atol=1e-6)


def test_integers_become_the_default_float() -> None:
    assert aj.fft.fft(aj.arange(3)).dtype is aj.complex64
    assert aj.fft.rfft(aj.tensor([True, False])).dtype is aj.complex64


@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_sample_points_and_their_order(n: int) -> None:
    if n:
        np.testing.assert_allclose(aj.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(aj.fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5), rtol=1e-6)
    x = aj.arange(3 * n).reshape(3, n)
    np.testing.assert_array_equal(aj.fft.fftshift(x).numpy(), np.fft.fftshift(x.numpy()))
    np.testing.assert_array_equal(aj.fft.ifftshift(x, 1).numpy(), np.fft.ifftshift(x.numpy(), 1))
    assert aj.fft.fftfreq(4, dtype=aj.float64, requires_grad=True).requires_grad


def test_out_receives_the_result() -> None:
    place = aj.empty(0, dtype=aj.complex64)
    assert aj.fft.fft(aj.ones(3), out=place) is place
    assert place.shape == (3,)


Z = aj.ones(2, 3, dtype=aj.complex64)
ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: aj.fft.fft(Z, norm="foo"), RuntimeError, "Invalid normalization mode"),
    (lambda: aj.fft.fft(Z, 0), RuntimeError, r"Invalid number of data points \(0\) specified"),
    (lambda: aj.fft.fft(Z, dim=2), IndexError, "Dimension out of range"),
    (lambda: aj.fft.fft(aj.tensor(1.0)), IndexError, "tensor has no dimensions"),
    (lambda: aj.fft.fft(aj.ones(2).half()), RuntimeError, "Unsupported dtype Half"),
    (lambda: aj.fft.fft(Z, n=2.5), TypeError, "argument 'n' .*must be int, not float"),
    (lambda: aj.fft.fft([1.0]), TypeError, "must be Tensor, not list"),
    (lambda: aj.fft.rfft(Z), RuntimeError, "rfft expects a real input tensor, but got ComplexFloat"),
    (lambda: aj.fft.rfftn(Z), RuntimeError, "rfftn expects a real-valued input tensor"),
    (lambda: aj.fft.irfft(Z[:, :1]), RuntimeError, "Invalid number of data points"),
    (lambda: aj.fft.fftn(Z, s=(2,), dim=(0, 1)), RuntimeError, "must have the same length"),
    (lambda: aj.fft.fftn(Z, dim=(0, 0)), RuntimeError, "FFT dims must be unique"),
    (lambda: aj.fft.fftn(Z, s=(1, 2, 3)), RuntimeError, "Got shape with 3 values but input tensor only has 2"),
    (lambda: aj.fft.irfftn(Z, dim=()), RuntimeError, "irfftn must transform at least one axis"),
    (lambda: aj.fft.fftfreq(3, dtype=aj.int64), RuntimeError, "requires a floating point or complex dtype"),
]


@pytest.mark.parametrize("case", ERRORS, ids=range(len(ERRORS)))
def test_errors_are_those_of_torch(case: tuple[Callable[[], Any], type[Exception], str]) -> None:
    call, kind, message = case
    with pytest.raises(kind, match=message):
        call()
