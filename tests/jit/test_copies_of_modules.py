"""Layers that a step copies or makes and lets out: every call makes others, with the values of that call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn, optim


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Linear(2, 2)
        self.b.weight = self.a.weight
        self.kept = nn.Buffer(aj.ones(2), persistent=False)
        self.register_buffer("mean", aj.zeros(2))
        self.calls, self.log = 0, [aj.zeros(1)]

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.mean += x.mean(0).detach()
        return self.b(self.a(x)) * self.kept


TRAINS = "loss = model(x).sum(); loss.backward(); opt.step(); opt.zero_grad(); "
STATEMENTS = (
    "at.copy = copy.deepcopy(model)",
    "at.copy = copy.copy(model)",
    "shown = copy.deepcopy(model)",
    TRAINS + "at.copy = copy.deepcopy(model)",
    TRAINS + "at.copy = copy.deepcopy(model); shown = at.copy(x)",
    "model(x).sum().backward(); at.copy = copy.deepcopy(model)",
    "at.copy = copy.deepcopy(model).eval().requires_grad_(False)",
    "at.copy = nn.Sequential(copy.deepcopy(model), nn.Tanh())",
    "at.copy = [copy.deepcopy(model), model]",
    "at.copy = SimpleNamespace(model=copy.deepcopy(model), loss=model(x).sum().item())",
    "at.copy = copy.deepcopy(model) if x.sum() > 5 else at.copy",
    "made = copy.deepcopy(model); made.mean.add_(x.sum()); made.extra = x * 2; at.copy = made; shown = made(x)",
    "made = copy.copy(model); made.extra = 5; shown = [hasattr(model, 'extra'), made(x)]",
    "made = nn.Linear(2, 1); at.copy = made; shown = made(x)",
    "at.copy = at.copy or nn.Linear(2, 1); shown = at.copy(x)",
    "at.copy = copy.deepcopy(model.state_dict())",
    "at.copy = copy.deepcopy(model.mean)",
    "at.copy = copy.deepcopy(model.a.weight)",
    "at.copy = copy.deepcopy((x, [x], x * 2))",
    "at.copy = copy.deepcopy(at.table); at.copy['a'].add_(1.0)",
    "at.copy = copy.copy(at.table); at.copy['new'] = x * 2",
    TRAINS + "at.copy = copy.deepcopy(opt.state_dict())",
)


def _shown(value: Any) -> Any:
    if isinstance(value, aj.Tensor):
        grad = value.grad.tolist() if value.is_leaf and value.grad is not None else None
        return type(value), value.detach().tolist(), value.requires_grad, value.is_leaf, grad
    if isinstance(value, nn.Module):
        parts = [(name, _shown(t)) for name, t in (*value.named_parameters(), *value.named_buffers())]
        others = [(k, _shown(v)) for k, v in vars(value).items() if k in ("calls", "log", "extra", "training")]
        return type(value), parts, others, list(value.state_dict()), [name for name, _ in value.named_modules()]
    if isinstance(value, dict):
        return [(key, _shown(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return [type(value), *map(_shown, value)]
    return _shown(vars(value)) if isinstance(value, SimpleNamespace) else value


def _program(statements: str, jit: Callable[[Any], Any]) -> list[Any]:
    aj.manual_seed(0)
    model = Tied()
    at = SimpleNamespace(copy=None, table={"a": aj.ones(2), "n": 1})
    names: dict[str, Any] = {"model": model, "opt": optim.Adam(model.parameters(), lr=0.1), "at": at, "copy": copy}
    names |= {"nn": nn, "SimpleNamespace": SimpleNamespace, "aj": aj}
    lines = "".join(f"    {line}\n" for line in statements.split("; "))
    exec(f"def step(x):\n    shown = None\n{lines}    return shown", names)
    step, found, kept = jit(names["step"]), [], []
    for k in range(5):
        found.append(_shown(step(aj.ones(3, 2) * k)))
        kept.append(at.copy)
        found += [_shown(part) for part in (model, *kept)]  # what is changed later leaves copies alone
        if isinstance(at.copy, nn.Module):
            found.append(_shown(at.copy(aj.ones(3, 2))))
            at.copy(aj.ones(3, 2)).sum().backward() if any(p.requires_grad for p in at.copy.parameters()) else None
            found.append(_shown(at.copy))
            tied = dict(at.copy.named_parameters(remove_duplicate=False))
            found.append(tied["a.weight"] is tied["b.weight"] if "a.weight" in tied else None)
        with aj.no_grad():
            model.a.weight.mul_(1.5)
        if k == 2:
            model.log.append(aj.ones(1))
    return found


def _same(a: Any, b: Any) -> None:
    if isinstance(a, list | tuple):
        assert type(a) is type(b) and len(a) == len(b), (a, b)
        for x, y in zip(a, b, strict=True):
            _same(x, y)
    else:
        assert a == pytest.approx(b, rel=1e-4, abs=2e-4) if isinstance(a, float) else a == b


@pytest.mark.parametrize("statements", STATEMENTS)
def test_a_copy_holds_what_eager_modes_copy_holds(statements: str) -> None:
    """The copy had stand-ins of the capture in it, which have no values, and was one object for all calls."""
    _same(_program(statements, aj.jit), _program(statements, lambda f: f))


class Late(nn.Module):
    """It makes its layers at the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.first = None
        self.parts = nn.ModuleList()

    def forward(self, x: Any) -> Any:
        if self.first is None:
            self.first = nn.Linear(x.shape[1], 3)
            self.norm = nn.BatchNorm1d(3).eval()
        if len(self.parts) < 2:
            self.parts.append(nn.Linear(3, 3))
        x = self.norm(self.first(x))
        for part in self.parts:
            x = part(x)
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(aj.ones(3))
        return x * self.scale


@pytest.mark.parametrize("inside", [False, True])
def test_layers_that_the_first_calls_make_are_trained_by_later_ones(inside: bool) -> None:
    """They kept stand-ins of the capture, or got no gradients."""

    def program(jit: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        aj.manual_seed(0)
        model = Late()

        def step(x: Any) -> Any:
            y = model(x)
            if inside:
                (y * y).mean().backward()
                return y.detach()
            return y

        run, found = jit(step), []
        for _ in range(6):
            y = run(aj.rand(4, 3))
            if not inside:
                (y * y).mean().backward()
            found += [_shown(y.detach()), _shown(model)]
            with aj.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p -= 0.1 * p.grad
                        p.grad = None
        return found, run

    compiled, run = program(aj.jit)
    _same(compiled, program(lambda f: f)[0])
    assert 0 < run.stats()["captures"] <= 3
    assert "puts layers into a module" in run.explain()
