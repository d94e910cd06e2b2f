"""Reference rows of anomaly mode: what it reports, in which order, and how it is switched."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import Function, set_detect_anomaly
from tests.autograd.modes import Mode


def leaf(*values: float) -> aj.Tensor:
    return aj.tensor(values, dtype=aj.float64, requires_grad=True)


class MyFunc(Function):
    @staticmethod
    def forward(ctx: Any, inp: aj.Tensor) -> aj.Tensor:
        return inp.clone()

    @staticmethod
    def backward(ctx: Any, g: aj.Tensor) -> aj.Tensor:
        raise RuntimeError("Some error in backward")


def run_fn(a: aj.Tensor) -> aj.Tensor:
    out = MyFunc.apply(a)
    return out.sum()


@contextlib.contextmanager
def detecting(check_nan: bool = True) -> Iterator[list[warnings.WarningMessage]]:
    """Anomaly mode on, its warnings collected."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with set_detect_anomaly(True, check_nan):
            yield found


def test_S3_107_backward_explains_exceptions_and_refuses_nan(mode: Mode) -> None:
    def in_a_loop(x: aj.Tensor) -> None:
        for _ in range(3):
            x = x.sqrt() - 1.0
        x.sum().backward()

    class Broken(Function):
        @staticmethod
        def forward(ctx: Any, x: aj.Tensor) -> aj.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, y_bar: aj.Tensor) -> aj.Tensor:
            return y_bar * float("nan")

    step, custom = mode(in_a_loop), mode(lambda x: Broken.apply(x).sum().backward())
    with detecting() as found:
        with pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan values in its 0th output"):
            step(leaf(2.0))
        with pytest.raises(RuntimeError, match="Function 'BrokenBackward' returned nan values in its 0th output"):
            custom(leaf(1.0))
    texts = [str(w.message) for w in found]
    assert "x = x.sqrt() - 1.0" in texts[0]
    assert "Broken.apply(x)" in texts[1]
    assert all(__file__ in text for text in texts)


def test_S3_108_without_the_mode_the_exception_is_unchanged(mode: Mode) -> None:
    with pytest.raises(RuntimeError) as raised:
        mode(lambda x: run_fn(x).backward())(leaf(1.0))
    assert type(raised.value) is RuntimeError
    assert traceback.format_exception_only(raised.value)[-1] == "RuntimeError: Some error in backward\n"


PROGRAM = """
import sys
import autojit as aj
from autojit import autograd

class MyFunc(autograd.Function):
    @staticmethod
    def forward(ctx, inp):
        return inp.clone()
    @staticmethod
    def backward(ctx, gO):
        raise RuntimeError("Some error in backward")

def run_fn(a):
    out = MyFunc.apply(a)
    return out.sum()

def step(inp):
    out = run_fn(inp)
    out.backward()

if sys.argv[1] == "jit":
    step = aj.jit(step)
with autograd.detect_anomaly():
    step(aj.rand(10, 10, requires_grad=True))
"""


def test_S3_109_the_forward_traceback_comes_first_and_shows_the_users_lines(mode: Mode, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = [str(Path(__file__).resolve().parents[2] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found), "PYTHONWARNINGS": ""}
    command = [sys.executable, str(program), mode.name]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    places = [
        text.index(part)
        for part in (
            "Anomaly Detection has been enabled",
            "Error detected in MyFuncBackward. Traceback of forward call that caused the error:",
            "out = run_fn(inp)",
            "out = MyFunc.apply(a)",
            "Traceback (most recent call last):",
            "RuntimeError: Some error in backward",
        )
    ]
    assert places == sorted(places)
    assert "autojit/autograd/function.py" not in text[places[1] : places[4]]


def test_S3_111_set_detect_anomaly_is_a_function_and_a_context_manager(mode: Mode) -> None:
    def flags() -> tuple[bool, bool]:
        return aj.is_anomaly_enabled(), aj.is_anomaly_check_nan_enabled()

    assert flags() == (False, True)
    with set_detect_anomaly(True):
        assert flags() == (True, True)
        with set_detect_anomaly(True, check_nan=False):
            assert flags() == (True, False)
        with set_detect_anomaly(False):
            assert not aj.is_anomaly_enabled()
        assert flags() == (True, True)
    assert flags() == (False, True)
    set_detect_anomaly(True)
    try:
        assert aj.is_anomaly_enabled()
        other: list[bool] = []
        thread = threading.Thread(target=lambda: other.append(aj.is_anomaly_enabled()))
        thread.start()
        thread.join()
        assert other == [False]
    finally:
        set_detect_anomaly(False)
    assert not aj.is_anomaly_enabled()
    with pytest.raises(ValueError, match="left"), set_detect_anomaly(True):
        raise ValueError("left by an exception")
    assert not aj.is_anomaly_enabled()
    with pytest.raises(TypeError):
        set_detect_anomaly(1)
    run = mode(lambda x: aj.autograd.grad(x.sqrt().sum(), x)[0])
    for mode_is_on in (False, True, False, True):
        x = leaf(-1.0)
        with detecting() if mode_is_on else contextlib.nullcontext():
            if mode_is_on:
                with pytest.raises(RuntimeError, match="nan values"):
                    run(x)
            else:
                assert np.isnan(run(x).numpy()).all()
