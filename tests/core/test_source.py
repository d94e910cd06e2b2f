"""Source locations while a step is captured: the user's line, however it is looked for."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import pytest

import autojit as aj
from autojit import nn
from autojit.core import source
from autojit.tensor.state import state


class _Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LayerNorm(3)

    def forward(self, x: aj.Tensor) -> Any:
        return self.inner(x).exp() + 1  # a line of the user's inside a call of a module


def _lines(function: Any, *arguments: Any) -> dict[str, set[int]]:
    """The lines that a capture noted, by op."""
    found: dict[str, set[int]] = {}
    jitted = aj.jit(function)
    jitted(*arguments)
    for node in jitted.last_step().trace.builder.nodes:
        found.setdefault(node.op.name, set()).add(node.source.line)
    return found


def test_ops_inside_modules_have_the_users_innermost_line() -> None:
    model = nn.Sequential(nn.Linear(3, 3), _Mine())

    def step(x: aj.Tensor) -> Any:
        y = model(x)
        return y.sin()

    first = step.__code__.co_firstlineno
    inside = _Mine.forward.__code__.co_firstlineno + 1
    lines = _lines(step, aj.ones(2, 3))
    assert lines["matmul"] == {first + 1}
    assert lines["rsqrt"] == lines["exp"] == {inside}
    assert lines["sin"] == {first + 2}


def test_one_module_called_from_two_lines() -> None:
    layer = nn.Tanh()

    def step(x: aj.Tensor) -> Any:
        y = layer(x)
        return layer(y)

    first = step.__code__.co_firstlineno
    assert _lines(step, aj.ones(3))["tanh"] == {first + 1, first + 2}


def test_a_failed_call_of_a_module_leaves_nothing_behind() -> None:
    class Bad(nn.Module):
        def forward(self, x: aj.Tensor) -> Any:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        aj.jit(lambda x: nn.Sequential(Bad())(x))(aj.ones(3))
    assert state.trace is None
    assert source._entered.frame is None


def _both_ways() -> tuple[source.SourceLocation, source.SourceLocation]:
    """Both from one instruction: they look past this frame, which is one of the user's."""
    looks: list[Any] = [source.here, source.user_place]
    found = [look(depth=2) for look in looks]
    return found[0], found[1]


@pytest.mark.parametrize("way", ["called", "in a library", "in a context", "by a module", "in a made class"])
def test_the_place_alone_is_that_of_the_place_with_its_callee(way: str) -> None:
    found: list[tuple[source.SourceLocation, source.SourceLocation]] = []

    def look(*_: Any) -> int:
        found.append(_both_ways())
        return 0

    if way == "called":
        look()
    elif way == "in a library":
        functools.reduce(lambda _, x: look(x), [1, 2], 0)
    elif way == "in a context":
        aj.no_grad()(look)()
    elif way == "by a module":
        module: Any = nn.Tanh()
        module.apply(look)
    else:
        dataclasses.make_dataclass("Made", [("x", int, dataclasses.field(default_factory=look))])()
    assert found
    assert all(with_callee.is_call_of(alone) for with_callee, alone in found)
    assert {alone.file for _, alone in found} <= {__file__, "<string>"}


def test_changes_within_one_call_of_an_optimiser_look_for_the_users_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [aj.ones(2, requires_grad=True) for _ in range(4)]
    optimiser, look, looked = aj.optim.Adam(weights), source.here, []

    def counted(of_history: bool = False, depth: int = 1, is_inside: bool = False) -> Any:
        looked.append(sys._getframe(1).f_code.co_name)
        return look(of_history, depth + 1, is_inside)

    for _ in range(3):
        optimiser.zero_grad()
        aj.cat(weights).square().sum().backward()
        looked.clear()
        monkeypatch.setattr(source, "here", counted)
        optimiser.step()
        monkeypatch.undo()
    assert looked.count("place_of_change") <= 1
