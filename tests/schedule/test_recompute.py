"""What is computed again to meet a memory budget: the same values, to the bit, and less that is live at once."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.ir import Graph, evaluate, parse_graph, verify
from autojit.ops.ordering import Later
from autojit.schedule.recompute import within_budget
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule
from autojit.transforms.adjoint import adjoint
from tests.fuzz_graphs import draw_inputs, graph_case
from tests.on_cpu import cpu_with, optimize

# Slices of rows would have a life of their own: nothing of these graphs would be live for long.
WHOLE = cpu_with(least_slices=1 << 40)


def plan(graph: Graph, repeats: bool = True) -> Schedule:
    return schedule(graph, WHOLE, repeats=repeats)


def layers(depth: int) -> Graph:
    """The gradients of a chain of products; everything on the way is read again on the way back."""
    lines = ["(x0: f32[64, 16], w: f32[16, 16]) {"]
    for k in range(depth):
        lines.append(f"h{k}: f32[64, 16] = matmul(x{k}, w); t{k}: f32[64, 16] = sin(h{k});")
        lines.append(f"x{k + 1}: f32[64, 16] = mul(t{k}, h{k});")
    return adjoint(parse_graph(" ".join([*lines, f"return x{depth} }}"])))


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_that_computes_again_gives_the_same_bits(seed: int) -> None:
    graph, _ = graph_case(seed)
    graph = optimize(
        adjoint(graph) if seed % 2 and all(v.type.dtype.is_floating_point for v in graph.outputs) else graph
    )
    before = plan(graph)
    made, after = within_budget(graph, before, 1, plan)
    assert verify(made).outputs == graph.outputs
    assert after.memory.peak_bytes <= before.memory.peak_bytes
    inputs = draw_inputs(graph, seed)
    for found, wanted in zip(evaluate(made, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("part", [0.9, 0.7, 0.5, 0.3])
def test_a_budget_is_met_and_nothing_is_computed_thrice(part: float) -> None:
    graph = optimize(layers(16))
    before = plan(graph)
    budget = int(before.memory.peak_bytes * part)
    made, after = within_budget(graph, before, budget, plan)
    assert after.memory.peak_bytes <= budget
    products = [sum(node.op.name.startswith("matmul") for node in g.nodes) for g in (graph, made)]
    assert products[1] <= products[0] + 16  # no layer is computed a third time
    if part == 0.3:
        inputs = [np.random.default_rng(0).standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]
        for found, wanted in zip(evaluate(made, inputs), evaluate(graph, inputs), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_memory_grows_with_the_root_of_the_depth() -> None:
    least = []
    for depth in (9, 49):
        graph = optimize(layers(depth))
        least.append(within_budget(graph, plan(graph), 1, plan)[1].memory.peak_bytes)
    assert least[1] < 1.5 * (49 / 9) ** 0.5 * least[0]


def test_a_budget_that_is_met_changes_nothing() -> None:
    graph = optimize(layers(4))
    before = plan(graph)
    assert within_budget(graph, before, int(before.memory.peak_bytes), plan) == (graph, before)
    assert not any(isinstance(node.op, Later) for node in graph.nodes)
