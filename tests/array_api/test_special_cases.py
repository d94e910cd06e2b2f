"""The standard's tables of special cases, eager and compiled, and its laws of symmetry and "as if implemented as"."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import array_api as xp
from tests.array_api.special_cases import CLASSES, COMPLEX, REAL, REAL_PAIRS

TABLES = {"one": REAL, "two": REAL_PAIRS, "complex": COMPLEX}
CASES = [
    pytest.param(kind, name, dtype, id=f"{name}-{dtype}")
    for kind, table in TABLES.items()
    for name in table
    for dtype in (("complex64", "complex128") if kind == "complex" else ("float32", "float64"))
]
EPSILON = {"float32": 1e-6, "complex64": 1e-6, "float64": 1e-14, "complex128": 1e-14}
GRID = [z for a, b in product(CLASSES["any"], repeat=2) for z in [complex(a, b)]]


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def rows(table: str) -> Iterator[tuple[tuple[float, ...], list[str]]]:
    """Operands and the result's words, of every number of every class."""
    for row in table.replace("\n", " ").split(", "):
        operands, _, result = row.partition(" -> ")
        numbers = [CLASSES.get(word) or [float(word)] for word in operands.split()]
        for values in product(*numbers):
            yield values, result.split()


def agrees(found: float | bool, wanted: str, operands: tuple[float, ...], epsilon: float) -> bool:
    """Whether a result, or a part of one, is what a word says."""
    x, y = operands[0], operands[-1]
    if wanted in ("True", "False"):
        return str(bool(found)) == wanted
    if wanted == "nan":
        return math.isnan(found)
    if math.isnan(found):
        return False
    if wanted in ("positive", "negative"):
        return (math.copysign(1, found) < 0) == (wanted == "negative")
    if wanted in ("0", "oo"):
        return found == 0 if wanted == "0" else math.isinf(found)
    names = {"-0": -0.0, "x": x, "y": y, "|x|": abs(x), "-|x|": -abs(x), "|y|": abs(y), "|a|": abs(x), "|b|": abs(y)}
    value = names[wanted] if wanted in names else float(eval(wanted, {"pi": math.pi, "inf": math.inf}))
    if value == 0 or math.isinf(value):
        return found == value and math.copysign(1, found) == math.copysign(1, value)
    return abs(found - value) <= epsilon * abs(value)


def checked(kind: str, name: str, dtype: str, jit: bool = False) -> list[str]:
    """The rows of a function's table that do not hold."""
    cases = list(rows(TABLES[kind][name]))
    if kind == "complex":
        numbers = [np.array([complex(*values) for values, _ in cases], dtype)]
    else:
        numbers = [np.array(operand, dtype) for operand in zip(*(values for values, _ in cases), strict=True)]
    function = getattr(xp, name)
    found = (aj.jit(function) if jit else function)(*(aj.as_tensor(n) for n in numbers)).numpy()
    wrong = []
    for (operands, wanted), value in zip(cases, found.tolist(), strict=True):
        parts = (value.real, value.imag) if len(wanted) == 2 else (value,)
        rounded = tuple(float(np.array(x, "f4")) if "32" in dtype or "64" in dtype[7:] else x for x in operands)
        if not all(agrees(p, w, rounded, EPSILON[dtype]) for p, w in zip(parts, wanted, strict=True)):
            wrong.append(f"{name}({operands}) = {value}, not {' '.join(wanted)}")
    return wrong


@pytest.mark.parametrize(("kind", "name", "dtype"), CASES)
def test_special_cases_hold(kind: str, name: str, dtype: str) -> None:
    assert not checked(kind, name, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "dtype"), CASES)
def test_special_cases_hold_compiled(kind: str, name: str, dtype: str) -> None:
    assert not checked(kind, name, dtype, jit=True)


def same(found: Any, wanted: Any) -> bool:
    """Parts are both NaN, or equal to rounding; beside a NaN, the standard leaves the sign of the other part open."""
    a, b = (np.asarray(z) for z in (found, wanted))
    if np.iscomplexobj(a):
        unsigned = np.isnan(a)
        parts = [(np.where(unsigned, abs(x), x), np.where(unsigned, abs(y), y))
                 for x, y in ((a.real, b.real), (a.imag, b.imag))]  # fmt: skip
    else:
        parts = [(a, b)]
    return all(bool(np.isclose(x, y, rtol=1e-13, atol=0, equal_nan=True).all()) for x, y in parts)


def turned(z: Any, quarter: int = 1) -> Any:
    """``z * 1j`` (or ``z * -1j``) as the standard means it: parts change places, nothing is multiplied."""
    return aj.complex(-quarter * aj.imag(z), quarter * aj.real(z))


AS_IF = {
    "asin": lambda z: turned(xp.asinh(turned(z)), -1), "atan": lambda z: turned(xp.atanh(turned(z)), -1),
    "cos": lambda z: xp.cosh(turned(z)), "sin": lambda z: turned(xp.sinh(turned(z)), -1),
    "tan": lambda z: turned(xp.tanh(turned(z)), -1),
}  # fmt: skip


@pytest.mark.parametrize("name", AS_IF)
def test_circular_functions_are_hyperbolic_ones_turned(name: str) -> None:
    z = aj.tensor(GRID, dtype=aj.complex128)
    assert same(getattr(xp, name)(z), AS_IF[name](z))


@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "exp", "expm1", "log",
                                  "log1p", "log2", "log10", "sinh", "sqrt", "tanh"])  # fmt: skip
def test_conjugates_have_conjugate_values(name: str) -> None:
    z = aj.tensor(GRID, dtype=aj.complex128)
    function = getattr(xp, name)
    assert same(function(xp.conj(z)), xp.conj(function(z)))


@pytest.mark.parametrize(("name", "sign"), [("asinh", -1), ("atanh", -1), ("sinh", -1), ("tanh", -1), ("cosh", 1)])
def test_functions_are_odd_or_even(name: str, sign: int) -> None:
    function = getattr(xp, name)
    for values, dtype in ((GRID, aj.complex128), (CLASSES["any"], aj.float64)):
        z = aj.tensor(values, dtype=dtype)
        assert same(function(-z), function(z) if sign == 1 else -function(z))


def test_complex_sums_and_differences_are_by_part() -> None:
    z, w = (aj.tensor(v, dtype=aj.complex128) for v in (GRID, GRID[7:] + GRID[:7]))
    for function in (xp.add, xp.subtract):
        both = function(z, w)
        assert same(aj.real(both), function(aj.real(z), aj.real(w)))
        assert same(aj.imag(both), function(aj.imag(z), aj.imag(w)))
    assert same(xp.subtract(z, w), xp.add(z, -w))


def test_complex_numbers_are_equal_by_part() -> None:
    z, w = (aj.tensor(v, dtype=aj.complex128) for v in (GRID, GRID[9:] + GRID[:9]))
    for a, b in ((z, z), (z, w)):
        parts = (aj.real(a) == aj.real(b)) & (aj.imag(a) == aj.imag(b))
        assert bool((xp.equal(a, b) == parts).all()) and bool((xp.not_equal(a, b) == ~parts).all())


def test_clip_gives_nan_for_any_nan() -> None:
    nan, one = xp.asarray([math.nan, 2.0]), xp.asarray([1.0, 1.0])
    assert math.isnan(xp.clip(nan, 0.0, 1.0)[0]) and math.isnan(xp.clip(one, nan, one)[0])
    assert math.isnan(xp.clip(one, one, nan)[0]) and xp.clip(nan, 0.0, 1.0)[1] == 1
