"""Modern code means the same while an old Variable is alive."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autojit as aj
from autojit.compat import v0_3
from autojit.compat.v0_3 import Variable


class Few(aj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x + y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def test_too_few_gradients_are_an_error() -> None:
    alive = v0_3.Variable(aj.ones(2), requires_grad=True)
    x, y = aj.ones(2, requires_grad=True), aj.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Few.apply(x, y).sum().backward()
    del alive
    gc.collect()


def test_backward_of_a_variable_takes_the_old_name_of_the_vector() -> None:
    v = v0_3.Variable(aj.ones(2), requires_grad=True)
    (v * 2).backward(grad_variables=aj.tensor([1.0, 3.0]))
    assert v.grad.data.tolist() == [2.0, 6.0]
    with pytest.raises(TypeError):
        (v * 2).backward(aj.ones(2), grad_variables=aj.ones(2))
    del v
    gc.collect()


def test_what_a_capture_keeps_of_a_variable_does_not_stay_in_the_way() -> None:
    step = aj.jit(lambda v: (v * v).sum())
    step(Variable(aj.ones(2)))
    gc.collect()
    x = aj.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="create_graph=True"):
        (x * x).sum().backward(create_graph=True)
    assert not isinstance(x * x, Variable)
    assert x.grad.grad_fn.name() == "torch::autograd::CopyBackwards"
    x.grad = None
    assert isinstance(step(Variable(aj.ones(2))), Variable)


ENDING = """
import sys
import autojit as aj
from autojit.compat.v0_3 import Variable

kept = aj.jit(lambda v: v * 2)(Variable(aj.ones(2), requires_grad=True))
ring = [Variable(aj.ones(2), volatile=True)]
ring.append(ring)
for name, module in list(sys.modules.items()):  # which are emptied one by one, later ones first
    if name.startswith("autojit"):
        module.held_to_the_end = [Variable(aj.ones(2)) * 2, Variable(aj.ones(2), volatile=True)]
"""


def test_a_process_ends_in_silence_whatever_holds_its_last_variables() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    command = [sys.executable, "-c", ENDING]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
