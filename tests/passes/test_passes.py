"""Every pass keeps the meaning of graphs; what the rules do on small texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.ir import Graph, evaluate, parse_graph, verify
from autojit.passes.common_subexpressions import eliminate_common_subexpressions
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.fill_empty import fill_empty
from autojit.passes.simplify import simplify
from tests.codegen.agreement import disagreement
from tests.fuzz_graphs import graph_case
from tests.on_cpu import expand, optimize

EXACT = [eliminate_common_subexpressions, eliminate_dead_code, fill_empty, expand, simplify]


@pytest.mark.parametrize("run", [*EXACT, optimize], ids=lambda run: run.__name__)
def test_a_pass_keeps_the_meaning_of_random_graphs(run: Callable[[Graph], Graph]) -> None:
    for seed in range(40):
        graph, inputs = graph_case(seed)
        changed = verify(run(graph))
        assert [v.type for v in changed.outputs] == [v.type for v in graph.outputs]
        for found, expected in zip(evaluate(changed, inputs), evaluate(graph, inputs), strict=True):
            assert not disagreement(found, expected, 4.0), f"seed {seed}\n{graph}\n{changed}"


@pytest.mark.parametrize("run", [*EXACT, optimize], ids=lambda run: run.__name__)
def test_a_pass_run_again_changes_nothing_more(run: Callable[[Graph], Graph]) -> None:
    for seed in range(10):
        graph, _ = graph_case(seed)
        once = run(run(graph))
        assert str(run(once)) == str(once)


def simplified(text: str) -> str:
    graph = parse_graph(text)
    return str(eliminate_dead_code(simplify(graph))).replace("\n", " ").replace("  ", " ")


def test_identities_vanish_and_rearrangements_stay() -> None:
    head = "(x: f32[4, 1]) {"
    assert simplified(f"{head} y: f32[4, 1] = flip[axes=(1,)](x); return y }}") == "(x: f32[4, 1]) { return x }"
    assert "flip" in simplified(f"{head} y: f32[4, 1] = flip[axes=(0,)](x); return y }}")
    pad = "y: f32[4, 1] = pad[low=(0, 0), high=(0, 0), interior=(0, 3), value=0](x)"
    assert "pad" in simplified(f"{head} {pad}; return y }}")


def test_rearrangements_that_keep_the_shape_keep_their_meaning() -> None:
    x = np.arange(4.0, dtype=np.float32).reshape(2, 2)
    ops = [
        f"as_strided[shape=(2, 2), strides=({a}, {b}), offset={o}, span=4]"
        for a in range(4)
        for b in range(4)
        for o in range(4 - a - b)
    ]
    ops += [f"flip[axes={axes}]" for axes in ("(0,)", "(1,)", "(0, 1)")]
    ops += ["permute[axes=(1, 0)]", "permute[axes=(0, 1)]", "reshape[shape=(2, 2)]", "broadcast_to[shape=(2, 2)]"]
    for op in ops:
        graph = verify(parse_graph(f"(x: f32[2, 2]) {{ y: f32[2, 2] = {op}(x); return y }}"))
        (found,), (expected,) = evaluate(verify(simplify(graph)), [x]), evaluate(graph, [x])
        assert np.array_equal(found, expected), op
    whole = "as_strided[shape=(4,), strides=(1,), offset=0, span=4]"
    assert "reshape" in simplified(f"(x: f32[2, 2]) {{ y: f32[4] = {whole}(x); return y }}")


def test_division_becomes_multiplication_only_where_that_is_exact() -> None:
    def divided(value: str) -> str:
        return simplified(
            f"(x: f32[3]) {{ c: f32[] = full[value={value}, dtype=f32, shape=()](); y: f32[3] = div(x, c); return y }}"
        )

    for exponent in range(-126, 128):  # of a normal number, the reciprocal of which is one too, or not
        is_exact = -126 <= -exponent <= 127
        assert ("div(" in divided(repr(2.0**exponent))) != is_exact, exponent
        assert ("div(" in divided(repr(-(2.0**exponent)))) != is_exact, exponent
    assert "value=0.125" in divided("8.0")
    assert "div(" in divided("3.0")
    assert "div(" in divided(repr(2.0**-140))  # its reciprocal overflows


def test_minus_zero_is_not_zero() -> None:
    text = "(x: f32[1]) { c: f32[1] = full[value=-0.0, dtype=f32, shape=(1,)]();"
    padded = simplified(f"{text} y: f32[3] = pad[low=(1,), high=(1,), interior=(0,), value=0.0](c); return y }}")
    assert "pad" in padded


def test_folds_over_nothing_are_their_identity() -> None:
    text = "(x: f32[0, 3], w: f32[3, 0], i: i64[0]) { s: f32[3] = sum[axes=(0,)](x); p: f32[3] = prod[axes=(0,)](x);"
    graph = parse_graph(f"{text} m: f32[3, 3] = matmul(w, x); e: f32[0, 3] = exp(x); return s, p, m, e }}")
    filled = fill_empty(graph)
    assert {node.op.name for node in filled.nodes} == {"full"}
    arrays = [np.empty(v.type.shape, v.type.dtype.numpy) for v in graph.inputs]
    for found, expected in zip(evaluate(filled, arrays), evaluate(graph, arrays), strict=True):
        assert np.array_equal(found, expected)


def test_folding_one_element_rearranges() -> None:
    text = simplified("(x: f32[4, 1]) { y: f32[4] = amax[axes=(1,)](x); return y }")
    assert "reshape[shape=(4,)](x)" in text and "amax" not in text


def test_a_literal_padded_with_its_own_number_is_a_literal_and_with_another_one_none() -> None:
    text = "() {{ c: f32[2] = full[value=2.0, dtype=f32, shape=(2,)](); "
    text += "y: f32[4] = pad[low=(1,), high=(1,), interior=(0,), value={}](c); return y }}"
    assert "pad" not in simplified(text.format("2.0"))
    assert "pad" in simplified(text.format("0.0"))


@pytest.mark.parametrize(
    ("rest", "checks"),
    [
        ("y: f64[2] = sin(g); return y", 0),
        ("y: f64[2] = sin(g); z: f64[1] = slice[starts=(0,), stops=(1,), steps=(1,)](y); return z", 1),
        ("y: f64[2] = sin(g); s: f64[] = sum[axes=(0,)](y); return s", 0),
        ("return x", 1),
    ],
)
def test_a_look_up_that_is_computed_as_a_whole_needs_no_check_of_its_places(rest: str, checks: int) -> None:
    text = f"(x: f64[5], i: i64[2]) {{ g: f64[2] = index_select[axis=0](x, i); {rest} }}"
    assert str(eliminate_dead_code(parse_graph(text))).count("in_range[") == checks
