"""What a mask chooses, inside a step: its number is a size that the step counts itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.nn import functional as F
from tests.jit.test_symbolic_sizes import check_same


def _rows(n: int) -> aj.Tensor:
    return aj.rand(n, 6) * 2 - 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x[x[:, 0] > 0],
        lambda x: x[:, x[0] > 0],
        lambda x: (x > 0).nonzero(),
        lambda x: x.nonzero(as_tuple=True)[1],
        lambda x: aj.where(x > 0)[0],
        lambda x: x[x > 0].mean(),
        lambda x: x[x > 0].std() + x[x < 0].sum(),
        lambda x: x[x > 0] * 2 - x[x > 0] ** 2,
        lambda x: aj.cat([x[x > 0], x[x <= 0]]),
        lambda x: x[x > 0][:3],
        lambda x: x[x > 5.0].sum(),
        lambda x: x[x > 0] / x[x > 0].shape[0],
        lambda x: aj.ones(x[x > 0].shape[0]).sum() + x.sum(),
        lambda x: x[x > 0].softmax(0),
        lambda x: (x[x > 0].shape[0], x.sum()),
    ],
)  # fmt: skip
def test_what_a_mask_chooses_agrees_with_eager(function: Callable[..., Any]) -> None:
    compiled = aj.jit(function)
    for n in (5, 5, 8, 3):
        x = _rows(n)
        check_same(compiled(x), function(x), n)
    stats = compiled.stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (2, 0, 0), compiled.explain()


def test_assignment_under_a_mask() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        y = x.clone()
        chosen = y > 0
        y[chosen] = y[chosen] * 10
        y[chosen] += 1
        return y

    compiled = aj.jit(function)
    for _ in range(3):
        x = _rows(4)
        check_same(compiled(x), function(x), "")
    assert compiled.stats()["captures"] == 1


def test_gradients_flow_to_what_was_chosen() -> None:
    weight = aj.rand(6, requires_grad=True)

    def function(x: aj.Tensor) -> Any:
        chosen = (x * weight)[x > 0]
        loss = (chosen**2).mean() + chosen.sum() / chosen.shape[0]
        (grad,) = aj.autograd.grad(loss, (weight,))
        return loss.detach(), grad

    compiled = aj.jit(function)
    for n in (4, 4, 7, 9):
        x = _rows(n)
        check_same(compiled(x), function(x), n)
    assert (compiled.stats()["captures"], compiled.stats()["splits"]) == (2, 0)


def test_second_derivatives_of_what_was_chosen() -> None:
    def function(x: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
        (slope,) = aj.autograd.grad((v[x > 0] ** 3).sum(), (v,), create_graph=True)
        return aj.autograd.grad(slope.sum(), (v,))[0]

    compiled = aj.jit(function)
    for n in (4, 6):
        x, v = _rows(n), aj.rand(n, 6, requires_grad=True)
        check_same(compiled(x, v), np.where(x.numpy() > 0, 6 * v.detach().numpy(), 0), n)


def test_a_training_step_on_the_labelled_examples() -> None:
    weights = [aj.ones(6, 3, requires_grad=True) for _ in range(2)]

    def step(weight: aj.Tensor, x: aj.Tensor, t: aj.Tensor) -> aj.Tensor:
        kept = t >= 0
        loss = F.cross_entropy((x @ weight)[kept], t[kept])
        (grad,) = aj.autograd.grad(loss, (weight,))
        with aj.no_grad():
            weight.sub_(grad, alpha=0.1)
        return loss.detach()

    compiled = aj.jit(lambda x, t: step(weights[0], x, t))
    for _ in range(5):
        x, t = _rows(8), aj.randint(-1, 3, (8,))
        check_same(compiled(x, t), step(weights[1], x, t), "")
    check_same(weights[0], weights[1], "weights")
    assert compiled.stats()["native_calls"] > 0


def test_python_may_decide_on_the_count() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        chosen = x[x > 0]
        return chosen.sum() if chosen.shape[0] > 3 else x.sum()

    compiled = aj.jit(function)
    for x in (aj.ones(6), -aj.ones(6), aj.tensor([1.0, -1, -1, -1, 2, -1])):
        check_same(compiled(x), function(x), "")
    assert compiled.stats()["captures"] == 2


def test_a_count_read_as_digits_is_decided_on() -> None:
    def function(x: aj.Tensor) -> aj.Tensor:
        chosen = x[x > 0]
        total = x.sum() * 0
        for k in range(chosen.shape[0]):
            total = total + chosen[k] * k
        return total

    compiled = aj.jit(function)
    for x in (aj.tensor([1.0, -1.0, 2.0]), aj.tensor([3.0, 1.0, 2.0]), aj.tensor([5.0, -1.0, 7.0])):
        check_same(compiled(x), function(x), "")
    assert compiled.stats()["splits"] == 1


def slopes(function: Callable[..., Any], x: aj.Tensor, *others: aj.Tensor) -> tuple[Any, ...]:
    """(results, first and second derivative) as a caller sees them."""
    found = function(x, *others)
    found = found if isinstance(found, tuple) else (found,)
    total = sum((y**2).sum() for y in found if isinstance(y, aj.Tensor) and y.requires_grad)
    (first,) = aj.autograd.grad(total, (x,), create_graph=True)
    (second,) = aj.autograd.grad((first**2).sum(), (x,))
    return (*(y.detach() if isinstance(y, aj.Tensor) else y for y in found), first.detach(), second)


REPEATS = aj.tensor([1, 2, 0, 4, 1])
WITH_HISTORY: dict[str, Callable[..., Any]] = {
    "chosen": lambda x: x[x > 0] ** 3,
    "beside its number": lambda x: (x[x > 0] ** 2, x[x > 0].shape[0], x.sum()),
    "number alone": lambda x: (x[x > 0].sum(), x[x > 0].shape[0]),
    "view of an argument": lambda x: (x[: x[x > 0].shape[0]], x * 2),
    "product": lambda x: x[x > 0].unsqueeze(1) @ x[x > 0].unsqueeze(0),
    "repeated": lambda x: aj.repeat_interleave(x, REPEATS),
    "part of what is repeated": lambda x: (aj.repeat_interleave(x**2, REPEATS)[1:], (x > 0).nonzero()),
    "weights": lambda x: aj.bincount(REPEATS, x * x),
}


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_a_counted_result_is_differentiated_by_the_caller_in_one_step(name: str) -> None:
    function = WITH_HISTORY[name]
    compiled = aj.jit(function)
    for values in ([1.0, -2.0, 3.0, 0.5, -0.1], [-1.0, 1.5, 3.0, 2.0, 4.0], [-1.0, -2.0, -3.0, -4.0, -5.0]):
        x = aj.tensor(values, dtype=aj.float64, requires_grad=True)
        for found, expected in zip(slopes(compiled, x), slopes(function, x), strict=True):
            check_same(found, expected, values)
    stats = compiled.stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (1, 0, 0), compiled.explain()


def test_tangents_and_jacobians_of_a_counted_result() -> None:
    compiled = aj.jit(lambda x: x[x > 0] ** 3)
    for values in ([1.0, -2.0, 3.0], [2.0, 1.0, 1.0]):
        x = aj.tensor(values)
        slope = [3 * v * v for v in values if v > 0]
        assert aj.func.jvp(compiled, (x,), (aj.ones(3),))[1].tolist() == slope
        assert aj.func.jacrev(compiled)(x).sum(1).tolist() == slope
    assert compiled.stats()["captures"] == 1


def test_a_sum_over_other_axes_needs_memory_of_the_counted_size() -> None:
    table = aj.arange(60.0).reshape(12, 5)

    def function(mask: aj.Tensor) -> aj.Tensor:
        return (table[mask.nonzero()[:, 0]].t() * 2).sum(0)

    compiled = aj.jit(function)
    for share in (0.5, 0.1, 0.9):
        mask = aj.rand(12, 60) < share
        check_same(compiled(mask), function(mask), "")
    assert compiled.stats()["fallbacks"] == 0
