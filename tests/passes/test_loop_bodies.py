"""What happens to branches and loops before their bodies are compiled: passes preserve meaning, each does its work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autojit.core.errors import UsageError
from autojit.ir import Graph, Node, Value, evaluate, parse_graph, verify
from autojit.passes.loop_bodies import optimize_bodies
from autojit.passes.open_bodies import open_bodies
from autojit.passes.prune_bodies import merge_scans, prune_bodies
from autojit.passes.resume_loops import resume_loops
from autojit.passes.share_steps import share_steps
from autojit.transforms.adjoint import adjoint
from tests.on_cpu import CPU_MACHINE, hoist_steps, optimize

CELL = """(h: f64[2, 3], xs: f64[4, 2, 5], w: f64[3, 3], u: f64[5, 3]) {
  last: f64[2, 3], ys: f64[4, 2, 3] = scan[body=(h: f64[2, 3], x: f64[2, 5], w: f64[3, 3], u: f64[5, 3]) {
    a: f64[2, 3] = matmul(h, w); b: f64[2, 3] = matmul(x, u); c: f64[2, 3] = add(a, b); d: f64[2, 3] = tanh(c);
    return d, d }, carries=1, stacks=1, length=4, reverse=False](h, xs, w, u);
  return last, ys
}"""
ASKING = """(h: f64[2, 3], xs: f64[4, 2, 5], w: f64[3, 3], u: f64[5, 3]) {
  last: f64[2, 3], ys: f64[4, 2, 3] = scan[body=(h: f64[2, 3], x: f64[2, 5], w: f64[3, 3], u: f64[5, 3]) {
    ww: f64[3, 3] = matmul(w, w); a: f64[2, 3] = matmul(h, ww); b: f64[2, 3] = matmul(x, u); c: f64[2, 3] = add(a, b);
    d: f64[2, 3] = tanh(c); zero: f64[] = full[value=-9.0, dtype=f64, shape=()](); e: bool[2, 3] = gt(c, zero);
    f: bool[2, 3] = require[refusal='c must be greater', kind='usage'](e);
    return d, d }, carries=1, stacks=1, length=4, reverse=False](h, xs, w, u);
  return last, ys
}"""
GROWING = """(x: f64[3], w: f64[3]) {
  go: bool[] = full[value=True, dtype=bool, shape=()]();
  end: bool[], y: f64[3] = while_loop[bodies=((go: bool[], y: f64[3], w: f64[3]) {
    a: f64[3] = mul(y, w); b: f64[3] = sin(a); c: f64[3] = add(b, y); s: f64[] = sum[axes=(0,)](c);
    limit: f64[] = full[value=7.0, dtype=f64, shape=()](); more: bool[] = lt(s, limit); return more, c },),
    carries=(2,), reads=((),), reverse=(False,)](go, x, w);
  z: f64[3] = square(y);
  return z
}"""

SUMMING = """(h: f64[2, 3], s: f64[4, 3], t: f64[2, 5], xs: f64[6, 2, 3], w: f64[3, 3], u: f64[4, 2], v: f64[3, 5]) {
  last: f64[2, 3], left: f64[4, 3], right: f64[2, 5] = scan[body=(h: f64[2, 3], s: f64[4, 3], t: f64[2, 5],
    x: f64[2, 3], w: f64[3, 3], u: f64[4, 2], v: f64[3, 5]) {
    a: f64[2, 3] = matmul(h, w); b: f64[2, 3] = add(a, x); d: f64[2, 3] = tanh(b); e: f64[4, 3] = matmul(u, d);
    p: f64[4, 3] = add(s, e); f: f64[2, 5] = matmul(d, v); q: f64[2, 5] = add(t, f); return d, p, q },
    carries=3, stacks=1, length=6, reverse=False](h, s, t, xs, w, u, v);
  return last, left, right
}"""


def arrays(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.2, 1, v.type.shape).astype(v.type.dtype.numpy) for v in graph.inputs]


def scans(graph: Graph, name: str = "scan") -> list[str]:
    return [str(node.op) for node in graph.nodes if node.op.name == name]


PASSES = [open_bodies, merge_scans, prune_bodies, share_steps, hoist_steps, resume_loops]


@pytest.mark.parametrize("run", [*PASSES, optimize], ids=lambda run: run.__name__)
@pytest.mark.parametrize(
    "text", [CELL, ASKING, GROWING, SUMMING], ids=["scan", "asking scan", "while_loop", "summing scan"]
)
def test_passes_preserve_meaning(run: Callable[[Graph], Graph], text: str) -> None:
    graph = parse_graph(text)
    for order in range(3):
        changed = verify(run(graph))
        for a, b in zip(evaluate(changed, arrays(graph)), evaluate(graph, arrays(graph)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, err_msg=f"derivative {order}")
        graph = adjoint(graph)


def test_scans_of_the_same_steps_are_one() -> None:
    graph = adjoint(parse_graph(CELL))
    assert len(scans(graph)) == 3  # the scan, the scan that gives its carries, the backward one
    assert len(scans(merge_scans(graph))) == 2


def test_what_nobody_reads_is_dropped() -> None:
    graph = parse_graph(
        "(a: f64[], b: f64[], c: f64[], xs: f64[3]) { "
        "p: f64[], q: f64[], r: f64[], ys: f64[3], zs: f64[3] = scan[body=(a: f64[], b: f64[], c: f64[], x: f64[]) "
        "{ d: f64[] = add(a, x); e: f64[] = mul(b, x); f: f64[] = mul(d, c); return d, e, c, e, f }, carries=3, "
        "stacks=1, length=3, reverse=False](a, b, c, xs); return zs, r }"
    )
    pruned = verify(prune_bodies(graph))
    assert str(pruned) == (
        "(a: f64[], b: f64[], c: f64[], xs: f64[3]) {\n"
        "  p: f64[], zs: f64[3] = scan[body=(a: f64[], x: f64[], c: f64[]) { d: f64[] = add(a, x); "
        "f: f64[] = mul(d, c); return d, f }, carries=1, stacks=1, length=3, reverse=False](a, xs, c);\n"
        "  return zs, c\n}"
    )


def test_a_branch_takes_what_it_reads_and_gives_what_is_read() -> None:
    graph = parse_graph(
        "(p: bool[], x: f64[], y: f64[], z: f64[]) { a: f64[], b: f64[] = cond[on_true=(x: f64[], y: f64[], z: f64[]) "
        "{ s: f64[] = sin(x); t: f64[] = sin(y); return s, t }, on_false=(x: f64[], y: f64[], z: f64[]) "
        "{ return z, y }](p, x, y, z); return a }"
    )
    pruned = verify(prune_bodies(graph))
    assert "(x: f64[], z: f64[]) { s: f64[] = sin(x); return s }" in str(pruned)
    assert "](p, x, z)" in str(pruned)


def test_the_backward_loop_reads_what_the_forward_loop_had() -> None:
    graph = prune_bodies(merge_scans(adjoint(parse_graph(CELL))))
    forward, backward = scans(graph)
    assert backward.count("tanh") == 1
    forward, backward = scans(prune_bodies(share_steps(graph)))
    assert (forward.count("tanh"), backward.count("tanh")) == (1, 0)


def test_products_outside_of_the_recurrence_leave_the_loop() -> None:
    graph = prune_bodies(share_steps(prune_bodies(merge_scans(adjoint(parse_graph(CELL))))))
    assert [text.count("matmul") for text in scans(graph)] == [2, 4]
    hoisted = verify(prune_bodies(hoist_steps(graph)))
    assert [text.count("matmul") for text in scans(hoisted)] == [1, 1]
    assert sum(node.op.name == "matmul" for node in hoisted.nodes) == 4


def test_sums_of_products_with_what_all_steps_share_are_products_after_the_loop() -> None:
    found = verify(hoist_steps(parse_graph(SUMMING)))
    (left,) = scans(found)
    assert left.count("matmul") == 1
    assert sum(node.op.name == "matmul" for node in found.nodes) == 2


@pytest.mark.parametrize("carries", [1, 2, 3])
def test_a_loop_that_only_asks_keeps_what_it_asks_of(carries: int) -> None:
    names = [f"c{k}" for k in range(carries)]
    given = ", ".join(f"{name}: f64[3]" for name in names)
    asked = " ".join(
        f"b{k}: bool[3] = gt({name}, x); r{k}: bool[3] = require[refusal='{name} is too small', kind='usage'](b{k});"
        for k, name in enumerate(names)
    )
    graph = parse_graph(
        f"({given}, xs: f64[4, 3]) {{ {', '.join(f'l{k}: f64[3]' for k in range(carries))} = scan[body=({given}, "
        f"x: f64[3]) {{ {asked} return {', '.join(names)} }}, carries={carries}, stacks=1, length=4, reverse=False]"
        f"({', '.join(names)}, xs); return {', '.join(f'l{k}' for k in range(carries))} }}"
    )
    pruned = verify(prune_bodies(graph))
    assert len(pruned.nodes) == 1
    steps = np.arange(12.0).reshape(4, 3)
    starts = [np.full(3, 20.0 + k) for k in range(carries)]
    for start, found in zip(starts, evaluate(pruned, [*starts, steps]), strict=True):
        np.testing.assert_array_equal(start, found)
    for k in range(carries):
        with pytest.raises(UsageError, match=f"c{k} is too small"):
            evaluate(pruned, [*starts[:k], np.full(3, 10.0), *starts[k + 1 :], steps])


def test_the_derivative_of_a_loop_goes_on_from_its_tapes() -> None:
    graph = parse_graph(GROWING)
    text = str(optimize_bodies(adjoint(graph), CPU_MACHINE, lambda g: g))
    assert "kept=1" in text
    assert "resumes=1" in text
    plain = str(optimize_bodies(graph, CPU_MACHINE, lambda g: g))
    assert "kept=0" in plain
    assert "resumes=0" in plain


def test_the_gradient_of_a_weight_used_transposed_is_one_product() -> None:
    text = CELL.replace("matmul(h, w)", "matmul(h, t)").replace(
        "{\n    a:", "{ t: f64[3, 3] = permute[axes=(1, 0)](w);\n    a:"
    )
    assert "permute" in text
    graph = optimize(adjoint(parse_graph(text)))
    for node in graph.nodes:
        if node.op.name == "scan" and "reverse=True" in str(node.op):
            assert str(node.op).count("matmul") == 1  # that of the recurrence
    assert "f64[4, 3, 3]" not in str(graph), "a product per step was kept"


def test_a_scan_of_one_step_is_its_body() -> None:
    text = CELL.replace("xs: f64[4, 2, 5]", "xs: f64[1, 2, 5]").replace("ys: f64[4", "ys: f64[1")
    graph = parse_graph(text.replace("length=4", "length=1"))
    for order in range(3):
        changed = verify(open_bodies(graph))
        assert not scans(changed)
        for a, b in zip(evaluate(changed, arrays(graph)), evaluate(graph, arrays(graph)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, err_msg=f"derivative {order}")
        graph = adjoint(graph)


def test_what_is_the_same_in_every_step_is_computed_once() -> None:
    graph = parse_graph(
        "(c: f32[2, 3], xs: f32[16, 2, 3], w: f32[3, 3]) { last: f32[2, 3], ys: f32[16, 2, 3] = "
        "scan[body=(c: f32[2, 3], x: f32[2, 3], w: f32[3, 3]) { e: f32[3, 3] = exp(w); "
        "t: f32[3, 3] = permute[axes=(1, 0)](e); a: f32[2, 3] = matmul(c, t); one: f32[] = full[value=1, dtype=f32, "
        "shape=()](); b: f32[2, 3] = add(a, x); d: f32[2, 3] = add(b, one); return d, d }, carries=1, stacks=1, "
        "length=16, reverse=False](c, xs, w); return last, ys }"
    )
    found = verify(hoist_steps(graph))
    (left,) = scans(found)
    assert "exp" not in left and "permute" not in left and "full" in left  # a constant costs nothing
    for a, b in zip(evaluate(found, arrays(graph)), evaluate(graph, arrays(graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_of_what_a_step_reads_in_part_the_part_is_handed_over() -> None:
    graph = parse_graph(
        "(c: f64[3], xs: f64[4, 6]) { last: f64[3] = scan[body=(c: f64[3], x: f64[6]) { a: f64[6] = sin(x); "
        "b: f64[3] = slice[starts=(0,), stops=(3,), steps=(1,)](a); d: f64[3] = mul(b, c); return d }, "
        "carries=1, stacks=1, length=4, reverse=False](c, xs); return last }"
    )
    found = prune_bodies(share_steps(prune_bodies(open_bodies(adjoint(graph)))))
    forward, backward = (node for node in found.nodes if node.op.name == "scan")
    handed = {v.type.shape for v in forward.outputs[1:] if v in backward.inputs}
    assert handed == {(4, 3)}  # the carries and the part


OUTER = (
    "(c: f64[10, 1], w: f64[1, 10], xs: f64[4, 10, 1]) {{ last: f64[10, 1] = scan[body=(c: f64[10, 1], x: f64[10, 1], "
    "w: f64[1, 10]) {{ p: f64[10, 10] = {}(c, w); s: f64[10, 10] = sin(p); e: f64[10] = sum[axes=(1,)](s); "
    "d: f64[10, 1] = reshape[shape=(10, 1)](e); return d }}, carries=1, stacks=1, length=4, reverse=False](c, xs, w); "
    "return last }}"
)


@pytest.mark.parametrize(("name", "is_handed_over"), [("mul", False), ("matmul", True)])
def test_what_is_larger_than_its_operands_is_computed_again_unless_it_is_a_matrix_product(
    name: str, is_handed_over: bool
) -> None:
    graph = prune_bodies(merge_scans(adjoint(parse_graph(OUTER.format(name)))))
    found = verify(prune_bodies(share_steps(graph)))
    forward, _ = (node for node in found.nodes if node.op.name == "scan")
    assert ((4, 10, 10) in [v.type.shape for v in forward.outputs]) is is_handed_over


def test_what_a_tape_alone_is_computed_from_is_handed_to_the_sweeps() -> None:
    graph = parse_graph(
        "(x: f64[3], w: f64[3], u: f64[3], t: f64[3]) { go: bool[] = full[value=True, dtype=bool, shape=()](); "
        "end: bool[], y: f64[3], r: f64[3] = while_loop[bodies=((go: bool[], y: f64[3], w: f64[3], u: f64[3], "
        "t: f64[3]) { a: f64[3] = mul(y, w); b: f64[3] = square(a); c: f64[3] = add(b, y); "
        "s: f64[] = sum[axes=(0,)](c); f: f64[3] = mul(y, u); limit: f64[] = full[value=7.0, dtype=f64, shape=()](); "
        "more: bool[] = lt(s, limit); return more, c, a, f }, (z: f64[3], p: f64[3], q: f64[3], w: f64[3], u: f64[3], "
        "t: f64[3]) { d: f64[3] = mul(z, p); e: f64[3] = add(d, q); return e }), carries=(2, 1), reads=((), (0, 1)), "
        "reverse=(False, True)](go, x, x, w, u, t); return y, r }"
    )
    pruned = verify(prune_bodies(graph))
    assert "](go, x, x, w, u)" in str(pruned)  # of the constants t alone is read nowhere
    for a, b in zip(evaluate(pruned, arrays(graph)), evaluate(graph, arrays(graph)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_who_read_the_carries_of_merged_scans_reads_those_of_the_one() -> None:
    graph = parse_graph(CELL)
    (node,) = (node for node in graph.nodes if node.op.name == "scan")
    others = [Node(node.op, node.inputs, tuple(Value(v.type) for v in node.outputs), node.source) for _ in range(2)]
    outputs = tuple(v for each in (node, *others) for v in each.outputs)
    graph = verify(Graph(graph.inputs, (*graph.nodes, *others), outputs))
    merged = verify(merge_scans(graph))
    assert len(scans(merged)) == 1
    for a, b in zip(evaluate(merged, arrays(graph)), evaluate(graph, arrays(graph)), strict=True):
        np.testing.assert_array_equal(a, b)
