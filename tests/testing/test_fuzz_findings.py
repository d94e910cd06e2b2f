"""Programs that the fuzzer found to differ, shrunk: eager and compiled runs agree on each, with passes and without."""

from __future__ import annotations

import pytest

from autojit.testing.fuzz.running import load
from autojit.testing.fuzz.showing import report
from autojit.testing.fuzz.verdicts import judge

HEAD = """
import array, collections, contextvars, types
import numpy as np
import autojit as aj
from autojit import nn
from autojit.nn import functional as F
from autojit.testing.fuzz import filled, sample
def program(jit, see):"""
FOUND = {
    "a transposed result keeps its strides (seed 1007)": """
    @jit
    def step(x, y):
        return y.mT, (x + 1).T
    see.call(step, sample(1, 7, 4), sample(5, 7, 4))
    see.call(step, sample(1, 3, 4), sample(5, 3, 4))
""",
    "contiguous of a transposed argument is a copy (seed 1001)": """
    @jit
    def step(x):
        x.contiguous().mul_(3)
        x.reshape(-1).add_(1)
    see.call(step, sample(1, 4, 5).T)
""",
    "memory of a result that is a view of an argument (seed 60006)": """
    @jit
    def step(x):
        return x[:2], x.T, x.contiguous()
    x = sample(1, 3, 4)
    r = see.call(step, x)
    r[0].add_(1)
    see.call(step, x)
""",
    "the state of an optimiser is cleared (seed 30060)": """
    w = sample(1, 3).requires_grad_()
    opt = aj.optim.Adagrad([w], lr=0.1)
    @jit
    def inner(x):
        opt.zero_grad()
        (w * x).sin().sum().backward()
        opt.step()
    step = jit(lambda x: inner(x))
    see.watch(w=lambda: w, opt=lambda: opt)
    see.call(step, sample(2, 3))
    see.call(step, sample(3, 3))
    opt.state.clear()
    see.call(step, sample(4, 3))
""",
    "a transform runs in inference mode (seed 30111)": """
    step = jit(lambda x: aj.func.vmap(aj.func.grad(lambda z: z.tanh().pow(2).sum()))(x))
    with aj.inference_mode():
        see.call(step, sample(1, 2, 4))
""",
    "a list is appended to while a transform reads its length (seed 40040)": """
    items = [1.0, 1.5]
    @jit
    def step(x):
        y = aj.func.vmap(lambda z: z * float(len(items)))(x)
        items.append(1.0)
        return y
    see.watch(items=lambda: items)
    see.call(step, sample(1, 2, 4))
    see.call(step, sample(1, 2, 4))
""",
    "a jitted module is a module (seed 70040)": """
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = jit(nn.Linear(4, 4))
        def forward(self, z):
            return self.part(z)
    net = filled(Outer(), 5)
    see.watch(net=lambda: net)
    see.call(jit(net), sample(1, 3, 4))
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_program_that_differed_agrees(name: str) -> None:
    verdict = judge(load(HEAD + FOUND[name], name), "float64", passes_off=True)
    assert verdict.kind == "agrees", report(verdict)
