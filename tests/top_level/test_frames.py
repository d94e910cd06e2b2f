"""Frames are windowed transforms at their places; the inverse gives the signal back; both differentiate and compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj


def draws(*shape: int, is_complex: bool = False, seed: int = 0) -> aj.Tensor:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape)
    return aj.from_numpy(x + 1j * generator.standard_normal(shape) if is_complex else x)


def by_definition(x: np.ndarray, n: int, hop: int, weights: np.ndarray) -> np.ndarray:
    count = 1 + (x.shape[-1] - n) // hop
    frames = np.stack([x[..., k * hop : k * hop + n] * weights for k in range(count)], -1)
    return np.fft.fft(frames, axis=-2)


CASES: list[dict[str, Any]] = [
    {},
    {"hop_length": 3},
    {"hop_length": 2, "win_length": 5},
    {"normalized": True},
    {"onesided": False},
    {"center": False},
    {"center": False, "win_length": 5, "align_to_window": True},
    {"pad_mode": "constant"},
]


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_frames_are_transforms_of_windowed_pieces(options: dict[str, Any], is_complex: bool, rank: int) -> None:
    n, samples = 8, 29
    x = draws(*(2,) * (rank - 1), samples, is_complex=is_complex)
    length = options.get("win_length", n)
    window = aj.hann_window(length, dtype=aj.float64) + 0.1
    found = aj.stft(x, n, window=window, return_complex=True, **options).numpy()
    left = (n - length) // 2
    weights = np.pad(window.numpy(), (left, n - length - left))
    signal = x.numpy()
    width = n // 2 if options.get("center", True) else left if options.get("align_to_window") else 0
    mode: Any = "reflect" if options.get("center", True) and "pad_mode" not in options else "constant"
    signal = np.pad(signal, [(0, 0)] * (rank - 1) + [(width, width)], mode=mode)
    expected = by_definition(signal, n, options.get("hop_length", 2), weights)
    if not is_complex and options.get("onesided") is not False:
        expected = expected[..., : n // 2 + 1, :]
    np.testing.assert_allclose(found, expected / (np.sqrt(n) if options.get("normalized") else 1), atol=1e-12)


@pytest.mark.parametrize("hop", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"normalized": True}, {"onesided": False}, {"center": False}], ids=str)
def test_the_inverse_gives_the_signal_back(hop: int, options: dict[str, Any]) -> None:
    x, window = draws(2, 30), aj.hann_window(8, dtype=aj.float64) + 0.1
    spectra = aj.stft(x, 8, hop, window=window, return_complex=True, **options)
    found = aj.istft(spectra, 8, hop, window=window, **options)
    np.testing.assert_allclose(found.numpy(), x.numpy()[:, : found.shape[1]], atol=1e-12)


def test_frames_that_overlap_often_are_added_by_index() -> None:
    x, window = draws(80), aj.ones(40, dtype=aj.float64)
    found = aj.istft(aj.stft(x, 40, 1, window=window, return_complex=True), 40, 1, window=window, length=80)
    np.testing.assert_allclose(found.numpy(), x.numpy(), atol=1e-12)


def test_a_complex_signal_comes_back() -> None:
    x, window = draws(30, is_complex=True), aj.ones(8, dtype=aj.float64)
    spectra = aj.stft(x, 8, window=window)
    found = aj.istft(spectra, 8, window=window, onesided=False, return_complex=True, length=30)
    np.testing.assert_allclose(found.numpy(), x.numpy(), atol=1e-12)


def test_a_longer_length_pads_with_zeros() -> None:
    spectra = aj.stft(draws(30), 8, window=aj.ones(8), return_complex=True)
    with pytest.warns(UserWarning, match="shorter"):
        found = aj.istft(spectra, 8, window=aj.ones(8), length=50)
    assert found.shape == (50,)
    assert found[-10:].eq(0).all()


def test_derivatives_to_second_order() -> None:
    x = draws(12).requires_grad_()
    window = (aj.hann_window(4, dtype=aj.float64) + 0.2).requires_grad_()

    def there_and_back(x: aj.Tensor, w: aj.Tensor) -> aj.Tensor:
        spectra = aj.stft(x, 4, 2, window=w, return_complex=True)
        return aj.istft(spectra * spectra.conj(), 4, 2, window=w)

    aj.autograd.gradcheck(there_and_back, (x, window))
    aj.autograd.gradgradcheck(there_and_back, (x, window))


def test_compiled_equals_eager() -> None:
    x, window = draws(2, 30), aj.hann_window(8, dtype=aj.float64) + 0.1

    @aj.jit
    def energy(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        x = x.detach().requires_grad_()
        spectra = aj.stft(x, 8, 3, window=window, return_complex=True)
        total = aj.istft(spectra, 8, 3, window=window).square().sum() + spectra.abs().sum()
        return total, aj.autograd.grad(total, x)[0]

    compiled = energy(x)
    with aj.eager():
        expected = energy(x)
    for a, b in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: aj.stft(x, 8, window=w), "return_complex"),
        (lambda x, w: aj.stft(x, 8, window=w, align_to_window=True, return_complex=True), "align_to_window"),
        (lambda x, w: aj.stft(x, 80, window=w, center=False, return_complex=True), "n_fft"),
        (lambda x, w: aj.stft(x, 8, 0, window=w, return_complex=True), "hop_length > 0"),
        (lambda x, w: aj.stft(x, 8, 2, 9, window=w, return_complex=True), "win_length"),
        (lambda x, w: aj.stft(x, 8, 2, 5, window=w, return_complex=True), "window tensor"),
        (lambda x, w: aj.stft(x[None, None], 8, window=w, center=False, return_complex=True), "1D or 2D"),
        (lambda x, w: aj.stft(x * 1j, 8, window=w, onesided=True), "onesided"),
        (lambda x, w: aj.istft(x, 8, window=w), "complex-valued"),
        (lambda x, w: aj.istft(aj.zeros(4, 3) * 1j, 8, window=w), "frequency dimension"),
        (lambda x, w: aj.istft(aj.zeros(5, 3) * 1j, 8, 9, window=w), "hop_length"),
        (lambda x, w: aj.istft(aj.zeros(5, 3) * 1j, 8, window=w * 0), "overlap add"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(draws(30), aj.ones(8))


def test_a_missing_window_warns() -> None:
    with pytest.warns(UserWarning, match="rectangular"):
        aj.stft(draws(30), 8, return_complex=True)
