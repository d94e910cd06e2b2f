"""Arrays of one value: what NumPy's ``full`` gives, of zeros in memory that nobody has touched."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from autojit.ops.sources import filled_array

VALUES = (0, 0.0, -0.0, False, True, 1, -2.5, math.nan, math.inf, np.float32(0), np.float64(-0.0), 0j, 2 - 1j)


@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "?", "c16"])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_bits_are_those_of_full(value: complex, kind: str) -> None:
    dtype = np.dtype(kind)
    if not (np.isfinite(value) or dtype.kind in "fc") or (isinstance(value, complex) and dtype.kind != "c"):
        return
    for shape in ((), (0,), (2, 3)):
        found, expected = filled_array(shape, value, dtype), np.full(shape, value, dtype)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.tobytes() == expected.tobytes()


def test_zeros_are_not_written() -> None:
    """The most memory that the process has ever had does not grow by what nobody has touched."""
    resource = pytest.importorskip("resource")
    most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)
    before, size = most(), 1 << 30
    found = filled_array((before + size,), 0, np.dtype(np.uint8))
    assert found[-1] == 0
    assert most() < before + size // 2
