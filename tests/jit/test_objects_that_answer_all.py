"""Objects that answer to every name, or raise anything at all, are what they are: nothing is asked of them by name."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit import nn


class Answers:
    """As a logger's stand-in: every attribute is there, and can be called."""

    factor = 2.0

    def __getattr__(self, name: str) -> Any:
        return Answers()

    def __call__(self, *given: Any, **named: Any) -> Any:
        return Answers()


class RaisesKey:
    factor = 2.0

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class RaisesAnything:
    factor = 2.0

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize("kind", [Answers, RaisesKey, RaisesAnything])
def test_steps_take_hold_and_return_them(kind: type[Any]) -> None:
    thing = kind()

    class Holding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = thing

        def forward(self, x: Any) -> Any:
            return x * self.log.factor

    x = aj.ones(2)
    for _ in range(2):
        assert aj.equal(aj.jit(lambda x: x * thing.factor)(x), 2 * x)
        assert aj.equal(aj.jit(lambda x, p: x * p.factor)(x, thing), 2 * x)
        assert aj.jit(lambda x: (x, thing))(x)[1] is thing
        assert aj.equal(aj.jit(Holding())(x), 2 * x)


@pytest.mark.parametrize("kind", [Answers, RaisesKey, RaisesAnything])
def test_what_is_no_number_and_holds_none_makes_no_tensor(kind: type[Any]) -> None:
    for make in (aj.tensor, aj.as_tensor):
        with pytest.raises(RuntimeError, match=f"Could not infer dtype of {kind.__name__}"):
            make(kind())
