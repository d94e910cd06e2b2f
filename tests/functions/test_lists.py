"""Functions of lists of tensors: each is its function applied in turn."""

from __future__ import annotations

import pytest

import autojit as aj


def test_results_and_gradients_are_those_of_the_single_calls() -> None:
    leaves = [aj.tensor(0.5, requires_grad=True), aj.tensor([1.0, 2.0], requires_grad=True)]
    results = aj._foreach_mul(aj._foreach_exp(leaves), [2.0, 3.0])
    sum(y.sum() for y in results).backward()  # type: ignore[union-attr]
    for x, y in zip(leaves, results, strict=True):
        assert x.grad is not None
        assert x.grad.tolist() == y.tolist()


def test_changes_in_place_take_numbers_lists_and_options() -> None:
    tensors = [aj.zeros(2), aj.ones(2)]
    assert aj._foreach_add_(tensors, [aj.ones(2), aj.ones(2)], alpha=2) is tensors
    aj._foreach_addcdiv_(tensors, [aj.ones(2), aj.ones(2)], [aj.ones(2), aj.ones(2)], value=0.5)
    aj._foreach_mul_(tensors, 2)
    assert [t.tolist() for t in tensors] == [[5.0, 5.0], [7.0, 7.0]]
    aj._foreach_copy_(tensors, [aj.ones(2), aj.zeros(2)])
    aj._foreach_zero_(tensors[:1])
    assert [t.tolist() for t in tensors] == [[0.0, 0.0], [0.0, 0.0]]


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(RuntimeError, match="must have the same number of tensors, got 2 and 1"):
        aj._foreach_add([aj.ones(1), aj.ones(1)], [aj.ones(1)])
    with pytest.raises(RuntimeError, match="must have at least one tensor"):
        aj._foreach_exp([])


def test_extremes_of_lists_and_numbers() -> None:
    tensors = [aj.tensor([1.0, 3.0], requires_grad=True), aj.tensor([0.0, 5.0], requires_grad=True)]
    found = aj._foreach_maximum(tensors, [2.0, 1.0])
    assert [t.tolist() for t in found] == [[2.0, 3.0], [1.0, 5.0]]
    assert all(t.grad_fn._saved_scalars == (2.0, 1.0) for t in found)
    assert [t.tolist() for t in aj._foreach_minimum(tensors, 2.0)] == [[1.0, 2.0], [0.0, 2.0]]
    assert [t.tolist() for t in aj._foreach_maximum(tensors, tensors[::-1])] == [[1.0, 5.0], [1.0, 5.0]]


def test_factors_come_third_or_by_name_and_a_power_may_have_one_base() -> None:
    tensors, others = [aj.zeros(2), aj.ones(2)], [aj.ones(2), aj.full((2,), 2.0)]
    wanted = [[1.0, 1.0], [9.0, 9.0]]
    for factors in ([1.0, 2.0], aj.tensor([1.0, 2.0])):
        found = aj._foreach_addcmul(tensors, others, others, factors)
        assert isinstance(found, tuple) and [t.tolist() for t in found] == wanted
    assert aj._foreach_addcdiv_(tensors, others, others, 3.0) is tensors and tensors[0].tolist() == [3.0, 3.0]
    for base in (2.0, aj.tensor(2.0)):
        assert [t.tolist() for t in aj._foreach_pow(base, others)] == [[2.0, 2.0], [4.0, 4.0]]
    with pytest.raises(RuntimeError, match="same number of elements as scalar list"):
        aj._foreach_mul(others, [1.0])


BY_NAME = {
    "addcmul": ({"tensor1": "xs", "tensor2": "xs", "scalars": [1.0, 2.0]}, ("xs", "xs", [1.0, 2.0])),
    "addcdiv": ({"tensor2": "xs", "tensor1": "xs", "value": 0.5}, ("xs", "xs", 0.5)),
    "lerp": ({"weight": 0.25, "tensors1": "xs"}, ("xs", 0.25)),
    "norm": ({"ord": 1}, (1,)),
    "add": ({"other": "xs"}, ("xs",)),
    "mul": ({"scalar": 3.0}, (3.0,)),
    "sub": ({"scalars": [1.0, 2.0]}, ([1.0, 2.0],)),
    "pow": ({"exponent": [1.0, 2.0]}, ([1.0, 2.0],)),
    "max": ({}, ()),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_arguments_have_torchs_names(name: str) -> None:
    xs = [aj.tensor([1.0, 3.0]), aj.tensor([2.0, -5.0])]
    named, placed = BY_NAME[name]
    function = getattr(aj, f"_foreach_{name}")
    found = function(xs, **{key: xs if value == "xs" else value for key, value in named.items()})
    expected = function(xs, *[xs if value == "xs" else value for value in placed])
    assert len(found) == 2 and all(aj.equal(a, b) for a, b in zip(found, expected, strict=True))
