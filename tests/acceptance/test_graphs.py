"""Graphs of whole programs: they print, parse back and run, and every stage keeps their meaning."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import autojit as aj
import autojit.compiler
from autojit.core.machine import Machine
from autojit.ir import Graph, evaluate, parse_graph, verify
from autojit.passes import pipeline
from autojit.passes.pipeline import PASSES
from tests.acceptance.programs import PROGRAMS, assert_close
from tests.on_cpu import run_pass


@cache
def graphs_of(name: str) -> tuple[tuple[Graph, ...], Any]:
    """Every graph that reached the compiler while the program ran once, and the jitted step."""
    graphs: list[Graph] = []
    optimize = pipeline.optimize

    def remember(graph: Graph, machine: Machine) -> Graph:
        graphs.append(graph)
        return optimize(graph, machine)

    run = PROGRAMS[name].build("tiny")
    step = aj.jit(run.step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "optimize", remember)
        step(*run.args)
    assert graphs
    return tuple(graphs), step


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_parses_back_to_a_graph_that_runs_equal(name: str) -> None:
    for graph in graphs_of(name)[0]:
        again = parse_graph(str(graph))
        assert str(again) == str(graph)
        inputs = some_inputs(graph)
        for a, b in zip(evaluate(again, inputs), evaluate(graph, inputs), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_pass_keeps_the_program_sound_and_its_meaning(name: str) -> None:
    for graph in graphs_of(name)[0]:
        verify(graph)
        inputs = some_inputs(graph)
        expected = evaluate(graph, inputs)
        for run in PASSES:
            graph = verify(run_pass(run, graph), after=run.__name__)
        assert_close(evaluate(graph, inputs), expected, 1e-9 if name.endswith("f64") else 2e-4)


def test_shown_graph_parses_back() -> None:
    graphs, step = graphs_of("mlp_sgd")
    assert str(parse_graph(step.show("graph"))) == str(graphs[-1])
