"""Python's types of numbers stand for dtypes wherever one is asked for, as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

X = aj.ones(2)
ASKED: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda kind: aj.zeros(2, dtype=kind),
    "tensor": lambda kind: aj.tensor([1, 0], dtype=kind),
    "arange": lambda kind: aj.arange(2, dtype=kind),
    "full": lambda kind: aj.full((2,), 1, dtype=kind),
    "zeros_like": lambda kind: aj.zeros_like(X, dtype=kind),
    "new_zeros": lambda kind: X.new_zeros(2, dtype=kind),
    "to": lambda kind: X.to(kind),
    "to by name": lambda kind: X.to(dtype=kind),
    "sum": lambda kind: aj.sum(X, dtype=kind),
    "sum of an axis": lambda kind: X.sum(0, dtype=kind),
    "cumsum": lambda kind: aj.cumsum(X, 0, dtype=kind),
    "in a step": lambda kind: aj.jit(lambda x: x.to(kind) + aj.zeros(2, dtype=kind))(X),
}
DTYPES = {bool: aj.bool, int: aj.int64, float: aj.float64, complex: aj.complex128}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("kind", DTYPES)
def test_types_of_numbers_are_dtypes(asked: Callable[[Any], Any], kind: type) -> None:
    assert asked(kind).dtype is asked(DTYPES[kind]).dtype is DTYPES[kind]


def test_modules_take_them_too() -> None:
    layer = aj.nn.Linear(2, 2, dtype=float)
    assert layer.weight.dtype is aj.float64
    assert aj.nn.Linear(2, 2).to(float).weight.dtype is aj.float64
    assert aj.finfo(float).eps == aj.finfo(aj.float64).eps and aj.can_cast(int, float)


def test_what_is_no_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="argument 'dtype' must be DType, not str"):
        aj.zeros(2, dtype="float32")
