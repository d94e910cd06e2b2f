"""Rearrangements of rearrangements: chains of one kind are one node, and those that change nothing are none."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.ir import evaluate, parse_graph
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.simplify import simplify

CHAINS = {
    "a: f64[3, 2] = reshape[shape=(3, 2)](x); b: f64[6] = reshape[shape=(6,)](a); return b": 1,
    "a: f64[3, 2] = reshape[shape=(3, 2)](x); b: f64[2, 3] = reshape[shape=(2, 3)](a); return b": 0,
    "a: f64[2, 3] = reshape[shape=(2, 3)](x); return a": 0,
    "a: f64[6] = reshape[shape=(6,)](x); b: f64[1, 6] = reshape[shape=(1, 6)](a); "
    "c: f64[6, 1] = reshape[shape=(6, 1)](b); return c": 1,
    "a: f64[3, 2] = permute[axes=(1, 0)](x); b: f64[2, 3] = permute[axes=(1, 0)](a); return b": 0,
    "a: f64[2, 3] = permute[axes=(0, 1)](x); return a": 0,
    "a: f64[3, 2] = permute[axes=(1, 0)](x); b: f64[6] = reshape[shape=(6,)](a); return b": 2,
    "a: f64[3, 2] = reshape[shape=(3, 2)](x); b: f64[2, 3] = permute[axes=(1, 0)](a); return b": 2,
}


@pytest.mark.parametrize("text", CHAINS)
def test_a_chain_is_one_node_or_none(text: str) -> None:
    graph = parse_graph(f"(x: f64[2, 3]) {{ {text} }}")
    made = eliminate_dead_code(simplify(graph))
    assert len(made.nodes) == CHAINS[text], made
    x = np.arange(6.0).reshape(2, 3)
    for a, b in zip(evaluate(graph, [x]), evaluate(made, [x]), strict=True):
        np.testing.assert_array_equal(a, b)
