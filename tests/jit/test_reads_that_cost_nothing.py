"""What a step reads costs no further capture, and no call through Python, as long as it is the same."""

from __future__ import annotations

import decimal
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

import autojit as aj
from autojit.core.config import config


def test_equal_values_of_the_standard_library_are_one_argument() -> None:
    step = aj.jit(lambda x, d: x * float(d))
    for _ in range(4):
        assert step(aj.ones(2), decimal.Decimal("2.5")).tolist() == [2.5, 2.5]
    assert step(aj.ones(2), decimal.Decimal("3.5")).tolist() == [3.5, 3.5]
    assert step.stats()["captures"] == 2


@pytest.mark.parametrize("read", [lambda: os.environ["AUTOJIT_PROBE"], lambda: os.getenv("AUTOJIT_PROBE")])
def test_the_environment_is_looked_at_by_native_code(read: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOJIT_PROBE", "2")
    step = aj.jit(lambda x: x * float(read()))
    for _ in range(4):
        assert step(aj.ones(2)).tolist() == [2.0, 2.0]
    assert step.stats()["python_calls"] == 1


SETTINGS = {"factor": 2.0}
W, V = aj.ones(2, 3), aj.ones(3, requires_grad=True)


def _changing(x: Any) -> Any:
    W.mul_(0.5)
    return x + W


STEPS: dict[str, Callable[[Any], Any]] = {
    "results alone": lambda x: x * 2,
    "several results": lambda x: (x * 2, x.sum()),
    "settings": lambda x: x * SETTINGS["factor"],
    "a tensor from outside": lambda x: x * V.detach() + W,
    "a tensor that is changed": _changing,
}


@pytest.mark.parametrize("function", STEPS.values(), ids=STEPS)
def test_a_call_by_native_code_runs_no_further_python(
    function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "check", False)  # checks are made by Python
    step, x, called = aj.jit(function), aj.ones(2, 3), []
    for _ in range(3):
        step(x)
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        step(x)
    finally:
        sys.setprofile(None)
    assert called == ["JitFunction.__call__"]  # which takes the call to native code
