"""What is compiled for a step is what its calls run, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import autojit as aj
from autojit.codegen.cpu import lower
from autojit.core.config import config
from autojit.jit import graph_call, segment


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every graph that is compiled meanwhile."""
    seen: list[Any] = []
    for module in (segment, graph_call):
        compile = module.compile

        def noted(graph: Any, *rest: Any, compile: Any = compile, **named: Any) -> Any:
            seen.append(graph)
            return compile(graph, *rest, **named)

        monkeypatch.setattr(module, "compile", noted)
    yield seen


def test_a_step_that_the_caller_differentiates_is_compiled_once(graphs: list[Any]) -> None:
    weight = aj.rand(3, 2, requires_grad=True)
    step = aj.jit(lambda x: (x @ weight).tanh().sum())
    result = step(aj.ones(4, 3))
    assert len(graphs) == 1
    result.backward()
    assert len(graphs) == 2
    step(aj.ones(4, 3)).backward()
    assert len(graphs) == 2
    assert step.stats()["kernels"] >= 1
    assert len(graphs) == 2


def test_what_no_call_runs_is_compiled_when_it_is_shown(graphs: list[Any]) -> None:
    weight = aj.rand(3, requires_grad=True)
    step = aj.jit(lambda x: (x * weight).sum())
    step(aj.ones(3)).backward()
    before = len(graphs)
    assert "mul" in step.show("schedule") and "kernels" in step.explain(verbose=True)
    step.show("llvm")
    assert len(graphs) == before + 1


def test_a_step_shown_late_follows_memory_that_was_replaced_before() -> None:
    weight, count = aj.rand(3, requires_grad=True), aj.zeros(3)

    @aj.jit
    def step(x: aj.Tensor) -> aj.Tensor:
        count.add_(x)
        loss = (x * weight).sum()
        (loss * 2).backward(retain_graph=True)
        return loss

    for value in (1.0, 2.0):
        x = aj.full((3,), value)
        weight.grad = aj.ones(3)
        step(x).backward()
        assert aj.allclose(weight.grad, 1 + 3 * x)
        count.data = count.clone()
    assert "mul" in step.show("schedule")
    weight.grad = aj.ones(3)
    step(aj.ones(3)).backward()
    assert aj.allclose(weight.grad, aj.full((3,), 4.0)) and aj.allclose(count, aj.full((3,), 4.0))


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every loop kernel whose text is written meanwhile."""
    seen: list[Any] = []
    write = lower.print_loops

    def noted(program: Any, *rest: Any) -> Any:
        seen.append(program)
        return write(program, *rest)

    monkeypatch.setattr(lower, "print_loops", noted)
    return seen


def test_captures_of_one_function_write_the_kernels_that_they_have_in_common_once(printed: list[Any]) -> None:
    settings = {"gain": 2.0, "unread by the graph": 0}
    left, right = aj.rand(4, 3), aj.rand(3, 3)

    def step(x: aj.Tensor) -> aj.Tensor:
        kept = settings["unread by the graph"]
        return (aj.softmax(x @ right, 1).T @ left).sum(0) * settings["gain"] + 0 * kept

    compiled = aj.jit(step)
    assert aj.allclose(compiled(left), step(left))
    first = len(printed)
    assert first > 1
    settings["gain"] = 3.0
    assert aj.allclose(compiled(left), step(left))
    assert 0 < len(printed) - first < first, "only what reads the gain is new"
    assert compiled.stats()["captures"] == 2


def test_a_function_of_its_own_shares_nothing(printed: list[Any]) -> None:
    for _ in range(2):
        before = len(printed)
        aj.jit(lambda x: aj.softmax(x, 1).sum(0))(aj.ones(4, 3))
        assert len(printed) > before


def test_a_part_defines_no_value_that_an_earlier_part_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", True)  # the verifier looks at every part

    @aj.jit
    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        final, parts = aj.scan(lambda c, v: ((c + v).tanh(), c * v), aj.zeros(2), x)
        scale = 2.0 if final.sum() > 0 else 3.0  # the last state is given to what follows, the open rest is not
        return parts * scale, final * scale

    for n in (3, 5, 4, 7):
        for value in (0.5, -0.5):
            x = aj.full((n, 2), value)
            with aj.eager():
                wanted = step(x)
            for a, b in zip(step(x), wanted, strict=True):
                assert aj.allclose(a, b)
