"""Objects that answer to every name, or raise anything at all, are what they are: nothing is asked of them by name."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable
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


@pytest.mark.parametrize("kind", [Answers, RaisesKey, RaisesAnything])
def test_one_that_can_be_called_is_compiled(kind: type[Any]) -> None:
    class Doubles(kind):  # type: ignore[misc]
        def __call__(self, x: Any) -> Any:
            return x * self.factor

    x = aj.ones(2)
    assert aj.equal(aj.jit(Doubles())(x), 2 * x)
    assert aj.equal(aj.func.vmap(Doubles())(x), 2 * x)
    assert aj.equal(aj.no_grad()(Doubles())(x), 2 * x)
    doubles = Doubles()
    w = aj.ones(2, requires_grad=True)
    w.register_hook(doubles)
    for _ in range(2):
        assert aj.equal(aj.jit(lambda x: doubles(x) + 1)(x), 2 * x + 1)
        assert aj.equal(aj.jit(lambda x: aj.autograd.grad((w * x).sum(), w)[0])(x), 2 * x)


class Plain:
    """Answers to no name."""


FORMS: list[Callable[[Any], tuple[Any, ...]]] = [
    lambda thing: (thing,),
    lambda thing: ([thing],),
    lambda thing: (aj.ones(2, 2), thing),
]
NAMESPACES: list[Any] = [aj, nn.functional, aj.linalg, aj.special, aj.fft, aj.func, aj.autograd, aj.masked]
SWITCHES = ("breakpoint", "compile", "manual_seed", "seed", "set_", "use_")  # what they set stays set


def _functions(space: Any) -> list[Any]:
    names = [name for name in getattr(space, "__all__", dir(space)) if not name.startswith(("_", *SWITCHES))]
    found = [getattr(space, name) for name in names]
    return [f for f in found if inspect.isfunction(f) and f.__module__.startswith("autojit")]


def _outcome(function: Any, given: tuple[Any, ...]) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            function(*given)
    except Exception as error:
        return type(error).__name__
    return "a result"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", NAMESPACES, ids=lambda space: space.__name__)
def test_a_public_function_takes_them_for_any_other_object(space: Any) -> None:
    """What a function does with an object that raises when it is asked is what it does with one that has no names at
    all, unless that is to ask for a name which such an object lacks.
    """
    different = []
    for function in _functions(space):
        for form in FORMS:
            expected = _outcome(function, form(Plain()))
            found = {_outcome(function, form(kind())) for kind in (RaisesKey, RaisesAnything)}
            if expected != "AttributeError" and found != {expected}:
                different.append((function.__name__, expected, found))
            if _outcome(function, form(Answers())) in ("AssertionError", "RecursionError", "KeyError", "IndexError"):
                different.append((function.__name__, expected, {"Answers"}))
    assert not different
