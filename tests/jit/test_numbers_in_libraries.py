"""Numbers of a compiled step in libraries that ask for their type: what comes out is as in eager mode, kind and all."""

from __future__ import annotations

import array
import bisect
import collections
import datetime
import decimal
import fractions
import functools
import heapq
import itertools
import json
import math
import numbers
import operator
import pickle
import random
import statistics
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import autojit as aj

Use = Callable[[float, int, int], Any]  # of a float and an int that the step computes, and a size

HALVES = [Fraction(1, 2), Fraction(3, 2)]
USES: dict[str, Use] = {
    "statistics.mean": lambda x, k, n: statistics.mean([x, 2.0]),
    "statistics.mean of ints": lambda x, k, n: statistics.mean([k, 2]),
    "statistics.mean of sizes": lambda x, k, n: statistics.mean([n / 2, x]),
    "statistics.mean of a generator": lambda x, k, n: statistics.mean(v for v in (x, 2.0)),
    "statistics.mean of values": lambda x, k, n: statistics.mean({"a": x, "b": 2.0}.values()),
    "statistics.mean of a deque": lambda x, k, n: statistics.mean(collections.deque([x, 2.0])),
    "statistics.mean by name": lambda x, k, n: statistics.mean(data=[x, 2.0]),
    "statistics.mean of a mean": lambda x, k, n: statistics.mean([statistics.mean([x, 3.0]), x]),
    "statistics.mean in a partial": lambda x, k, n: functools.partial(statistics.mean, [x, 3.0])(),
    "statistics.mean in map": lambda x, k, n: list(map(statistics.mean, [[x, 3.0], [k, n]])),
    "statistics.median": lambda x, k, n: statistics.median([x, 2.0, 9.0]),
    "statistics.stdev": lambda x, k, n: statistics.stdev([x, 2.0, 9.0]),
    "statistics.pvariance": lambda x, k, n: statistics.pvariance([x, 2.0, 9.0]),
    "statistics.harmonic_mean": lambda x, k, n: statistics.harmonic_mean([x, 2.0]),
    "statistics.quantiles": lambda x, k, n: statistics.quantiles([x, 2.0, 5.0]),
    "statistics.NormalDist": lambda x, k, n: statistics.NormalDist(x, 1.0).cdf(2.0),
    "statistics.linear_regression": lambda x, k, n: tuple(statistics.linear_regression([1.0, 2.0], [1.0, x])),
    "Fraction": lambda x, k, n: (Fraction(x), Fraction(k, 3), Fraction(n, 7)),
    "Fraction.from_float": lambda x, k, n: Fraction.from_float(x),
    "Fraction.limit_denominator": lambda x, k, n: Fraction(22, 7).limit_denominator(k),
    "a fraction and a number": lambda x, k, n: (
        HALVES[0] + k,
        k - HALVES[0],
        HALVES[0] * x,
        HALVES[0] < x,
        n * HALVES[0],
    ),
    "a sum of fractions and a number": lambda x, k, n: sum([*HALVES, k]),
    "an operator's function on a fraction": lambda x, k, n: operator.add(HALVES[0], k),
    "Decimal": lambda x, k, n: (Decimal(x), Decimal(k), Decimal(n)),
    "Decimal.from_float": lambda x, k, n: Decimal.from_float(x),
    "Decimal.scaleb": lambda x, k, n: Decimal("1.25").scaleb(k),
    "a decimal and a number": lambda x, k, n: (Decimal(2) * k, k / Decimal(4), Decimal(2) < x, k == Decimal(4)),
    "a decimal and a number in place": lambda x, k, n: _added(Decimal(2), k),
    "a decimal and a float": lambda x, k, n: Decimal(2) * x,  # type: ignore[operator]  # an error
    "a context of decimals": lambda x, k, n: decimal.Context(prec=3).create_decimal(k),
    "abstract numbers": lambda x, k, n: [isinstance(v, c) for v in (x, k, n) for c in (numbers.Real, numbers.Integral)],
    "math.fsum": lambda x, k, n: math.fsum([x, x, 0.1, n / 2]),
    "math.ldexp": lambda x, k, n: math.ldexp(x, k),
    "math.gcd": lambda x, k, n: (math.gcd(k, 6), math.comb(k, 2), math.factorial(k)),
    "struct.pack": lambda x, k, n: struct.pack("<dfii", x, x, k, n),
    "struct.Struct": lambda x, k, n: struct.Struct("<d").pack(x),
    "an error of struct": lambda x, k, n: struct.pack("<i", x),
    "array.array": lambda x, k, n: (array.array("d", [x, 2.0]), array.array("i", [k, n])),
    "bisect": lambda x, k, n: bisect.bisect([0.0, 1.0, 2.5, 4.0], x),
    "heapq.nlargest": lambda x, k, n: heapq.nlargest(2, [x, 1.0, 2.5]),
    "heapq.merge": lambda x, k, n: list(heapq.merge([x], [2.25])),
    "random.gauss": lambda x, k, n: random.gauss(mu=x, sigma=0.0),
    "random.randint": lambda x, k, n: random.randint(k, k),
    "a seed": lambda x, k, n: (random.Random(k).random(), float(np.random.default_rng(k).normal())),
    "np.interp": lambda x, k, n: float(np.interp(x, [0.0, 4.0], [0.0, 8.0])),
    "np.array": lambda x, k, n: np.array([x, 2.0]).tolist(),
    "np.linspace": lambda x, k, n: np.linspace(0, x, 3).tolist(),
    "np.arange": lambda x, k, n: np.arange(k).tolist(),
    "timedelta": lambda x, k, n: datetime.timedelta(days=k, seconds=x, hours=n),
    "a span of time and a number": lambda x, k, n: (datetime.timedelta(1) * k, datetime.timedelta(1) / x),
    "datetime.fromtimestamp": lambda x, k, n: datetime.datetime.fromtimestamp(x, datetime.UTC),
    "date": lambda x, k, n: datetime.date(2000, 1, k) - datetime.timedelta(n),
    "operator.index": lambda x, k, n: (operator.index(k), operator.index(n)),
    "operator.index of a float": lambda x, k, n: operator.index(x),  # type: ignore[arg-type]  # an error
    "deque": lambda x, k, n: list(collections.deque(range(9), maxlen=k)),
    "itertools": lambda x, k, n: (list(itertools.islice(range(9), k)), list(itertools.repeat(1, n))),
    "pow": lambda x, k, n: (pow(k, 2, 5), pow(2, k, 7)),
    "a method by its class": lambda x, k, n: (float.is_integer(x), int.bit_length(k), float.__add__(x, 2.0)),
    "json": lambda x, k, n: json.dumps({"a": x, "b": [k]}),
    "pickle": lambda x, k, n: pickle.loads(pickle.dumps([x, k])),
    "repeated": lambda x, k, n: ([1] * k, "a" * n, k * (1,), k * "ab"),
    "an error of Python's": lambda x, k, n: x + "a",  # type: ignore[operator]
    "an error of Python's order": lambda x, k, n: x < "a",  # type: ignore[operator]
    "no error": lambda x, k, n: (x == "a", x in (None, "a"), k == [1]),
    "an error of a library": lambda x, k, n: statistics.mean(["a", x]),  # type: ignore[type-var]
}


def _added(d: Decimal, k: int) -> Decimal:
    d += k
    return d


def _told(value: Any) -> Any:
    """What somebody who looks closely sees."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [_told(part) for part in value]
    parts = (value.numerator, value.denominator) if isinstance(value, fractions.Fraction) else ()
    return type(value).__name__, repr(value), [type(part).__name__ for part in parts]


def _results(use: Use, jit: Callable[[Any], Any]) -> list[Any]:
    step = jit(lambda x: use((x.sum() / 2).item(), x.sum().to(aj.int64).item(), x.shape[0]))
    found = []
    for x in (aj.ones(4), aj.ones(6), aj.ones(4) * 2, aj.ones(4), aj.ones(5)):
        try:
            found.append(_told(step(x)))
        except (TypeError, struct.error) as error:
            found.append((type(error).__name__, str(error).splitlines()[0]))
    return found


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_libraries_are_given_what_eager_mode_gives_them(use: Use) -> None:
    assert _results(use, aj.jit) == _results(use, lambda f: f)


def test_what_a_library_makes_of_numbers_that_are_kept() -> None:
    def program(jit: Callable[[Any], Any]) -> list[Any]:
        losses: list[float] = []

        def step(x: aj.Tensor) -> Any:
            losses.append(x.mean().item())
            return statistics.mean(losses), x * statistics.fmean(losses)

        run = jit(step)
        found = [run(aj.ones(2) * k) for k in (1, 3, 5, 5)]
        return [[mean, y.tolist()] for mean, y in found] + [list(losses)]

    assert program(aj.jit) == program(lambda f: f)


def test_numbers_that_no_library_asks_stay_open() -> None:
    step = aj.jit(lambda x: x + statistics.median([x.sum().item(), 2.0, 0.5]) * max(x.sum().item(), 1.0))
    for k in (3.0, 4.0, 5.0, 6.0):
        assert step(aj.ones(2) * k).tolist() == [k + 2.0 * 2 * k] * 2
    assert step.stats()["captures"] == 1
