"""Windows equal NumPy's and their formulas, symmetric and periodic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit as aj
from autojit.signal import windows

NUMPY: dict[str, Callable[[int], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]] = {
    "bartlett": np.bartlett,
    "blackman": np.blackman,
    "hamming": np.hamming,
    "hann": np.hanning,
    "kaiser": lambda n: np.kaiser(n, 12.0),
}


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("name", NUMPY)
def test_windows_equal_numpy(name: str, n: int) -> None:
    function = getattr(windows, name)
    np.testing.assert_allclose(function(n, dtype=aj.float64).numpy(), NUMPY[name](n), atol=1e-13)
    if n > 1:
        np.testing.assert_allclose(function(n, sym=False).numpy(), NUMPY[name](n + 1)[:-1], atol=1e-6)


@pytest.mark.parametrize("n", [2, 7])
def test_the_others_equal_their_formulas(n: int) -> None:
    middle = np.arange(n) - (n - 1) / 2
    angle = 2 * np.pi * np.arange(n) / (n - 1)
    for found, expected in (
        (windows.cosine(n), np.cos(np.pi * middle / n)),
        (windows.exponential(n, tau=2.0), np.exp(-np.abs(middle) / 2)),
        (windows.exponential(n, center=0.0, sym=False), np.exp(-np.arange(n))),
        (windows.gaussian(n, std=1.5), np.exp(-(middle**2) / 4.5)),
        (windows.general_cosine(n, a=[0.5, 0.25]), 0.5 - 0.25 * np.cos(angle)),
        (windows.general_hamming(n, alpha=0.6), 0.6 - 0.4 * np.cos(angle)),
        (windows.nuttall(n), 0.3635819 - 0.4891775 * np.cos(angle) + 0.1365995 * np.cos(2 * angle)
         - 0.0106411 * np.cos(3 * angle)),
    ):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_errors() -> None:
    for call, kind, message in (
        (lambda: windows.hann(-1), ValueError, "non-negative window length"),
        (lambda: windows.hann(3, dtype=aj.int32), ValueError, "expects float32 or float64"),
        (lambda: windows.hann(3, size=2), TypeError, "unexpected keyword argument 'size'"),
        (lambda: windows.kaiser(3, beta=-1.0), ValueError, "beta must be non-negative"),
        (lambda: windows.gaussian(3, std=0.0), ValueError, "Standard deviation must be positive"),
        (lambda: windows.exponential(3, center=1.0), ValueError, "Center must be None"),
        (lambda: windows.general_cosine(3, a=[]), ValueError, "cannot be empty"),
    ):
        with pytest.raises(kind, match=message):
            call()
    assert windows.hann(3, requires_grad=True).requires_grad
