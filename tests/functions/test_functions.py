"""Functions on tensors where a case of torch's is easily missed: scalars, no elements, broadcasting, plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj


def test_filling_repeated_positions_counts_each_element_once_in_the_derivative() -> None:
    x, value = aj.zeros(2, 5, requires_grad=True), aj.tensor(3.0, requires_grad=True)
    y = x.index_fill(1, aj.tensor([1, 1, 4]), value)
    assert y.tolist() == [[0, 3, 0, 0, 3]] * 2
    x_bar, value_bar = aj.autograd.grad(y.sum(), [x, value])
    assert value_bar.item() == 4
    assert x_bar.tolist() == [[1, 0, 1, 1, 0]] * 2


def test_scalars_can_be_filled_and_copied_into_at_their_only_position() -> None:
    zero = aj.tensor([0])
    assert aj.tensor(1.0).index_fill(0, zero, 2.0).item() == 2
    assert aj.tensor(1.0).index_copy(0, zero, aj.tensor([5.0])).item() == 5


def test_contracted_axes_of_extent_one_broadcast() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 3, 1)), np.random.default_rng(1).standard_normal((4, 3, 2))
    found = aj.tensordot(aj.tensor(x), aj.tensor(y), ([1, 2], [1, 0]))
    np.testing.assert_allclose(found.numpy(), np.einsum("ijz,kjl->il", x, y), rtol=1e-13)


def test_a_mask_broadcasts_against_what_is_scattered_through_it() -> None:
    found = aj.zeros(3).masked_scatter(aj.tensor([[True], [False]]), aj.tensor([1.0, 2.0, 3.0]))
    assert found.tolist() == [[1, 2, 3], [0, 0, 0]]


def test_products_of_bools_may_be_asked_for_as_bools_in_both_modes() -> None:
    x = aj.tensor([[True, True], [True, False]])
    for mode in (lambda f: f, aj.jit):
        assert mode(lambda x: x.prod(1, dtype=aj.bool))(x).tolist() == [True, False]


def test_integer_powers_with_negative_exponents_are_whole() -> None:
    base, exponent = aj.tensor([2, 1, -1, -1, 0]), aj.tensor([-1, -3, -2, -3, -1])
    for mode in (lambda f: f, aj.jit):
        assert mode(lambda a, b: a**b)(base, exponent).tolist() == [0, 1, 1, -1, 0]


def test_slices_of_nothing_keep_their_history() -> None:
    x, y_bar = aj.zeros(3, 0, requires_grad=True), aj.zeros(0, requires_grad=True)
    (x_bar,) = aj.autograd.grad(x[1], x, y_bar, create_graph=True)
    assert x_bar.shape == (3, 0)
    assert x_bar.requires_grad


@pytest.mark.parametrize(
    "call",
    [
        lambda x: aj.maximum(x, 1.0),
        lambda x: aj.atan2(1.0, x),
        lambda x: aj.eq(1.0, x),
        lambda x: aj.logical_and(x, 1),
        lambda x: aj.bitwise_and(2, 3),
        lambda x: aj.pow(2, 3),
    ],
)
def test_numbers_where_torch_wants_tensors_are_type_errors(call: Callable[[aj.Tensor], Any]) -> None:
    with pytest.raises(TypeError, match="must be Tensor"):
        call(aj.ones(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: aj.zeros(0, 3).amax(),
        lambda: aj.eye(-1),
        lambda: aj.arange(0, float("inf")),
        lambda: aj.zeros(3).gather(0, aj.tensor([5])),
        lambda: aj.zeros(3, 2).index_add(0, aj.tensor([0, 1]), aj.ones(2)),
    ],
)
def test_refusals_have_torchs_type(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError):
        call()
