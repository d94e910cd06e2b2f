"""Ranges of numbers: what an operation can give lies in the range that is told, which is tight where all is finite."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest

from autojit.jit.number_ranges import ANY, INT64, Range, combined, compared, may_wrap, power

ENDS = (-math.inf, -3.0, -1.0, 0.0, 1.0, 2.0, math.inf)
RANGES = [Range(a, b, n) for a, b in itertools.combinations_with_replacement(ENDS, 2) for n in (False, True)]
ARITHMETIC = ("add", "sub", "mul", "truediv")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def members(r: Range) -> list[float]:
    """The ends, and what else of the interesting numbers lies between."""
    found = [x for x in (*ENDS, 0.25, -2.0) if r.low <= x <= r.high]
    return [*found, math.nan] if r.has_nan else found


def is_in(x: float, r: Range) -> bool:
    return r.has_nan if math.isnan(x) else r.low <= x <= r.high


def value_of(name: str, x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(
            getattr(
                np,
                {"truediv": "true_divide", "pow": "power"}.get(
                    name, {"mul": "multiply", "sub": "subtract"}.get(name, name)
                ),
            )(x, y)
        )


@pytest.mark.parametrize("name", ARITHMETIC)
def test_every_result_is_in_the_range(name: str) -> None:
    for a, b in itertools.product(RANGES, RANGES):
        found = combined(name, a, b)
        for x, y in itertools.product(members(a), members(b)):
            if name != "truediv" or y != 0:
                assert is_in(value_of(name, x, y), found), (name, a, b, x, y, found)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_a_range_of_finite_numbers_is_tight(name: str) -> None:
    for a, b in itertools.product(RANGES, RANGES):
        if not (a.is_finite and b.is_finite) or (name == "truediv" and b.low <= 0):
            continue
        every = [value_of(name, x, y) for x, y in itertools.product(a[:2], b[:2])]
        assert combined(name, a, b) == Range(min(every), max(every), a.has_nan or b.has_nan)


def test_a_quotient_by_what_may_be_zero_can_be_anything() -> None:
    assert combined("truediv", Range(1.0, 2.0), Range(0.0, 1.0)) == ANY
    assert combined("truediv", Range(1.0, 2.0), Range(-1.0, 1.0)) == ANY


def test_powers_are_in_their_range_which_is_tight_where_all_is_finite() -> None:
    for base, exponent in itertools.product(RANGES, RANGES):
        is_even = exponent.low == exponent.high and exponent.low % 2 == 0
        if base.low < 0 and not is_even:
            assert power(base, exponent) == ANY
            continue
        found = power(base, exponent)
        for x, y in itertools.product(members(base), members(exponent)):
            result = value_of("pow", x, y)
            assert is_in(result, found) or (math.isnan(result) and x < 0), (base, exponent, x, y, found)
        if base.low > 0 and base.is_finite and exponent.is_finite:
            every = [value_of("pow", x, y) for x, y in itertools.product(base[:2], exponent[:2])]
            assert found == Range(min(every), max(every), base.has_nan or exponent.has_nan)
    assert power(Range(-2.0, 3.0), Range(2.0, 2.0)) == Range(0.0, math.inf)
    assert power(Range(10.0, 1e300), Range(2.0, 3.0)).high == math.inf


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_told_exactly_where_all_members_agree(name: str) -> None:
    for a, b in itertools.product(RANGES, RANGES):
        found = compared(name, a, b)
        outcomes = {getattr(operator, name)(x, y) for x, y in itertools.product(members(a), members(b))}
        if a.has_nan or b.has_nan:
            assert found is None
        else:
            assert found == (outcomes.pop() if len(outcomes) == 1 else None), (name, a, b)


def test_the_image_the_magnitude_and_the_negative() -> None:
    for r in RANGES:
        assert all(is_in(-x, r.negative()) and is_in(abs(x), r.magnitude()) for x in members(r))
        assert r.negative().negative() == r
        numbers = [x for x in members(r) if x == x]
        assert r.magnitude() == Range(
            min(map(abs, numbers)) if r.low > 0 or r.high < 0 else 0.0, max(map(abs, r[:2])), r.has_nan
        )
        assert r.is_finite == all(map(math.isfinite, r[:2]))
        assert r.image(lambda x: 2 * x + 1) == Range(2 * r.low + 1, 2 * r.high + 1, r.has_nan)
    assert Range(-1.0, 4.0).image(math.sqrt) == Range(-math.inf, 2.0)
    assert Range(1.0, 1e6, True).image(math.exp) == Range(math.e, math.inf, True)


def test_whole_numbers_may_wrap_where_a_result_needs_more_than_64_bits() -> None:
    half, whole = 2.0**62, 2.0**63

    def wraps(name: str, a: Any, b: Any) -> bool:
        return may_wrap(name, Range(*a), Range(*b))

    assert not wraps("add", (0, half), (0, half / 2)) and wraps("add", (0, half), (0, half))
    assert not wraps("add", (-half, 0), (-half / 2, 0)) and wraps("add", (-half, 0), (-half * 1.5, 0))
    assert wraps("add", (-half, 0), (-half, 0)), "ends of such ranges are rounded"
    assert not wraps("sub", (-half, 0), (0, half / 2)) and wraps("sub", (0, half), (-half, 0))
    assert wraps("mul", (0, 2.0**32), (0, 2.0**31)) and not wraps("mul", (0, 2.0**31), (0, 2.0**31))
    assert not wraps("truediv", (0, half), (1, half)) and not wraps("floordiv", (0, half), (1, half))
    assert not wraps("add", INT64, (0, half)) and not wraps("add", (0, half), INT64), "nothing is known of one of them"
    assert not wraps("add", (0, whole), (0, half)) and not wraps("add", (-whole, 0), (-half, 0))
