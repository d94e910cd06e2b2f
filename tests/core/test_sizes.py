"""Symbolic sizes agree with plain ints, and never decide by their hints."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import pytest

from autojit.core.errors import UndecidedSizeError
from autojit.core.sizes import (
    SymbolicSize,
    evaluate,
    expression_of,
    hint_of,
    named_size,
    size_max,
    size_min,
    surely_divides,
    surely_less,
)

HINTS = {"a": 12, "b": 5, "c": 64}


def _symbols() -> list[int]:
    return [named_size(name, hint) for name, hint in HINTS.items()]


def _random_size(rng: random.Random, depth: int) -> int:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*_symbols(), rng.randint(1, 9)])
    left, right = _random_size(rng, depth - 1), _random_size(rng, depth - 1)
    which = rng.randrange(7)
    if which < 2:
        return left + right
    if which == 2:
        return left - right
    if which == 3:
        return left * right
    if which == 4:
        return size_min(left, right)
    divisor = size_max(right, 1)
    return left // divisor if which == 5 else left % divisor


@pytest.mark.parametrize("seed", range(40))
def test_an_expression_evaluates_to_what_ints_give_and_lies_within_its_bounds(seed: int) -> None:
    for k in range(40):
        plain = random.Random(f"{seed}.{k}")
        size = _random_size(plain, 4)
        assert evaluate(size, HINTS) == hint_of(size)
        for trial in range(6):
            values = {name: plain.randint(2, 40) for name in HINTS}
            value = evaluate(size, values)
            expression = expression_of(size)
            low, high = expression.bounds()
            assert low is None or low <= value, (str(size), values, trial)
            assert high is None or value <= high, (str(size), values, trial)


@pytest.mark.parametrize("seed", range(40))
def test_substitution_commutes_with_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    inner = {name: _random_size(rng, 2) * 1 + 50 * named_size(name, 7) for name in HINTS}
    size = _random_size(rng, 3)
    values = {name: rng.randint(2, 30) for name in HINTS}
    replaced = expression_of(size).substitute({n: expression_of(e) for n, e in inner.items()})
    outer = {n: evaluate(e, values) for n, e in inner.items()}
    if min(outer.values()) >= 2:
        assert replaced.evaluate(values) == evaluate(size, outer)


def test_products_and_quotients_have_one_form() -> None:
    a, b, c = _symbols()
    assert (a * b) // b == a
    assert (64 * a) // 64 == a
    assert (64 * a) % 64 == 0
    assert type((64 * a) % 64) is int
    assert (64 * a) // 32 == 2 * a
    assert (2 * a) // 4 == a // 2
    assert (a // 2) // 3 == a // 6
    assert -(-a // 8) == (a + 7) // 8
    assert a - a == 0
    assert (a * b + b) // b == a + 1
    assert (a * b + b * c) // (a + c) == b
    assert (a * 64 + 63) // 64 == a
    assert a * (b + c) == c * a + b * a
    assert hash(a * (b + c)) == hash(c * a + b * a)


def test_algebra_decides_what_holds_for_all_sizes() -> None:
    a, b, _ = _symbols()
    assert a != 1
    assert a > 1
    assert a * b > a
    assert a * 64 >= 128
    assert a % 7 < 7
    assert a % b < b
    assert (a - 1) * 64 + 63 < a * 64
    assert (a // 4) <= a
    assert size_min(a, 16) <= 16
    assert size_max(a, 1) == a
    assert surely_less(a, a + 1)
    assert not surely_less(a, b)
    assert surely_divides(64, a * 128)
    assert not surely_divides(64, a)


@pytest.mark.parametrize("relation", [operator.lt, operator.le, operator.gt, operator.ge])
def test_an_undecided_order_raises_without_a_trace(relation: Callable[[int, int], bool]) -> None:
    a, b, _ = _symbols()
    for left, right in ((a, b), (a, 12), (12, a), (a * 2, b * 3)):
        with pytest.raises(UndecidedSizeError, match="no one value here"):
            relation(left, right)


def test_equality_without_a_trace_means_equal_expressions() -> None:
    a, b, c = _symbols()
    assert a != 12
    assert c != 64
    assert a == named_size("a", 99)
    assert (a, 3) == (named_size("a", 1000), 3)
    assert a + b == b + a


def test_a_size_prints_its_expression_everywhere() -> None:
    (a, b, _) = _symbols()
    assert f"{a * 64 + 1}" == str(64 * a + 1) == repr(64 * a + 1) == "64*a+1"
    assert str((a + 1) // b) == "((a+1) // b)"
    assert isinstance(a * 3, SymbolicSize)
