"""NumPy's functions over tensors equal NumPy's over arrays; they differentiate twice and compile."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.interop.numpy_cases import DIFFERENTIABLE, OF_VALUES, QUESTIONS, Case

X = np.array([[0.31, -1.24, 0.77, 1.63], [-0.42, 2.11, -0.93, 0.18], [1.37, -0.66, 0.52, -1.85]])
Y = np.array([[0.9, -0.37, 1.21], [-1.43, 0.64, 0.28], [0.55, 1.74, -0.81], [-0.23, -1.02, 0.46]])


def _flat(result: Any) -> list[Any]:
    return [part for piece in result for part in _flat(piece)] if isinstance(result, tuple | list) else [result]


@pytest.fixture(autouse=True)
def no_rounding_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's own 0/0 in the reference
        warnings.filterwarnings("ignore", "numpy.fix is deprecated", DeprecationWarning)
        yield


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, *OF_VALUES])
def test_values_and_dtypes_are_numpys(name: str) -> None:
    case: Case = {**DIFFERENTIABLE, **OF_VALUES}[name]
    wanted, found = _flat(case(X, Y)), _flat(case(aj.tensor(X), aj.tensor(Y)))
    assert len(wanted) == len(found)
    for reference, tensor in zip(wanted, found, strict=True):
        assert isinstance(tensor, aj.Tensor)
        assert tensor.dtype.numpy == np.asarray(reference).dtype
        np.testing.assert_allclose(tensor.numpy(), reference, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_numpys(name: str) -> None:
    found = QUESTIONS[name](aj.tensor(X), aj.tensor(Y))
    assert found == QUESTIONS[name](X, Y)
    assert not isinstance(found, aj.Tensor)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_they_differentiate_twice(name: str) -> None:
    inputs = (aj.tensor(X, requires_grad=True), aj.tensor(Y, requires_grad=True))

    def function(x: Any, y: Any) -> Any:
        return DIFFERENTIABLE[name](x, y).sum() + 0 * x.sum() + 0 * y.sum()

    assert aj.autograd.gradcheck(function, inputs)
    assert aj.autograd.gradgradcheck(function, inputs, rtol=1e-2, atol=1e-4, fast_mode=True)


_OPERATORS = {"arcsin", "arccos", "arctanh"}  # divide integers with an operator, which gives the default dtype


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
@pytest.mark.parametrize("name", [n for n in {**DIFFERENTIABLE, **OF_VALUES} if n not in _OPERATORS])
def test_integers_follow_numpy_and_small_floats_stay_small(name: str, dtype: Any) -> None:
    case: Case = {**DIFFERENTIABLE, **OF_VALUES}[name]
    x, y = (X * 4).astype(dtype), (Y * 4).astype(dtype)
    try:
        wanted = _flat(case(x, y))
    except (TypeError, ValueError, np.linalg.LinAlgError):
        return  # not for these numbers
    for reference, tensor in zip(wanted, _flat(case(aj.tensor(x), aj.tensor(y))), strict=True):
        kind = np.asarray(reference).dtype
        assert tensor.dtype.numpy == kind or (dtype is np.float32 and tensor.dtype.numpy.itemsize <= kind.itemsize)
        np.testing.assert_allclose(tensor.numpy(), reference, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_they_compile(name: str) -> None:
    def step(x: Any, y: Any) -> Any:
        value = DIFFERENTIABLE[name](x, y)
        return value, aj.autograd.grad((value * value).sum() + 0 * x.sum() + 0 * y.sum(), (x, y))

    inputs = (aj.tensor(X, requires_grad=True), aj.tensor(Y, requires_grad=True))
    compiled = aj.jit(step)
    for _ in range(2):
        value, gradients = compiled(*inputs)
    wanted, wanted_gradients = step(*inputs)
    np.testing.assert_allclose(value.detach(), wanted.detach(), rtol=1e-9, atol=1e-12)
    for found, reference in zip(gradients, wanted_gradients, strict=True):
        np.testing.assert_allclose(found, reference, rtol=1e-7, atol=1e-9)
