"""Minimax polynomials by Remez's exchange algorithm, for `make_coefficients` and its tables. Needs mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mpmath as mp

Function = Callable[["mp.mpf"], "mp.mpf"]
EXCHANGES = 12
LEAST_WEIGHT = mp.mpf("1e-7")  # keeps the linear system regular where the error weight has a zero


class Fit(NamedTuple):
    """A polynomial of ``degree`` near ``function`` on [low, high], least greatest |error * weight|."""

    table: str
    dtype: str
    function: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    weight: Function
    paired: bool = False  # the constant term's rounding error is kept too, as the one entry of ``<dtype>_low``


def remez(fit: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients, constant term first, and the greatest weighted error on a fine grid."""
    count = fit.degree + 2
    points = _chebyshev_points(fit, count - 1)
    grid = _chebyshev_points(fit, 16 * count)
    values = [fit.function(x) for x in grid]
    weights = [_weight(fit, x) for x in grid]
    best: tuple[list[mp.mpf], mp.mpf] | None = None
    for _ in range(EXCHANGES):
        coefficients = _level(fit, points)
        errors = [(_horner(coefficients, x) - y) * w for x, y, w in zip(grid, values, weights, strict=True)]
        greatest = max(abs(e) for e in errors)
        if best is None or greatest < best[1]:
            best = coefficients, greatest
        extrema = _extrema(errors, count)
        if len(extrema) < count:
            break
        points = [grid[i] for i in extrema]
    assert best is not None
    return best


def _horner(coefficients: list[mp.mpf], x: mp.mpf) -> mp.mpf:
    value = mp.mpf(0)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def _weight(fit: Fit, x: mp.mpf) -> mp.mpf:
    return max(abs(mp.mpf(fit.weight(x))), LEAST_WEIGHT)


def _chebyshev_points(fit: Fit, intervals: int) -> list[mp.mpf]:
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    return [middle - half * mp.cos(mp.pi * i / intervals) for i in range(intervals + 1)]


def _level(fit: Fit, points: list[mp.mpf]) -> list[mp.mpf]:
    """The polynomial whose weighted errors at the points are equal and alternate in sign."""
    size = len(points)
    matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
    for i, x in enumerate(points):
        for k in range(size - 1):
            matrix[i, k] = x**k
        matrix[i, size - 1] = (-1) ** i / _weight(fit, x)
        right[i] = fit.function(x)
    solution = mp.lu_solve(matrix, right)
    return [solution[k] for k in range(size - 1)]


def _extrema(errors: list[mp.mpf], count: int) -> list[int]:
    """Indices of the greatest error of each run of one sign, the weaker end runs dropped."""
    found: list[int] = []
    for i, error in enumerate(errors):
        if found and mp.sign(errors[found[-1]]) == mp.sign(error):
            if abs(error) > abs(errors[found[-1]]):
                found[-1] = i
        else:
            found.append(i)
    while len(found) > count:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found


def series(function: Function, at_zero: Function, radius: str = "1e-12") -> Function:
    """``function``, replaced by its series ``at_zero`` where 50 digits would cancel away."""
    limit = mp.mpf(radius)
    return lambda x: at_zero(x) if abs(x) < limit else function(x)


def odd_tail(function: Function, third: mp.mpf, fifth: mp.mpf) -> Function:
    """(f(s)/s - 1)/s^2 as a function of s^2, for odd f with f'(0) = 1."""

    def tail(square: mp.mpf) -> mp.mpf:
        s = mp.sqrt(square)
        return (function(s) / s - 1) / square

    return series(tail, lambda square: third + fifth * square)


def both(
    table: str, function: Function, low: object, high: object, degrees: tuple[int, int], weight: Function
) -> list[Fit]:
    """The same fit for float32 and float64."""
    return [
        Fit(table, short, function, mp.mpf(low), mp.mpf(high), degree, weight)
        for short, degree in zip(("f32", "f64"), degrees, strict=True)
    ]
