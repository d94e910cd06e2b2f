"""A call that fails names the argument that is not of its parameter's kind, with torch's exception type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
import autojit.nn.functional as F

X = aj.arange(6.0).reshape(2, 3)
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: aj.addmm(X, None, X), r"addmm\(\): argument 'mat1' \(position 2\) must be Tensor, not NoneType"),
    (lambda: aj.addr(X, 1.5, X), r"addr\(\): argument 'vec1' \(position 2\) must be Tensor, not float"),
    (lambda: aj.matmul(X, "x"), r"matmul\(\): argument 'other' \(position 2\) must be Tensor, not str"),
    (lambda: X.addmm(None, X), r"addmm\(\): argument 'mat1' \(position 2\) must be Tensor, not NoneType"),
    (lambda: aj.softmax(X, "a"), r"softmax\(\): argument 'dim' \(position 2\) must be int, not str"),
    (lambda: aj.softmax(X, True), r"softmax\(\): argument 'dim' \(position 2\) must be int, not bool"),
    (lambda: aj.sum(X, dim=1.5), r"sum\(\): argument 'dim' .*must be .*int.*, not float"),
    (lambda: aj.chunk(X, "a"), r"chunk\(\): argument 'chunks' \(position 2\) must be int, not str"),
    (lambda: aj.cat(X), r"cat\(\): argument 'tensors' \(position 1\) must be tuple of Tensors, not Tensor"),
    (lambda: aj.cat([X, None]), r"cat\(\): argument 'tensors' \(position 1\) must be tuple of Tensors, not list"),
    (lambda: aj.roll(X, "a"), r"roll\(\): argument 'shifts' \(position 2\) must be tuple of ints, not str"),
    (lambda: aj.einsum("ij", None), "einsum.*None"),
    (lambda: X.view(2.5, 2), "must be int, not float"),
    (lambda: aj.flip(X, "a"), "must be int, not str"),
    (lambda: X.expand_as(3), "must be Tensor, not int"),
    (lambda: aj.arange(None), "numbers"),
    (lambda: F.linear(None, X), r"linear\(\): argument 'input' \(position 1\) must be Tensor, not NoneType"),
    (lambda: F.conv2d(X, None), r"conv2d\(\): argument 'weight' \(position 2\) must be Tensor, not NoneType"),
    (lambda: F.dropout(X, "a"), r"dropout\(\): argument 'p' \(position 2\) must be float, not str"),
    (lambda: F.layer_norm(X, "a"), r"layer_norm\(\): argument 'normalized_shape' \(position 2\) must be"),
    (lambda: aj.linalg.solve(X, None), r"solve\(\): argument 'B' \(position 2\) must be Tensor, not NoneType"),
    (lambda: aj.lu_solve(X, None, X), r"lu_solve\(\): argument 'LU.*' .*must be Tensor, not NoneType"),
    (lambda: aj.fft.fft("a"), r"fft\(\): argument 'input' \(position 1\) must be Tensor, not str"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_an_argument_of_the_wrong_kind_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_the_message_names_operands_place_and_fix() -> None:
    with pytest.raises(TypeError) as caught:
        aj.addmm(X, None, X)
    text = str(caught.value)
    assert "input  f32[2, 3]" in text
    assert "test_argument_errors.py" in text
    assert "calling addmm()" in text
    assert "fix" in text


def test_other_failures_stand_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="inner axes differ"):
        F.linear(X, aj.ones(2, 2))
    with pytest.raises(IndexError, match="out of range"):
        aj.sum(X, dim=7)


def test_operands_are_named_by_the_parameters_of_the_function_that_a_wrapper_calls() -> None:
    with pytest.raises(RuntimeError, match=r"input +f32\[2, 3\]"):
        F.conv2d(X, aj.ones(1, 1, 2, 2))


def test_a_function_keeps_a_parameter_that_numpy_calls_otherwise() -> None:
    y = aj.tensor([1.0, 3.0, 5.0])
    assert aj.trapezoid(y, aj.tensor([0.0, 1.0, 3.0]), dim=-1).item() == 10.0
    assert aj.trapezoid(y, x=aj.tensor([0.0, 1.0, 3.0])).item() == 10.0
