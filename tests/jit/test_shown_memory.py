"""Tensors that a step makes on memory from outside (``detach``, ``data``): new at every call, on its memory then."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj
from autojit import nn

Show = Callable[[Any], Any]

FORMS: dict[str, Show] = {
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "data of a detached one": lambda t: t.detach().data,
    "detached data": lambda t: t.data.detach(),
    "a part, detached": lambda t: t[1:].detach(),
    "a part of data": lambda t: t.data[1:],
    "a part of a detached one": lambda t: t.detach()[1:],
    "a view of a part": lambda t: t.detach()[1:].T,
    "a leaf": lambda t: t.detach().requires_grad_(),
    "numbers": lambda t: t.detach() * 2,
    "a norm": lambda t: t.data.norm().round(decimals=3),
}
SOURCES: dict[str, Show] = {
    "a parameter": lambda at: at.model.weight,
    "a gradient": lambda at: at.model.weight.grad,
    "a buffer": lambda at: at.norm.running_mean,
    "a tensor": lambda at: at.tensor,
    "an attribute": lambda at: at.replaced,
}


def _outside() -> Any:
    at = SimpleNamespace(model=nn.Linear(2, 2), norm=nn.BatchNorm1d(2), tensor=aj.zeros(3, 2), replaced=None)
    at.norm.running_mean = aj.zeros(2, 2)
    return at


def _change(at: Any, k: int) -> None:
    """Other memory, another tensor, other values, as users give them between calls."""
    at.model.weight.data = aj.full((2, 2), 1.0 + k)
    at.model.weight.grad = aj.full((2, 2), 2.0 + k)
    at.norm.running_mean = aj.full((2, 2), 3.0 + k)
    at.tensor.fill_(4 + k)
    at.replaced = aj.full((2, 2), 5.0 + k)


def _program(source: Show, form: Show, jit: Callable[[Any], Any]) -> list[Any]:
    at = _outside()
    step = jit(lambda: form(source(at)))
    found: list[Any] = []
    kept: list[Any] = []
    for k in range(4):
        _change(at, k)
        shown = step()
        found += [shown.tolist(), shown.requires_grad, shown.is_leaf, shown.stride(), hasattr(shown, "tag")]
        found.append([shown is other for other in kept])
        kept.append(shown)
        shown.tag = k
        with aj.no_grad():
            version = shown._version
            shown.add_(1)
        found += [shown._version - version, source(at).tolist()]
        if shown.is_leaf and not shown.requires_grad:
            shown.requires_grad_()
            shown.data = aj.ones(5)
    return found


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", FORMS)
def test_memory_from_outside_is_shown_as_it_is_at_every_call(form: str, source: str) -> None:
    assert _program(SOURCES[source], FORMS[form], aj.jit) == _program(SOURCES[source], FORMS[form], lambda f: f)


@pytest.mark.parametrize("form", ["detach", "data", "a part of data", "a part of a detached one"])
def test_what_is_shown_counts_its_changes_with_whom_it_does_in_eager_mode(form: str) -> None:
    def program(jit: Callable[[Any], Any]) -> list[Any]:
        t = aj.zeros(3, 2)
        step = jit(lambda: FORMS[form](t))
        found: list[Any] = []
        for _ in range(3):
            shown = step()
            found.append((shown._version, t._version))
            shown.add_(1)
            found.append((shown._version, t._version))
        return found

    assert program(aj.jit) == program(lambda f: f)


@pytest.mark.parametrize("change", ["mul_", "zero_"])
@pytest.mark.parametrize("form", ["detach", "data"])
def test_a_change_of_what_shows_a_replaced_memory_is_one_of_that(form: str, change: str) -> None:
    def program(jit: Callable[[Any], Any]) -> list[Any]:
        at = _outside()

        @jit
        def step() -> Any:
            for t in (at.model.weight, at.model.weight.grad):
                shown = FORMS[form](t)
                getattr(shown, change)(*([3] if change == "mul_" else []))
            return at.model.weight.sum().detach()

        found: list[Any] = []
        for k in range(4):
            _change(at, k)
            found += [step().item(), at.model.weight.tolist(), at.model.weight.grad.tolist()]
        return found

    assert program(aj.jit) == program(lambda f: f)
