"""Attributes that users give to tensors: a step reads, writes and deletes them as eager mode does.

Law: whatever tensor has them (an argument, a parameter outside, what the step makes), however they are asked for, and
whatever becomes of them between calls, the results and the attributes left are those of eager mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit import nn


class Marked(aj.Tensor):
    rate = 2.0

    @property
    def double(self) -> Any:
        return 2 * getattr(self, "scale", 1)


VALUES: dict[str, Callable[[int], Any]] = {
    "absent": lambda k: None,
    "one number": lambda k: 3,
    "numbers": lambda k: 1.5 * k,
    "texts": lambda k: "ab"[k % 2],
    "pairs": lambda k: (k // 2, "a"),
    "sometimes": lambda k: 2 if k % 2 else None,
    "tensors": lambda k: aj.tensor([1.0 + k, 2.0]),
    "dictionaries": lambda k: {"n": k},
}


def _text(x: Any, value: Any) -> Any:
    if isinstance(value, aj.Tensor | int | float):
        return x * value
    return x * (2 if value == "a" else 3 if isinstance(value, tuple) and value[0] else 4)


def _mutated(x: Any) -> Any:
    if isinstance(getattr(x, "scale", None), dict):
        x.scale["n"] += 1
        return x * x.scale["n"]
    return x


def _counted(x: Any) -> Any:
    x.seen = getattr(x, "seen", 0) + 1
    return x * x.seen


def _written(x: Any) -> Any:
    x.mean_of, x.scale, x.named = x.mean(), 5, {"n": x.sum()}
    return x * x.scale + x.mean_of


def _deleted(x: Any) -> Any:
    if hasattr(x, "scale"):
        del x.scale
    return x + hasattr(x, "scale")


def _carried(x: Any) -> Any:
    y = x * 2
    y.scale, y.origin = getattr(x, "scale", "none"), x
    y.part = x.sum()
    y.part.note = "sum"
    return y


def _loud(x: Any) -> Any:
    try:
        return x * len(x.scale)
    except (AttributeError, TypeError) as error:
        return type(error).__name__


STEPS: dict[str, Callable[[Any], Any]] = {
    "x.scale": lambda x: _text(x, x.scale) if hasattr(x, "scale") else x,
    "getattr": lambda x: _text(x, getattr(x, "scale", 1)),
    "vars": lambda x: _text(x, vars(x).get("scale", 1)),
    "__dict__": lambda x: _text(x, x.__dict__.get("scale", 1)),
    "dir": lambda x: x * ("scale" in dir(x)),
    "by error": _loud,
    "mutated": _mutated,
    "counted": _counted,
    "written": _written,
    "setattr": lambda x: setattr(x, "scale", 7) or x * x.scale,
    "through vars": lambda x: vars(x).update(scale=7) or x * 1,
    "deleted": _deleted,
    "carried over": _carried,
    "given back": lambda x: x,
    "of the class": lambda x: x * getattr(x, "rate", 1),
    "by a property": lambda x: x * x.double if isinstance(getattr(x, "double", None), int | float) else x,
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda t: t,
    "parameter": nn.Parameter,
    "of a class": lambda t: t.as_subclass(Marked),
}


def told(value: Any, depth: int = 3) -> Any:
    if isinstance(value, aj.Tensor):
        held = {k: told(v, depth - 1) for k, v in sorted(vars(value).items())} if depth else {}
        return value.detach().numpy().tolist(), held
    if isinstance(value, dict):
        return {k: told(v, depth - 1) for k, v in value.items()}
    return value


def seen(jit: Callable[[Any], Any], step: str, value: str, kind: str, is_given: bool, is_fresh: bool) -> list[Any]:
    held: list[Any] = [None]

    @jit
    def called(x: Any) -> Any:
        return STEPS[step](held[0] if x is None else x)

    found: list[Any] = []
    x = KINDS[kind](aj.tensor([1.0, 2.0]))
    for k in range(5):
        if is_fresh:
            x = KINDS[kind](aj.tensor([1.0 + k, 2.0]))
        new = VALUES[value](k)
        if new is not None:
            x.scale = new
        elif hasattr(x, "scale") and k % 2:
            del x.scale
        held[0] = x
        found.append(told(called(x if is_given else None)))
        found.append(told(x))
    return found


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("step", STEPS)
def test_attributes_are_read_and_left_as_eagerly(step: str, value: str) -> None:
    for kind in KINDS if value in ("numbers", "sometimes") else ("tensor",):
        for is_fresh in (True, False):
            expected = seen(lambda f: f, step, value, kind, True, is_fresh)
            assert seen(aj.jit, step, value, kind, True, is_fresh) == expected, (kind, is_fresh)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS)
def test_attributes_of_tensors_outside(step: str, kind: str) -> None:
    for value in ("numbers", "sometimes", "tensors"):
        expected = seen(lambda f: f, step, value, kind, False, False)
        assert seen(aj.jit, step, value, kind, False, False) == expected, value


def test_what_the_step_does_not_ask_for_costs_nothing() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        return x * 2

    for k in range(4):
        x = aj.ones(2)
        x.scale = k
        step(x)
    assert step.stats()["captures"] == 1
    assert step.stats()["native_calls"] == 3


def test_a_text_that_comes_back_is_captured_once() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        return x * 2 if getattr(x, "scale", "") == "a" else x

    found = []
    for text in "abababab":
        x = aj.ones(1)
        x.scale = text
        found.append(step(x).item())
    assert found == [2.0, 1.0] * 4
    assert step.stats()["captures"] == 2


def test_a_tensor_asked_for_runs_line_by_line_and_says_so() -> None:
    @aj.jit
    def step(x: Any) -> Any:
        return x * x.mask

    for k in range(3):
        x = aj.ones(2)
        x.mask = aj.tensor([float(k), 1.0])
        assert step(x).tolist() == [float(k), 1.0]
    assert "attribute 'mask' of an argument" in step.explain()
