"""Ctrl-C leaves parameters as before the step or as after it, and the step can be called again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from tests.acceptance.processes import environment_of, run_python


def test_no_interrupt_leaves_a_step_half_done(tmp_path: Path) -> None:
    assert "interrupts" in run_python(["-m", "tests.acceptance.interrupted"], tmp_path / "cache").stdout


CTRL_C = """
import numpy as np
import autojit as aj
a, b = aj.zeros(1000), aj.zeros(1000)
def step(x):
    for _ in range(10):
        x = aj.sin(x)
    one = x.sum() * 0 + 1
    a.add_(one)
    b.add_(one)
step, x = aj.jit(step), aj.ones(500_000)
step(x)
try:
    print("running", flush=True)
    while True:
        step(x)
except KeyboardInterrupt:
    values = {*np.unique(np.array(a)), *np.unique(np.array(b))}
    print("interrupted", len(values))
"""


def test_ctrl_c_from_the_terminal_ends_the_loop(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CTRL_C]
    with subprocess.Popen(command, env=environment_of(tmp_path / "cache"), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "running\n"
            time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            output, _ = child.communicate(timeout=600)
        finally:
            child.kill()
    assert output == "interrupted 1\n"
    assert child.returncode == 0


def test_an_exception_while_capturing_leaves_everything_as_it_was() -> None:
    weight = aj.tensor(np.ones(3, np.float32)).requires_grad_(True)
    fails = [True]

    def step(x: aj.Tensor) -> aj.Tensor:
        loss = (weight * x).sum()
        loss.backward()
        with aj.no_grad():
            weight.sub_(weight.grad)
        if fails[0]:
            raise KeyboardInterrupt
        return loss.detach()

    jitted, x = aj.jit(step), aj.tensor([1.0, 2.0, 3.0])
    version = weight._version
    with pytest.raises(KeyboardInterrupt):
        jitted(x)
    np.testing.assert_array_equal(np.array(weight.detach()), np.ones(3))
    assert weight.grad is None
    assert weight.is_leaf
    assert weight._version == version
    fails[0] = False
    assert float(jitted(x)) == 6.0
    np.testing.assert_array_equal(np.array(weight.detach()), [0.0, -1.0, -2.0])
