"""Floats that change from call to call: what Python computes of them, at hard points too, which errors it raises."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.jit.traced_math import RULES

LARGE = 1e300  # the powers of which are larger than any float: Python raises an error
VALUES = [
    0.5,
    0.25,
    0.75,
    1.0,
    2.0,
    -0.5,
    -1.0,
    0.0,
    -0.0,
    3.7,
    -2.5,
    1e-300,
    700.0,
    720.0,
    -750.0,
    LARGE,
    math.inf,
    -math.inf,
    math.nan,
]
OPERATORS = {name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")}
QUESTIONS: dict[str, Callable[[float], Any]] = {
    **{f"math.{name}": getattr(math, name) for name in RULES},
    **{
        f"np.{name}": getattr(np, name) for name in ("sin", "sqrt", "log", "exp", "tanh", "absolute", "arctan", "expm1")
    },
    **{f"{name} 2": lambda v, f=f: f(v, 2) for name, f in OPERATORS.items()},
    **{f"{name} -3": lambda v, f=f: f(v, -3) for name, f in OPERATORS.items()},
    **{f"2.5 {name}": lambda v, f=f: f(2.5, v) for name, f in OPERATORS.items()},
    **{f"v {name} v + 1": lambda v, f=f: f(v, v + 1) for name, f in OPERATORS.items()},
    "neg": lambda v: -v,
    "pos": lambda v: +v,
    "abs": abs,
    "square": lambda v: v**2,
    "cube": lambda v: v**3,
    "root": lambda v: v**0.5,
    "reciprocal": lambda v: v**-1,
    "power of 2": lambda v: 2.0**v,
    "math.pow": lambda v: math.pow(v, 3),
    "math.log of base": lambda v: math.log(v, 3.0),
    "math.log2": math.log2,
    "math.log10": math.log10,
    "math.hypot": lambda v: math.hypot(v, 1.0),
    "math.atan2": lambda v: math.atan2(v, 2.0),
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.trunc": math.trunc,
    "math.fmod": lambda v: math.fmod(v, 1.5),
    "math.copysign": lambda v: math.copysign(2.0, v),
    "math.isnan": lambda v: 1.0 if math.isnan(v) else 2.0,
    "math.isfinite": lambda v: 1.0 if math.isfinite(v) else 2.0,
    "int": int,
    "round": round,
    "round to 1": lambda v: round(v, 1),
    "divmod": lambda v: divmod(v, 1.5)[0] + divmod(v, 1.5)[1],
    "is_integer": lambda v: 1.0 if v.is_integer() else 2.0,
    "bool": lambda v: 1.0 if v else 2.0,
    "less": lambda v: v if v < 1 else 1 - v,
    "equal": lambda v: 1.0 if v == 0.5 else 3.0,
    "not equal": lambda v: 1.0 if v != 0.5 else 3.0,
    "between": lambda v: 1.0 if -1 <= v <= 0.5 else 3.0,
    "min": lambda v: min(v, 0.6),
    "max": lambda v: max(v, 0.6, 0.3),
    "sum": lambda v: sum([v, v * 2, 1.0]),
    "text": lambda v: len(f"{v:.2f}"),
    "hash": lambda v: {0.5: 1.0, 2.0: 3.0}.get(v, 4.0),
    "safe root": lambda v: math.sqrt(1 - math.tanh(v) ** 2),
    "decay": lambda v: 1 - math.exp(-abs(v)),
    "cosine schedule": lambda v: 0.5 * (1 + math.cos(math.pi * v / 10)),
}


def outcome(function: Callable[[], Any]) -> Any:
    """The value or the kind of the error."""
    try:
        return function().item()
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        return type(error)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, at infinities
def test_floats_of_python_are_followed(name: str) -> None:
    question = QUESTIONS[name]

    def function(x: aj.Tensor, v: float) -> aj.Tensor:
        return x * question(v)

    compiled = aj.jit(function)
    x = aj.ones(1, dtype=aj.float64)
    for v in (*VALUES, *VALUES[:9]):
        expected = outcome(lambda v=v: function(x, v))
        found = outcome(lambda v=v: compiled(x, v))
        same = (
            found == expected
            if isinstance(expected, type)
            else found == pytest.approx(expected, rel=1e-12, nan_ok=True)
        )
        assert same and str(found)[:1] == str(expected)[:1], (name, v, found, expected)  # the sign of zero, too
