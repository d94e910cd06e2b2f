"""However a step calls what reads state, what that reads is followed: every form of call, of everything callable."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj

NAMED, NOTHING, SIZE, SPREAD = {"k": 2.0}, dict[str, float](), {"size": 2}, {"scale": 2.0, "size": 2}
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "positional": lambda f, x: f(x, 2.0),
    "keyword": lambda f, x: f(x, k=2.0),
    "sequence": lambda f, x: f(*(x, 2.0)),
    "list": lambda f, x: f(*[x, 2.0]),
    "made by a generator": lambda f, x: f(*(v for v in (x, 2.0))),
    "mapping": lambda f, x: f(**dict(NAMED, x=x)),
    "both": lambda f, x: f(*(x,), **NAMED),
    "some and a sequence": lambda f, x: f(x, *(2.0,)),
    "some and a mapping": lambda f, x: f(x, **NAMED),
    "two sequences": lambda f, x: f(*(x,), *(2.0,)),
    "keyword and a mapping": lambda f, x: f(x=x, **NAMED),
    "no keywords at all": lambda f, x: f(x, 2.0, **NOTHING),
    "in a comprehension": lambda f, x: [f(*pair) for pair in [(x, 2.0)]].pop(),
    "in a generator": lambda f, x: sum(f(*pair) for pair in [(x, 2.0)]),
    "by map": lambda f, x: next(iter(map(f, [x], [2.0]))),
    "in a lambda": lambda f, x: (lambda *given, **named: f(*given, **named))(x, k=2.0),
}


class _Callable:
    def __init__(self, state: Any) -> None:
        self.state = state

    def __call__(self, x: Any, k: float = 1.0) -> Any:
        return x * self.state.scale + k

    def method(self, x: Any, k: float = 1.0) -> Any:
        return x * self.state.scale + k


def _function(state: Any) -> Callable[..., Any]:
    def found(x: Any, k: float = 1.0) -> Any:
        return x * state.scale + k

    return found


MADE: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "function": _function,
    "object": _Callable,
    "method": lambda state: _Callable(state).method,
    "partial": lambda state: functools.partial(_function(state)),
    "draws": lambda state: lambda x, k=1.0: x * state.draw() + k,
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_call_reads_is_followed(form: str, made: str) -> None:
    def run(jit: Any) -> list[Any]:
        state = SimpleNamespace(scale=1.0, draw=random.Random(3).random)
        called, call = MADE[made](state), FORMS[form]
        step = jit(lambda x: call(called, x))
        found = []
        for k in range(4):
            state.scale = 1.0 + k // 2
            found.append(step(aj.ones(2)).tolist())
        return found

    assert np.allclose(run(aj.jit), run(lambda function: function), rtol=1e-6)


@pytest.mark.parametrize("form", ["positional", "sequence", "some and a mapping", "both"])
def test_draws_of_libraries_are_followed_however_they_are_called(form: str) -> None:
    def run(jit: Any) -> list[Any]:
        rng = np.random.default_rng(4)
        calls = {
            "positional": lambda: rng.normal(0.0, 2.0, 2),
            "sequence": lambda: rng.normal(*(0.0, 2.0, 2)),
            "some and a mapping": lambda: rng.normal(0.0, **SPREAD),
            "both": lambda: rng.normal(*(0.0, 2.0), **SIZE),
        }
        step = jit(lambda x: x + aj.from_numpy(calls[form]()))
        return [step(aj.zeros(2, dtype=aj.float64)).tolist() for _ in range(4)]

    assert run(aj.jit) == run(lambda function: function)
