"""make_tensor: ranges, dtypes, memory layout."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit.testing import make_tensor

DTYPES = [
    aj.bool, aj.uint8, aj.int8, aj.int16, aj.int32, aj.int64, aj.float16, aj.bfloat16, aj.float32, aj.float64,
    aj.complex64, aj.complex128,
]  # fmt: skip


def bounds(t: aj.Tensor) -> tuple[float, float]:
    real = aj.view_as_real(t) if t.dtype.is_complex else t
    values = real.to(aj.float64)
    return values.min().item(), values.max().item()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_fill_the_range(dtype: aj.dtype) -> None:
    aj.manual_seed(0)
    t = make_tensor(1000, dtype=dtype)
    assert t.dtype is dtype
    low, high = bounds(t)
    expected = {"bool": (0, 1), "uint8": (0, 9)}.get(dtype.name, (-9, 9))
    assert expected[0] <= low <= expected[0] + 0.5
    assert expected[1] - 0.5 <= high <= expected[1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_shapes_are_taken_as_numbers_or_a_sequence(shape: tuple[int, ...]) -> None:
    assert make_tensor(shape, dtype=aj.float32).shape == shape
    assert make_tensor(*shape, dtype=aj.float32).shape == shape


@pytest.mark.parametrize("dtype", [aj.float32, aj.int64, aj.complex64], ids=str)
def test_memory_can_have_gaps(dtype: aj.dtype) -> None:
    t = make_tensor(3, 4, dtype=dtype, noncontiguous=True)
    assert t.shape == (3, 4)
    assert not t.is_contiguous()
    assert t.is_leaf


def test_zeros_can_be_excluded_and_gradients_asked_for() -> None:
    assert (make_tensor(100, dtype=aj.int64, low=0, high=2, exclude_zero=True) == 1).all()
    x = make_tensor(3, dtype=aj.float64, requires_grad=True)
    assert x.is_leaf
    assert x.requires_grad


def test_the_seed_repeats_the_values() -> None:
    aj.manual_seed(3)
    first = make_tensor(5, dtype=aj.float32)
    aj.manual_seed(3)
    assert aj.equal(first, make_tensor(5, dtype=aj.float32))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dtype": aj.int64, "requires_grad": True}, "not supported for boolean and integral"),
        ({"dtype": aj.float32, "low": 3, "high": 1}, "must be less than"),
        ({"dtype": aj.float32, "low": float("nan")}, "cannot be NaN"),
    ],
)
def test_impossible_requests_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        make_tensor(3, **options)
