"""Transposes move into products: a permuted product whose rows become the innermost axis is computed transposed."""

from __future__ import annotations

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.ir import evaluate, parse_graph
from autojit.ir.verifier import verify
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.layout import transpose_products
from autojit.passes.simplify import simplify
from tests.codegen.agreement import check_compiled

PRODUCT = "(a: f32[2, 3, 5, 4], b: f32[2, 3, 4, 6]) {{ p: f32[2, 3, 5, 6] = matmul(a, b); {} }}"


@pytest.mark.parametrize("axes", [(0, 1, 3, 2), (0, 3, 1, 2), (3, 0, 1, 2), (1, 3, 0, 2)])
def test_rows_that_become_the_innermost_axis_are_columns_of_the_product(axes: tuple[int, ...]) -> None:
    shape = tuple((2, 3, 5, 6)[axis] for axis in axes)
    graph = parse_graph(PRODUCT.format(f"y: f32{list(shape)} = permute[axes={axes}](p); return y"))
    found = verify(eliminate_dead_code(simplify(transpose_products(graph))))
    (product,) = [node for node in found.nodes if node.op.name == "matmul"]
    assert product.outputs[0].type.shape == (2, 3, 6, 5)
    outside = [node for node in found.nodes[found.nodes.index(product) + 1 :] if node.op.name == "permute"]
    assert len(outside) == (axes != (0, 1, 3, 2))
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]
    np.testing.assert_allclose(evaluate(found, inputs)[0], evaluate(graph, inputs)[0], rtol=1e-5, atol=1e-6)
    check_compiled(found, inputs)


def test_products_with_other_readers_or_other_permutations_stay() -> None:
    for text in (
        "y: f32[2, 3, 6, 5] = permute[axes=(0, 1, 3, 2)](p); return y, p",
        "y: f32[2, 5, 3, 6] = permute[axes=(0, 2, 1, 3)](p); return y",
        "y: f32[6, 3, 5, 2] = permute[axes=(3, 1, 2, 0)](p); return y",
    ):
        graph = parse_graph(PRODUCT.format(text))
        assert str(transpose_products(graph)) == str(graph)
