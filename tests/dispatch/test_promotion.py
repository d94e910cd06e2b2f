"""Result dtypes follow torch: tensors of rank > 0 outrank 0-d ones, which outrank Python numbers."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj

INT, FLOAT, DOUBLE, HALF, BOOL = aj.int64, aj.float32, aj.float64, aj.float16, aj.bool

CASES: list[tuple[Any, Any, Any]] = [
    (aj.ones(2, dtype=FLOAT), 2, FLOAT),
    (aj.ones(2, dtype=INT), 2, INT),
    (aj.ones(2, dtype=INT), 2.5, FLOAT),
    (aj.ones(2, dtype=BOOL), 2, INT),
    (aj.ones(2, dtype=HALF), 2.5, HALF),
    (aj.ones(2, dtype=HALF), aj.ones(2, dtype=FLOAT), FLOAT),
    (aj.ones(2, dtype=FLOAT), aj.ones((), dtype=DOUBLE), FLOAT),
    (aj.ones(2, dtype=INT), aj.ones((), dtype=DOUBLE), DOUBLE),
    (aj.ones((), dtype=FLOAT), aj.ones((), dtype=DOUBLE), DOUBLE),
    (aj.ones(2, dtype=aj.uint8), aj.ones(2, dtype=aj.int8), aj.int16),
    (aj.ones(2, dtype=FLOAT), 1j, aj.complex64),
    (aj.ones(2, dtype=aj.bfloat16), aj.ones(2, dtype=HALF), FLOAT),
]


@pytest.mark.parametrize(("x", "y", "expected"), CASES)
def test_sums_have_the_promoted_dtype_in_both_orders(x: Any, y: Any, expected: Any) -> None:
    assert (x + y).dtype is expected
    assert (y + x).dtype is expected
    assert aj.mul(x, y).dtype is expected


def test_families_of_functions_have_their_own_rule() -> None:
    whole = aj.tensor([1, 2])
    assert (whole / 2).dtype is FLOAT
    assert (whole // 2).dtype is INT
    assert whole.exp().dtype is FLOAT
    assert (whole > 1).dtype is BOOL
    assert aj.ones(2, dtype=BOOL).sum().dtype is INT
    assert aj.ones(2, dtype=aj.uint8).sum().dtype is INT
    assert whole.argmax().dtype is INT
    assert aj.where(whole > 1, whole, 0.5).dtype is FLOAT


def test_gradients_keep_the_dtype_of_their_leaf() -> None:
    for dtype in (HALF, aj.bfloat16, FLOAT, DOUBLE):
        x = aj.ones(3, dtype=dtype, requires_grad=True)
        (x * aj.ones(3, dtype=DOUBLE)).sum().backward()
        assert x.grad.dtype is dtype


def test_literals_take_default_dtypes() -> None:
    assert aj.tensor([1.0]).dtype is FLOAT
    assert aj.tensor([1]).dtype is INT
    assert aj.tensor([True]).dtype is BOOL
    assert aj.tensor([1 + 2j]).dtype is aj.complex64
    aj.set_default_dtype(DOUBLE)
    try:
        assert aj.tensor([1.0]).dtype is DOUBLE
        assert (aj.tensor([1]) / 2).dtype is DOUBLE
    finally:
        aj.set_default_dtype(FLOAT)
