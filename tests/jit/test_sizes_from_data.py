"""Distinct values, counts, repetitions and slices whose lengths the data decide, inside a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from tests.jit.test_symbolic_sizes import check_same

Function = Callable[..., Any]


def check(function: Function, *calls: tuple[Any, ...], captures: int = 1) -> Any:
    """A compiled function gives for each call what eager mode gives: one step, no split, nothing called back."""
    compiled = aj.jit(function)
    for arguments in calls:
        check_same(compiled(*arguments), function(*arguments), arguments)
    stats = compiled.stats()
    counted = stats["captures"], stats["splits"], stats["fallbacks"], stats["specialised_sizes"]
    assert counted == (captures, 0, 0, 0), compiled.explain()
    return compiled


def vectors(*values: list[float]) -> list[tuple[aj.Tensor]]:
    return [(aj.tensor(v),) for v in values]


SAME_LENGTH = vectors([3, 1, 3, 0, 1], [2, 2, 2, 2, 2], [5, 4, 3, 2, 1])
OPEN_LENGTH = vectors([3, 1, 3, 0, 1], [2, 2, 2], [5, 4, 3, 2, 1, 9], [0, 0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: aj.unique(x),
        lambda x: x.unique(return_inverse=True, return_counts=True),
        lambda x: aj.unique(x.double() / 3, return_counts=True),
        lambda x: aj.unique_consecutive(x, return_inverse=True, return_counts=True),
        lambda x: aj.unique(x.reshape(-1, 1).expand(-1, 2), dim=0, return_inverse=True, return_counts=True),
        lambda x: aj.unique(aj.stack([x, x % 2]), dim=1, return_inverse=True),
        lambda x: aj.unique_consecutive(aj.stack([x, x], 1), dim=0, return_counts=True),
        lambda x: aj.bincount(x),
        lambda x: aj.bincount(x, minlength=7),
        lambda x: aj.bincount(x, weights=x * 0.5),
        lambda x: aj.repeat_interleave(x, x),
        lambda x: aj.repeat_interleave(x),
        lambda x: aj.stack([x, -x]).repeat_interleave(x, dim=1).sum(1),
        lambda x: aj.unique(aj.repeat_interleave(x, x), return_counts=True),
    ],
)  # fmt: skip
def test_distinct_values_counts_and_repetitions(function: Function) -> None:
    check(function, *SAME_LENGTH)
    check(function, *OPEN_LENGTH, captures=2)


def test_not_a_number_differs_from_itself() -> None:
    nan = float("nan")
    check(
        lambda x: aj.unique(x, return_inverse=True, return_counts=True),
        *vectors([nan, 1.0, nan, -0.0, 0.0], [nan, nan, nan, nan, nan], [1.0, 1.0, 1.0, 1.0, nan]),
    )


def test_nothing_to_count() -> None:
    none = aj.tensor([], dtype=aj.int64)
    for function in (aj.unique, aj.bincount, aj.repeat_interleave, aj.unique_consecutive):
        check(function, (none,))
    check(lambda x: aj.unique(x[x > 5]), *SAME_LENGTH)
    check(lambda x: aj.bincount(x[x > 5], minlength=2), *SAME_LENGTH)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: aj.zeros(n.item() + 1) + x.sum(),
        lambda x, n: aj.arange(n.item()) * 2,
        lambda x, n: aj.arange(1, n, 2).sum() + x,
        lambda x, n: aj.ones(n.item(), 2) @ x[:2],
        lambda x, n: x[: n.item()],
        lambda x, n: x[n:].sum(),
        lambda x, n: x[n - 2 : n],
        lambda x, n: x[:, None][-n.item() :],
        lambda x, n: x.narrow(0, 1, n.item()),
        lambda x, n: x.narrow(0, n.clamp(max=3), 2),
        lambda x, n: x.tensor_split(aj.stack([n, n + 2])),
        lambda x, n: x.repeat_interleave(n, output_size=None)[:3],
    ],
)  # fmt: skip
def test_sizes_that_are_numbers_of_the_step(function: Function) -> None:
    x = aj.rand(6)
    check(function, *[(x, aj.tensor(n)) for n in (2, 1, 3, 5)])


def test_bounds_of_slices_are_clipped_as_in_python() -> None:
    bounds = ((1, 4), (4, 1), (-3, -1), (-30, 9), (2, 2), (-1, 3), (0, 6))
    check(lambda x, n: x[n[0] : n[1]] * 2, *[(aj.rand(6, 2), aj.tensor(pair)) for pair in bounds])

    def assigned(x: aj.Tensor, n: aj.Tensor) -> aj.Tensor:
        y = x * 2
        y[n[0] : n[1]] += 10
        y[: n[0]] = 7
        return y

    check(assigned, *[(aj.rand(6, 2), aj.tensor(pair)) for pair in bounds])


def test_gradients_flow_through_repetitions_and_groups() -> None:
    weight = aj.rand(5, dtype=aj.float64, requires_grad=True)

    def grouped(x: aj.Tensor, group: aj.Tensor) -> Any:
        names, member, count = aj.unique(group, return_inverse=True, return_counts=True)
        means = aj.zeros(names.shape[0], dtype=aj.float64).index_add(0, member, weight * x) / count
        loss = (aj.repeat_interleave(means, count) ** 3).sum() + (means**2).mean()
        (first,) = aj.autograd.grad(loss, (weight,), create_graph=True)
        (second,) = aj.autograd.grad((first**2).sum(), (weight,))
        return loss.detach(), first.detach(), second

    groups = ([3, 1, 3, 0, 1], [2, 2, 2, 2, 2], [5, 4, 3, 2, 1])
    compiled = check(grouped, *[(aj.rand(5, dtype=aj.float64), aj.tensor(g)) for g in groups])
    assert compiled.stats()["native_calls"] == 2


def test_the_derivative_of_unique_is_missing() -> None:
    for function in (aj.unique, aj.jit(aj.unique)):
        x = aj.tensor([2.0, 1.0, 2.0], requires_grad=True)
        with pytest.raises(NotImplementedError, match="unique"):
            function(x).sum().backward()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: aj.bincount(x), "non-negative"),
        (lambda x: aj.repeat_interleave(x), "can not be negative"),
        (lambda x: aj.repeat_interleave(x.abs(), output_size=1), "does not match"),
        (lambda x: aj.zeros(x.min().item()), "negative"),
        (lambda x: aj.arange(3).narrow(0, 0, x.max().item() + 5), "exceeds dimension"),
        (lambda x: aj.arange(x.min().item(), x.max().item() - 9), "inconsistent"),
    ],
)
def test_sizes_that_cannot_be(function: Function, message: str) -> None:
    compiled = aj.jit(function)
    for run in (function, compiled, compiled):
        with pytest.raises(RuntimeError, match=message):
            run(aj.tensor([2, -1, 1]))


def test_more_memory_than_there_is() -> None:
    compiled = aj.jit(lambda x: aj.bincount(x).sum())
    assert int(compiled(aj.tensor([1, 2]))) == 2
    with pytest.raises(MemoryError):
        compiled(aj.tensor([1, 2**52]))
    assert int(compiled(aj.tensor([1, 7]))) == 2
    with pytest.raises(MemoryError):
        aj.bincount(aj.tensor([1, 2**52]))


def test_chains_of_counted_sizes_on_random_data() -> None:
    def function(x: aj.Tensor, r: aj.Tensor) -> Any:
        spread = aj.repeat_interleave(x, r)
        kept = spread[spread > 0.3]
        groups, member = aj.unique((kept * 4).long(), return_inverse=True)
        totals = aj.zeros(groups.shape[0]).index_add(0, member, kept)
        counts = aj.bincount(groups, minlength=2)
        return spread, kept, totals, counts, aj.cat([totals, kept[: groups.shape[0]]])

    rng = np.random.default_rng(0)
    compiled = aj.jit(function)
    for n in (4, 7, 50, 3, 400, 2):
        x, r = aj.tensor(rng.random(n, np.float32)), aj.tensor(rng.integers(0, 4, n))
        for found, expected in zip(compiled(x, r), function(x, r), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    stats = compiled.stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (2, 0, 0), compiled.explain()


PARTS: dict[str, Callable[[aj.Tensor, aj.Tensor], aj.Tensor]] = {
    "mask": lambda v, k: v[v > 0.1],
    "repetitions": lambda v, k: aj.repeat_interleave(v, (v.detach().abs() * 3).long().clamp(max=4)),
    "head": lambda v, k: v[: k[0].item()],
    "tail": lambda v, k: v[k[1] - 2 :],
    "means of groups": lambda v, k: _means(v, (v.detach() * 4).round()),
    "weights": lambda v, k: aj.bincount((v.detach().abs() * 4).long().clamp(max=9), weights=v, minlength=1),
    "twice": lambda v, k: aj.cat([v, v * 0.5]),
    "running": lambda v, k: v.cumsum(0) * 0.5,
    "sorted": lambda v, k: v.sort().values,
    "reversed": lambda v, k: v.flip(0),
    "padded": lambda v, k: aj.nn.functional.pad(v, (1, 2), value=0.3),
    "outer": lambda v, k: (v.unsqueeze(1) * v.unsqueeze(0)).sum(1) * 0.2,
    "branch": lambda v, k: aj.cond(v.detach().sum() > 0, lambda a: a * a[a > 0].sum(), lambda a: a * 2.0, (v,)),
    "by length": lambda v, k: v * (v.shape[0] * 0.1),
}


def _means(v: aj.Tensor, group: aj.Tensor) -> aj.Tensor:
    names, member, count = aj.unique(group, return_inverse=True, return_counts=True)
    return aj.zeros(names.shape[0], dtype=v.dtype).index_add(0, member, v) / count


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_with_their_derivatives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = [(str(rng.choice(list(PARTS))), int(rng.integers(100))) for _ in range(5)]
    w = aj.tensor(0.9, dtype=aj.float64, requires_grad=True)

    def function(x: aj.Tensor, k: aj.Tensor) -> tuple[aj.Tensor, ...]:
        values = [x * w]
        for part, place in chosen:
            values.append(PARTS[part](values[place % len(values)], k))
        loss = sum(((v**2).sum() for v in values[1:]), (values[0] ** 2).sum())
        (first,) = aj.autograd.grad(loss, (w,), create_graph=True)
        (second,) = aj.autograd.grad(first**2, (w,))
        return loss.detach(), first.detach(), second, values[-1].detach()

    compiled = aj.jit(function)
    for n in (6, 6, 9, 3, 12, 2):
        x, k = aj.tensor(rng.random(n) * 2 - 1), aj.tensor(rng.integers(-2, 8, 3))
        for found, expected in zip(compiled(x, k), function(x, k), strict=True):
            assert found.shape == expected.shape, chosen
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-8, atol=1e-9, err_msg=str(chosen))
    stats = compiled.stats()
    assert (stats["captures"], stats["splits"], stats["fallbacks"]) == (2, 0, 0), f"{chosen} {compiled.explain()}"
