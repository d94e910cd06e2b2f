"""Tables of which a step changes few rows are updated in these alone, to the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.ir import Graph, evaluate, parse_graph
from autojit.ir.verifier import verify
from autojit.passes.sparse_updates import update_rows
from tests.codegen.agreement import check_compiled

ANY_SIZE = replace(CPU_MACHINE, least_sparse_bytes=1)
SCATTERS = {
    "index_update[axis=0, combine='add']": ("f32[5, 3]", "(p0)", "i64[5]"),
    "index_update[axis=1, combine='add']": ("f32[40, 1]", "(p0)", "i64[1]"),
    "scatter[axis=0, combine='add']": ("f32[4, 3]", "(p0)", "i64[4, 3]"),
    "index_put[combine='add']": ("f32[5, 3]", "(p0)", "i64[5]"),
}
UPDATES = {
    "add": "y: f32[40, 3] = add(p, d)",
    "swapped": "y: f32[40, 3] = add(d, p)",
    "sub": "y: f32[40, 3] = sub(p, d)",
}


def step(scatter: str, update: str, base: int = 0, factor: str = "f32[]") -> Graph:
    """``p + s * t * g``, where ``g`` is zero but for some rows."""
    source, _, index = SCATTERS[scatter]
    return parse_graph(
        f"(p: f32[40, 3], x: {source}, i: {index}, s: {factor}, t: f32[]) {{"
        f"z: f32[40, 3] = full[value={base}, dtype=f32, shape=(40, 3)]();"
        f"g: f32[40, 3] = {scatter}(z, x, i);"
        f"c: f32[40, 3] = mul(s, g); d: f32[40, 3] = mul(c, t); {update}; return y, g }}"
    )


def drawn(graph: Graph) -> list[Any]:
    generator = np.random.default_rng(2)
    extent = 3 if "axis=1" in str(graph) else 40
    return [
        generator.integers(-2, 3 if extent > 3 else 1, v.type.shape)  # rows that are looked up twice
        if v.type.dtype.kind == "int"
        else generator.standard_normal(v.type.shape).astype(np.float32)
        for v in graph.inputs
    ]


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("scatter", SCATTERS)
def test_only_rows_that_the_gradient_has_are_written_and_they_get_the_same_bits(scatter: str, update: str) -> None:
    graph = step(scatter, update)
    if "axis=1" in scatter:  # a third of the table
        assert update_rows(graph, ANY_SIZE) is graph
        return
    after = verify(update_rows(graph, ANY_SIZE))
    assert after.definitions()[after.outputs[0]].op.name == graph.definitions()[graph.outputs[1]].op.name
    inputs = drawn(graph)
    for x, y in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_array_equal(y, x)
    if update == UPDATES["add"]:
        check_compiled(after, inputs)


@pytest.mark.parametrize(
    "graph",
    [
        step("index_put[combine='add']", UPDATES["add"], base=1),
        step("index_put[combine='add']", UPDATES["add"], factor="f32[3]"),
        step("index_put[combine='add']", "y: f32[40, 3] = sub(d, p)"),
        step("index_put[combine='add']", "q: f32[40, 3] = square(p); y: f32[40, 3] = add(q, d)"),
    ],
    ids=["another base", "a factor per column", "the table is subtracted", "not what the step begins with"],
)
def test_other_updates_read_the_whole_table(graph: Graph) -> None:
    assert update_rows(graph, ANY_SIZE) is graph


def test_small_tables_and_machines_that_do_not_ask_for_it_are_updated_as_a_whole() -> None:
    graph = step("index_put[combine='add']", UPDATES["add"])
    for machine in (CPU_MACHINE, replace(CPU_MACHINE, least_sparse_bytes=0), replace(ANY_SIZE, kind="cuda")):
        assert update_rows(graph, machine) is graph


def table_and_step(compiled: bool) -> tuple[aj.Tensor, Any]:
    rows = CPU_MACHINE.least_sparse_bytes // 4 // 8
    table = aj.tensor(np.random.default_rng(3).standard_normal((rows, 8)).astype(np.float32), requires_grad=True)
    optimizer = aj.optim.SGD([table], lr=0.1)

    def train(index: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (aj.nn.functional.embedding(index, table) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return table, aj.jit(train) if compiled else train


def test_a_table_is_trained_as_in_eager_mode_and_stays_what_it_was_where_a_row_does_not_exist() -> None:
    (table, train), (eager, plain) = table_and_step(compiled=True), table_and_step(compiled=False)
    start = table.detach().clone()
    for rows in ([5, 1, 5, 7], [0, 1, 2, 5], [9, 9, 9, 9]):
        train(aj.tensor(rows))
        plain(aj.tensor(rows))
        np.testing.assert_allclose(table.detach().numpy(), eager.detach().numpy(), rtol=1e-6, atol=1e-6)
        assert table.grad is not None
        assert eager.grad is not None
        np.testing.assert_allclose(table.grad.numpy(), eager.grad.numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(table.detach()[10:].numpy(), start[10:].numpy())
    assert "combine='set'" in train.show("optimised")
    assert table.grad is not None
    before, gradient = table.detach().clone(), table.grad.clone()
    with pytest.raises(IndexError):
        train(aj.tensor([3, 1, 10**7, 2]))
    np.testing.assert_array_equal(table.detach().numpy(), before.numpy())
    assert table.grad is not None
    np.testing.assert_array_equal(table.grad.numpy(), gradient.numpy())
