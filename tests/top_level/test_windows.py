"""Windows are periodic by default and symmetric on request."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_windows_are_numpys(name: str, length: int) -> None:
    make = getattr(aj, f"{name}_window")
    arguments = (12.0,) if name == "kaiser" else ()
    reference = np.kaiser if name == "kaiser" else {"hann": np.hanning}.get(name) or getattr(np, name)
    np.testing.assert_allclose(make(length, False, dtype=aj.float64).numpy(), reference(length, *arguments), atol=1e-12)
    if length > 1:
        expected = reference(length + 1, *arguments)[:-1]
        np.testing.assert_allclose(make(length, dtype=aj.float64).numpy(), expected, atol=1e-12)


def test_dtypes_and_flags() -> None:
    assert aj.hann_window(3, dtype=aj.float16).dtype is aj.float16
    assert aj.hamming_window(3, requires_grad=True).requires_grad
    assert aj.hann_window(3, layout=aj.strided, pin_memory=False).shape == (3,)
    np.testing.assert_allclose(aj.hamming_window(4, True, 0.5, 0.5).numpy(), aj.hann_window(4).numpy(), atol=1e-7)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="non-negative"):
        aj.hann_window(-1)
    with pytest.raises(RuntimeError, match="floating point"):
        aj.hann_window(3, dtype=aj.int32)
    with pytest.raises(TypeError, match="window_length"):
        aj.hann_window(2.5)
