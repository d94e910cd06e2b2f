"""Functions of numbers that the tests make ops of, each with a domain (low, high) for every operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np


class Case(NamedTuple):
    """A function and where its operands are drawn from."""

    function: Callable[..., Any]
    domains: tuple[tuple[float, float], ...]


@numba.njit
def branch_loop_exp(x: float, y: float) -> float:
    total = 0.0
    for k in range(4):
        total = total * x + math.exp(-k * y)
    if x > y:
        return total / y
    return total - x * x


@numba.njit
def newton_root(x: float) -> float:
    """A loop whose length depends on the data."""
    y = 1.0
    while abs(y * y - x) > 1e-14 * x:
        y = 0.5 * (y + x / y)
    return y


@numba.njit
def series(x: float, y: float) -> float:
    """Leaves the loop when the terms are small."""
    total, term = 1.0, 1.0
    for k in range(1, 60):
        term *= x * y / k
        total += term
        if abs(term) < 1e-16:
            break
    return total


@numba.njit
def helper(x: float) -> float:
    return math.log1p(x * x) + math.atan(x)


@numba.njit
def calls_another(x: float, y: float) -> float:
    return helper(x) * helper(y) + helper(x * y)


@numba.njit
def recursive(x: float, n: int) -> float:
    if n <= 0:
        return math.sin(x)
    return x * recursive(x, n - 1) + math.cos(x)


@numba.njit
def with_integer(x: float) -> float:
    n = int(x * 3.0)
    return x**n + n * math.exp(-n * x * x)


@numba.njit
def local_table(x: float) -> float:
    """A tuple indexed by a number that depends on the data lies in memory."""
    table = (x, x * x, math.exp(x))
    return table[int(x)] * 2.0


@numba.njit
def polynomial(x: float) -> float:
    total = 0.0
    for c in (1.0, -0.5, 0.25, 2.0):
        total = total * x + c
    return total


@numba.njit
def nested_loops(x: float, y: float) -> float:
    total = 0.0
    for i in range(3):
        for j in range(i + 1):
            total += (x + i) ** 2 / (y + j)
    return math.sqrt(total)


@numba.njit
def long_loop(x: float, y: float) -> float:
    """Too many rounds for Numba to unroll."""
    total = 0.0
    for k in range(40):
        total += math.exp(-x * k) / (k + 1.0)
    return total * y if total > y else total


@numba.njit
def piecewise(x: float) -> float:
    if x < -1.0:
        return -x - 0.5
    elif x < 0.0:
        return 0.5 * x * x
    elif x < 1.0:
        return math.sin(x)
    return math.log(x) + 1.0


@numba.njit
def of_powers(x: float, y: float) -> float:
    return x**y + x**3 + x**-2 + x**2.5 + y**0.5


@numba.njit
def of_numpy(x: float) -> float:
    return np.exp2(x) + np.tanh(x) + np.arcsinh(x) + np.log2(x) + np.hypot(x, 2.0) + np.maximum(x, 0.7) + np.sign(x)


@numba.njit
def of_math(x: float) -> float:
    a = math.expm1(x) + math.log10(x) + math.cosh(x) + math.sinh(x) + math.tan(x) + math.erf(x) + math.erfc(x)
    b = math.asin(x / 4) + math.acos(x / 4) + math.atanh(x / 4) + math.acosh(x + 1) + math.atan2(x, 2.0)
    return a + b + math.copysign(x, -2.0) + math.fabs(x - 3.0) + math.floor(x) + math.hypot(x, 1.0)


@numba.njit
def remainders(x: float, y: float) -> float:
    return x % y + x // y + abs(x) * min(x, y) * max(x, 1.0) + round(x)


@numba.njit(fastmath=True)
def fast(x: float, y: float) -> float:
    total = 0.0
    for k in range(8):
        total += x * k + y * y
    return total * math.exp(-x)


@numba.njit(error_model="numpy")
def divides(x: float, y: float) -> float:
    return x / y + 1.0 / (x * x + 1.0)


def plain(x: float, y: float) -> float:
    """Compiled by Numba on the way."""
    return x * y if x < y else x / y


POSITIVE, SMALL, WIDE = (0.3, 1.9), (0.2, 0.9), (-2.0, 2.0)
CASES = {
    "branch_loop_exp": Case(branch_loop_exp, (POSITIVE, POSITIVE)),
    "newton_root": Case(newton_root, (POSITIVE,)),
    "series": Case(series, (WIDE, WIDE)),
    "calls_another": Case(calls_another, (WIDE, WIDE)),
    "with_integer": Case(with_integer, ((0.4, 0.6),)),
    "local_table": Case(local_table, ((0.1, 2.9),)),
    "polynomial": Case(polynomial, (WIDE,)),
    "nested_loops": Case(nested_loops, (POSITIVE, POSITIVE)),
    "long_loop": Case(long_loop, (POSITIVE, POSITIVE)),
    "piecewise": Case(piecewise, (WIDE,)),
    "of_powers": Case(of_powers, (POSITIVE, POSITIVE)),
    "of_numpy": Case(of_numpy, (POSITIVE,)),
    "of_math": Case(of_math, (SMALL,)),
    "remainders": Case(remainders, (POSITIVE, POSITIVE)),
    "fast": Case(fast, (WIDE, WIDE)),
    "divides": Case(divides, (WIDE, POSITIVE)),
    "plain": Case(plain, (POSITIVE, POSITIVE)),
}
