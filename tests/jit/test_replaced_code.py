"""Code of autojit itself and of libraries that is replaced: as in eager mode, and what is put there is observed."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.nn.functional as F
from autojit import distributions, nn, optim

SETTINGS = {"scale": 2.0}


def _scaled(*operands: Any, **options: Any) -> Any:
    """What everything is replaced by; it reads what changes."""
    tensor = next(x for x in operands if isinstance(x, aj.Tensor))
    return tensor * SETTINGS["scale"]


def _number(*operands: Any) -> float:
    return SETTINGS["scale"]


def _sgd_step(self: Any, closure: Any = None) -> None:
    with aj.no_grad():
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad * SETTINGS["scale"])


class Net(nn.Module):
    """A layer of the user's, with layers of autojit's inside."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.parts(x) + F.relu(x)


def _trained(at: Any, x: Any) -> Any:
    at.opt.zero_grad()
    loss = at.net(x).sum()
    loss.backward()
    at.opt.step()
    return loss


PLACES: dict[str, tuple[Any, str, Any, Callable[[Any, Any], Any]]] = {
    "a function": (F, "relu", _scaled, lambda at, x: F.relu(x)),
    "a function by its package": (F, "relu", _scaled, lambda at, x: aj.nn.functional.relu(x)),
    "a function of the package": (aj, "relu", _scaled, lambda at, x: aj.relu(x)),
    "a function within a layer": (F, "relu", _scaled, lambda at, x: at.net(x)),
    "a layer's forward": (nn.Linear, "forward", lambda self, x: _scaled(x), lambda at, x: at.net(x)),
    "a layer that is met alone": (nn.ReLU, "forward", lambda self, x: _scaled(x), lambda at, x: at.relu(x)),
    "every layer's call": (nn.Module, "__call__", lambda self, x: _scaled(x), lambda at, x: at.net(x)),
    "a name that a layer reads": (nn.Module, "added", 3.0, lambda at, x: x * getattr(at.net, "added", 1.0)),
    "a method": (aj.Tensor, "mean", _scaled, lambda at, x: x.mean()),
    "an operator": (aj.Tensor, "__mul__", lambda self, other: self + 1, lambda at, x: x * 3),
    "a parameter's method": (nn.Parameter, "twice", lambda self: _scaled(self), lambda at, x: (
        at.weight.twice() if hasattr(at.weight, "twice") else x.sum())),
    "an optimiser's step": (optim.SGD, "step", _sgd_step, _trained),
    "an optimiser's base": (optim.Optimizer, "zero_grad", lambda self, set_to_none=True: None, _trained),
    "a distribution": (distributions.Normal, "log_prob", lambda self, value: _scaled(value),
                       lambda at, x: distributions.Normal(x, 1.0).log_prob(x)),
    "a distribution outside": (distributions.Normal, "log_prob", lambda self, value: _scaled(value),
                               lambda at, x: at.prior.log_prob(x)),
    "math": (math, "sqrt", _number, lambda at, x: x * math.sqrt(4.0)),
    "a constant": (math, "pi", 3.0, lambda at, x: x * math.pi),
    "NumPy": (np, "sum", _number, lambda at, x: x * float(np.sum([1.0, 2.0]))),
    "Python": (statistics, "mean", _number, lambda at, x: x * statistics.mean([1.0, 2.0])),
    "an operator's function": (operator, "mul", _scaled, lambda at, x: operator.mul(x, 3.0)),
}  # fmt: skip


def _made() -> Any:
    aj.manual_seed(0)
    net = Net().double()
    weight = nn.Parameter(aj.ones(3, dtype=aj.float64))
    return SimpleNamespace(
        net=net,
        relu=nn.ReLU(),
        weight=weight,
        opt=optim.SGD(net.parameters(), 0.1),
        prior=distributions.Normal(0.0, 1.0),
    )


@pytest.mark.parametrize("when", ["between calls", "before the first call"])
@pytest.mark.parametrize("place", PLACES)
def test_code_that_is_replaced(place: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, name, value, program = PLACES[place]

    def shown(jit: Callable[[Any], Any]) -> list[Any]:
        at, found = _made(), []
        step = jit(lambda x: program(at, x))
        monkeypatch.setitem(SETTINGS, "scale", 2.0)
        with pytest.MonkeyPatch.context() as patch:
            for k in range(8):
                if k == (0 if when == "before the first call" else 2):
                    patch.setattr(holder, name, value, raising=False)
                if k == 4:
                    SETTINGS["scale"] = 5.0
                if k == 6:
                    patch.undo()
                found.append(step(aj.tensor([1.0, -2.0, 3.0], dtype=aj.float64) + k).detach().numpy())
                found += [p.detach().numpy().copy() for p in at.net.parameters()]
        return found

    with aj.no_grad() if "optimiser" not in place else aj.enable_grad():
        for compiled, eager in zip(shown(aj.jit), shown(lambda function: function), strict=True):
            np.testing.assert_allclose(compiled, eager, rtol=1e-12)


def test_code_that_is_put_back_needs_no_other_capture() -> None:
    step = aj.jit(lambda x: F.relu(x) + x.mean())
    step(aj.ones(3))
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(F, "relu", _scaled)
            patch.setattr(aj.Tensor, "mean", _scaled)
    assert step(aj.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert step.stats()["captures"] == 1


def test_a_step_may_replace_for_itself() -> None:
    def step(x: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(F, "relu", _scaled)
            inside = F.relu(x)
        return inside, F.relu(x)

    compiled = aj.jit(step)
    for _ in range(3):
        assert [t.tolist() for t in compiled(-aj.ones(2))] == [t.tolist() for t in step(-aj.ones(2))]
    assert F.relu is not _scaled


def test_modules_stay_modules() -> None:
    aj.jit(lambda x: x * 2)(aj.ones(2))
    assert isinstance(aj, ModuleType)
    assert repr(F).startswith("<module 'autojit.nn.functional' from ")
    aj.nn.functional.something_new = 1
    del aj.nn.functional.something_new
    assert not hasattr(F, "something_new")


def test_code_that_a_function_is_given_is_observed_by_later_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class is as it was; what an earlier capture has found out about its functions is not."""
    net, x = nn.Sequential(nn.ReLU()), aj.tensor([-1.0, 2.0])
    assert aj.jit(net)(x).tolist() == [0.0, 2.0]
    with pytest.MonkeyPatch.context() as patch:
        forward: Any = nn.ReLU.forward
        patch.setitem(forward.__globals__, "SETTINGS", SETTINGS)
        patch.setattr(forward, "__code__", (lambda self, x: x * SETTINGS["scale"]).__code__)
        step = aj.jit(lambda x: net(x))
        for scale in (2.0, 3.0):
            monkeypatch.setitem(SETTINGS, "scale", scale)
            assert step(x).tolist() == [-scale, 2 * scale]
    assert aj.jit(lambda x: net(x))(x).tolist() == [0.0, 2.0]
