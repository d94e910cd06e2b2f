"""Formulas: which steps are collected, and that compiled formulas are what their steps are."""

from __future__ import annotations

import numpy as np
import pytest

import autojit as aj
from autojit.compiler import compile
from autojit.core.dtypes import float32, int64
from autojit.core.types import TensorType
from autojit.ir import GraphBuilder
from autojit.ir.text import parse_graph
from autojit.ops.elementwise_arithmetic import ADD, MUL, NEG, SUB
from autojit.ops.formula import Formula, formulas
from autojit.ops.reductions import Sum
from autojit.ops.sources import Full

ROW, ONE = TensorType((4,), float32), TensorType((), float32)


def test_a_step_goes_into_the_formula_of_its_only_reader() -> None:
    steps = [(MUL, (0, 1), (ROW,)), (SUB, (2, 0), (ROW,)), (NEG, (3,), (ROW,))]
    found, kept = formulas(steps, [ROW, ONE], [4])
    ((op, places, types),) = found
    assert isinstance(op, Formula)
    assert (places, types, kept) == ((0, 1), (ROW,), [2])
    x = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(op.eager(x, np.float32(3)), -(x * 3 - x))


def test_what_is_kept_or_read_twice_or_folded_stays() -> None:
    steps = [
        (MUL, (0, 1), (ROW,)),  # 2: kept
        (NEG, (2,), (ROW,)),  # 3: read twice
        (ADD, (3, 3), (ROW,)),  # 4: read by a fold
        (Sum((0,)), (4,), (ONE,)),  # 5
    ]
    found, kept = formulas(steps, [ROW, ONE], [2, 5])
    assert found == steps
    assert kept == [2, 5]


def test_literals_go_with_their_reader() -> None:
    half = Full(0.5, float32, (4,))
    steps = [(half, (), (ROW,)), (MUL, (0, 1), (ROW,)), (ADD, (2, 0), (ROW,))]
    ((op, places, _),), kept = formulas(steps, [ROW], [3])
    assert isinstance(op, Formula)
    assert (places, kept) == ((0,), [1])
    np.testing.assert_array_equal(op.eager(np.ones(4, np.float32)), np.full(4, 1.5, np.float32))


def test_a_graph_with_a_formula_is_printed_and_parsed() -> None:
    ((op, _, _),), _ = formulas([(MUL, (0, 1), (ROW,)), (SUB, (2, 0), (ROW,))], [ROW, ONE], [3])
    text = f"(v0: f32[4], v1: f32[]) {{ v2: f32[4] = {op}(v0, v1); return v2 }}"
    assert parse_graph(text).nodes[0].op == op


def test_parameters_of_one_type_share_a_kernel_and_get_what_eager_mode_gives() -> None:
    """The updates are formulas in the step: one per state tensor of each parameter."""
    start = [aj.full((3, 3), 0.5 + k) for k in range(4)]
    compiled, plain = ([x.clone().requires_grad_() for x in start] for _ in range(2))
    optimizers = [aj.optim.Adam(params, lr=0.1, weight_decay=0.01) for params in (compiled, plain)]

    def step(params: list[aj.Tensor], optimizer: aj.optim.Adam) -> aj.Tensor:
        optimizer.zero_grad()
        loss = sum((k + 1) * (p * p).sum() for k, p in enumerate(params))
        loss.backward()
        optimizer.step()
        return loss.detach()

    jitted = aj.jit(lambda: step(compiled, optimizers[0]))
    for _ in range(3):
        found, expected = jitted(), step(plain, optimizers[1])
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    for p, q in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-6)
    assert jitted.show("graph").count("formula[") >= 4 * (len(start) - 2)  # from the third parameter on at the latest
    assert jitted.stats()["fallbacks"] == 0


def test_a_step_of_a_formula_that_refuses_is_told_by_its_place() -> None:
    wide = TensorType((3,), int64)
    op = Formula(parse_graph("(a: i64[], b: i64[]) { c: i64[] = add(a, b); d: i64[] = trunc_divide(c, a); return d }"))
    builder = GraphBuilder()
    graph = builder.finish(builder.apply(op, [builder.input(wide), builder.input(wide)]))
    run = compile(graph).executable.run
    (found,) = run([np.array([1, 2, -3]), np.array([5, 6, 7])])
    assert found.tolist() == [6, 4, -1]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run([np.array([1, 0, -3]), np.array([5, 6, 7])])
