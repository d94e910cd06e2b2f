"""Graphs of whole programs: they print, parse back and run, and every stage keeps their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.compiler
from autojit.ir import Graph, evaluate, parse_graph, verify
from autojit.passes.pipeline import PASSES
from tests.acceptance.programs import PROGRAMS, assert_close, outcome


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Every graph that reaches the compiler during the test."""
    graphs: list[Graph] = []
    optimize = autojit.compiler.optimize

    def remember(graph: Graph) -> Graph:
        graphs.append(graph)
        return optimize(graph)

    monkeypatch.setattr(autojit.compiler, "optimize", remember)
    return graphs


def some_inputs(graph: Graph) -> list[Any]:
    """Numbers in (0.1, 0.9) and indices that fit any axis."""
    rng = np.random.default_rng(0)
    found = []
    for value in graph.inputs:
        kind = value.type.dtype
        numbers = (
            rng.uniform(0.1, 0.9, value.type.shape) if kind.is_floating_point else rng.integers(0, 2, value.type.shape)
        )
        found.append(np.asarray(numbers).astype(kind.numpy))
    return found


def graphs_of(name: str, captured: list[Graph]) -> list[Graph]:
    outcome(PROGRAMS[name].build("tiny"), aj.jit, steps=2)
    assert captured
    return captured


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_parses_back_to_a_graph_that_runs_equal(name: str, captured: list[Graph]) -> None:
    for graph in graphs_of(name, captured):
        again = parse_graph(str(graph))
        assert str(again) == str(graph)
        inputs = some_inputs(graph)
        for a, b in zip(evaluate(again, inputs), evaluate(graph, inputs), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_pass_keeps_the_program_sound_and_its_meaning(name: str, captured: list[Graph]) -> None:
    for graph in graphs_of(name, captured):
        verify(graph)
        inputs = some_inputs(graph)
        expected = evaluate(graph, inputs)
        for run in PASSES:
            graph = verify(run(graph), after=run.__name__)
        assert_close(evaluate(graph, inputs), expected, 1e-9 if name.endswith("f64") else 2e-4)


def test_shown_graph_parses_back(captured: list[Graph]) -> None:
    run = PROGRAMS["mlp_sgd"].build("tiny")
    step = aj.jit(run.step)
    step(*run.args)
    (graph,) = captured
    assert str(parse_graph(step.show("graph"))) == str(graph)
