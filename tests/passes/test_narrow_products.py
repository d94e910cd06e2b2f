"""Products with one row, column or step are loops: the same numbers, and nothing between them and what they feed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.ir import Graph, evaluate, parse_graph
from autojit.ir.verifier import verify
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.narrow_products import loosen_narrow_products
from autojit.passes.pipeline import optimize
from tests.codegen.agreement import check_compiled, disagreement
from tests.on_cpu import schedule

NARROW = [(1, 5, 1), (1, 1, 1), (6, 5, 1), (1, 5, 7), (6, 1, 7), (1, 1, 7), (40, 19, 1), (1, 19, 40)]
HESSIAN_VECTOR = """(x: f32[300, 20], q: f32[20], s: f32[300]) {
  c: f32[20, 1] = reshape[shape=(20, 1)](q);
  z: f32[300, 1] = matmul(x, c);
  d: f32[300, 1] = reshape[shape=(300, 1)](s);
  t: f32[300, 1] = sigmoid(z);
  r: f32[300, 1] = mul(t, d);
  u: f32[20, 300] = permute[axes=(1, 0)](x);
  g: f32[20, 1] = matmul(u, r);
  return g
}"""


def product_of(m: int, k: int, n: int, dtype: str, batch: tuple[int, ...], swapped: tuple[bool, bool]) -> Graph:
    """``a @ b``, where an operand may be shown with its last two axes exchanged."""
    axes = (*range(len(batch)), len(batch) + 1, len(batch))
    shapes = [(*batch, m, k), (*batch, k, n)]
    stored = [tuple(s[a] for a in axes) if swap else s for s, swap in zip(shapes, swapped, strict=True)]
    lines = [
        f"{name}: {dtype}{list(s)} = permute[axes={axes}]({name}0);"
        for name, s, swap in zip("ab", shapes, swapped, strict=True)
        if swap
    ]
    names = [name + "0" * (not swap) for name, swap in zip("ab", swapped, strict=True)]
    inputs = ", ".join(f"{name}0: {dtype}{list(s)}" for name, s in zip("ab", stored, strict=True))
    result = f"y: {dtype}{[*batch, m, n]} = matmul({', '.join(names)}); return y"
    return parse_graph(f"({inputs}) {{ {' '.join(lines)} {result} }}")


def drawn(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(3)
    inputs = []
    for value in graph.inputs:
        numbers = rng.standard_normal(value.type.shape) if value.type.dtype.kind == "float" else None
        made = rng.integers(-9, 9, value.type.shape) if numbers is None else numbers
        inputs.append(np.asarray(made).astype(value.type.dtype.numpy))
    return inputs


@pytest.mark.parametrize(("dtype", "batch"), [("f32", ()), ("f64", (3,)), ("i32", ()), ("i64", (2, 3)), ("u8", ())])
def test_a_narrow_product_is_a_sum_of_multiplications_as_the_matrix_is_stored(
    dtype: str, batch: tuple[int, ...]
) -> None:
    for (m, k, n), swapped in product(NARROW, product((False, True), repeat=2)):
        graph = product_of(m, k, n, dtype, batch, swapped)
        found = verify(eliminate_dead_code(loosen_narrow_products(graph, CPU_MACHINE)))
        assert {node.op.name for node in found.nodes} <= {"mul", "sum", "reshape", "permute"}
        inputs = drawn(graph)
        (expected,) = evaluate(graph, inputs)
        assert not disagreement(evaluate(found, inputs)[0], expected, 32.0), (m, k, n, swapped)
        matrix = found.inputs[0 if n == 1 else 1]
        (terms,) = [node for node in found.nodes if node.op.name == "mul"]
        if k != 1 and m != n:
            assert matrix in terms.inputs, "the matrix is read the way it lies in memory"


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32"])
def test_narrow_products_compile_to_what_eager_computes(dtype: str) -> None:
    for (m, k, n), swapped in zip(NARROW, product((False, True), repeat=2), strict=False):
        graph = product_of(m, k, n, dtype, (2,), swapped)
        check_compiled(graph, drawn(graph), ulps=32.0)


def test_a_matrix_that_a_batch_repeats_stays_in_a_product() -> None:
    graph = parse_graph(
        """(x: f32[6, 5], q: f32[9, 5, 1]) {
          w: f32[9, 6, 5] = broadcast_to[shape=(9, 6, 5)](x);
          y: f32[9, 6, 1] = matmul(w, q);
          return y }"""
    )
    assert str(loosen_narrow_products(graph, CPU_MACHINE)) == str(graph)


def test_other_products_and_other_machines_keep_theirs() -> None:
    for m, k, n in [(2, 3, 4), (2, 2, 2)]:
        graph = product_of(m, k, n, "f32", (), (False, False))
        assert loosen_narrow_products(graph, CPU_MACHINE) is graph
    graph = parse_graph(HESSIAN_VECTOR)
    assert loosen_narrow_products(graph, replace(CPU_MACHINE, loosens_products=False)) is graph


def test_a_product_what_is_done_with_it_and_the_transposed_product_are_one_nest() -> None:
    graph = parse_graph(HESSIAN_VECTOR)
    plan = schedule(optimize(graph, CPU_MACHINE))
    assert len(plan.kernels) == 1, plan
    assert plan.memory.arena_bytes == 0, "nothing between is stored"
    check_compiled(graph, drawn(graph), ulps=32.0)
