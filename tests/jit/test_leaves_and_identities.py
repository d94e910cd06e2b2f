"""Leaves changed without history keep their gradients; equal arguments and frozen leaves are told from others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj

Wrap = Callable[[Callable[..., Any]], Any]
CALLS = 4


def _plain(function: Any) -> Any:
    return function


def _x() -> aj.Tensor:
    return aj.tensor([1.0, 2.0, 3.0], dtype=aj.float64)


def _without_history(w: aj.Tensor) -> None:
    with aj.no_grad():
        w.mul_(2)


CHANGES: dict[str, Callable[[aj.Tensor], Any]] = {
    "no_grad": _without_history,
    "data": lambda w: w.data.mul_(2),
    "detach": lambda w: w.detach().add_(1),
    "clipped": lambda w: w.data.clamp_(-1.5, 1.5),
    "twice": lambda w: (w.data.mul_(0.5), _without_history(w)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_argument", [True, False], ids=["argument", "captured"])
@pytest.mark.parametrize("when", ["before", "between"])
def test_a_leaf_that_is_changed_without_history_keeps_its_gradient(change: str, is_argument: bool, when: str) -> None:
    def run(wrap: Wrap) -> list[Any]:
        leaf = _x().requires_grad_()

        def function(w: aj.Tensor, x: aj.Tensor) -> aj.Tensor:
            w = w if is_argument else leaf
            first = (w * x).sum() if when == "between" else 0
            CHANGES[change](w)
            return first + (w * w.detach() * x).sum() + w.sum()

        step, seen = wrap(function), []
        for k in range(CALLS):
            w = _x().requires_grad_() if is_argument else leaf
            w.grad = None
            step(w if is_argument else _x(), _x() + k).backward()
            seen.append((w.grad.tolist(), w.tolist()))
        return seen

    assert run(aj.jit) == run(_plain)


def _patterns(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(n), repeat=n))


@pytest.mark.parametrize("form", ["flat", "list", "keywords"])
@pytest.mark.parametrize("grads", [True, False])
def test_any_pattern_of_equal_arguments_is_told_apart(form: str, grads: bool) -> None:
    """All ways to give three tensors to three arguments, each after each other way."""

    def function(a: aj.Tensor, b: aj.Tensor, c: aj.Tensor) -> Any:
        found = aj.autograd.grad((a * b * c + a).sum(), [a, b, c], allow_unused=True) if grads else a * b * c
        return found, a is b, b is c

    step = aj.jit(lambda items: function(*items)) if form == "list" else aj.jit(function)
    given = [(_x() + k).requires_grad_(grads) for k in range(3)]
    for k in (0, 1, 2):
        for pattern in [(0, 1, 2), *_patterns(3)[k::3], (0, 1, 2), (0, 0, 1)]:
            chosen = [given[place] for place in pattern]
            if form == "list":
                found = step(chosen)
            else:
                found = step(*chosen) if form == "flat" else step(chosen[0], b=chosen[1], c=chosen[2])
            wanted = function(*chosen)
            assert found[1:] == wanted[1:], pattern
            for a, b in zip(found[0], wanted[0], strict=True):
                assert a.tolist() == b.tolist(), pattern
    assert step.stats()["captures"] <= 5, step.explain()


def test_arguments_that_are_two_run_natively_and_so_do_those_that_are_one() -> None:
    step = aj.jit(lambda a, b: a * b + a)
    x, y = _x(), _x() + 1
    for _ in range(3):
        step(x, y)
        step(x, x)
    calls = step.stats()["native_calls"]
    for _ in range(5):
        assert step(x, y).tolist() == (x * y + x).tolist()
    for _ in range(5):
        assert step(x, x).tolist() == (x * x + x).tolist()
    assert step.stats()["native_calls"] == calls + 10


def test_many_tied_parameters_in_a_list() -> None:
    step = aj.jit(lambda items: aj.autograd.grad(sum((k + 1) * (p * p).sum() for k, p in enumerate(items)), items))
    items = [(_x() + k).requires_grad_() for k in range(20)]
    for tied in (None, 3, 7, None, 3):
        given = list(items)
        if tied is not None:
            given[tied] = given[0]
        found = step(given)
        total = sum((k + 1) * (p * p).sum() for k, p in enumerate(given))
        for a, b in zip(found, aj.autograd.grad(total, given), strict=True):
            assert a.tolist() == b.tolist()


@pytest.mark.parametrize("frozen", [(0,), (1,), (0, 1), ()])
def test_freezing_a_layer_whose_values_the_step_does_not_read(frozen: tuple[int, ...]) -> None:
    def run(wrap: Wrap) -> list[Any]:
        layer = aj.nn.Linear(2, 2, dtype=aj.float64)
        params = list(layer.parameters())
        with aj.no_grad():
            for p in params:
                p.fill_(0.5)

        def function(x: aj.Tensor) -> aj.Tensor:
            layer.zero_grad()
            layer(x).sum().backward()
            return x.sum()

        step, seen = wrap(function), []
        for k in range(8):
            for place in frozen:
                params[place].requires_grad_(k % 4 < 2)
            if not any(p.requires_grad for p in params):
                continue
            step(aj.ones(1, 2, dtype=aj.float64) * k)
            seen.append([None if p.grad is None else p.grad.tolist() for p in params])
        return seen

    assert run(aj.jit) == run(_plain)


def test_a_flag_that_python_decides_on() -> None:
    w = _x().requires_grad_()
    step = aj.jit(lambda x: x * 2 if (w + x).requires_grad else x * 3)
    for k in range(8):
        w.requires_grad_(k % 2 == 0)
        assert step(_x()).tolist() == (_x() * (2 + k % 2)).tolist()
    assert step.stats()["captures"] == 2
