"""One compiled step for many sizes: what it computes for any of them is what a graph of those very sizes computes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.cpu.lower import lower
from autojit.codegen.target import host_target
from autojit.compiler import Compiled, compile
from autojit.core.config import config
from autojit.core.errors import IndexOutOfRangeError, SpecializeSize
from autojit.core.sizes import evaluate as evaluate_size
from autojit.core.sizes import with_hints
from autojit.ir import Graph, GraphBuilder, evaluate, parse_graph
from autojit.ir.concrete import concrete
from autojit.runtime.pool import get_num_threads, set_num_threads
from autojit.schedule.bands import Band
from autojit.schedule.batches import Batch
from tests.codegen.agreement import disagreement
from tests.codegen.open_graphs import (
    ATTENTION,
    BATCHES,
    CHAIN,
    LOOPS,
    LOOPS_OF_TWO,
    PAIRS,
    PRODUCTS,
    STRUCTURED,
    convolutions,
    draw,
)
from tests.on_cpu import compiling_with, schedule


def check(text: str, sizes: Sequence[dict[str, int]], ulps: float = 64.0) -> Compiled:
    """Compile once, run for all sizes twice in a row, compare with the interpreter on graphs of those sizes."""
    graph = parse_graph(text)
    compiled = compile(graph)
    for values in sizes:
        fixed = concrete(graph, values)
        arrays = draw(fixed)
        expected = evaluate(fixed, arrays)
        for attempt in ("first", "second"):
            for position, found in enumerate(compiled.executable.run(arrays)):
                wrong = disagreement(found, expected[position], ulps)
                assert not wrong, f"{values}, output {position}, {attempt} run: {wrong}\n{compiled.schedule}"
    return compiled


@pytest.mark.parametrize("name", LOOPS)
def test_loops_take_any_batch(name: str) -> None:
    check(LOOPS[name], BATCHES)


@pytest.mark.parametrize("name", LOOPS_OF_TWO)
def test_loops_take_two_open_sizes(name: str) -> None:
    check(LOOPS_OF_TWO[name], PAIRS)


@pytest.mark.parametrize("name", PRODUCTS)
def test_matrix_products_take_any_extent(name: str) -> None:
    check(PRODUCTS[name], BATCHES)


def test_attention_takes_any_batch_and_length() -> None:
    check(ATTENTION, PAIRS)


@pytest.mark.parametrize("name", STRUCTURED)
def test_kernels_with_loops_of_their_own_take_any_batch(name: str) -> None:
    check(STRUCTURED[name], BATCHES)


@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_take_any_batch(groups: int) -> None:
    check(convolutions(groups), BATCHES[:6], ulps=200.0)


@pytest.mark.parametrize("name", [*LOOPS, *STRUCTURED])
def test_the_checked_form_finds_no_access_outside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", True)
    check({**LOOPS, **STRUCTURED}[name], BATCHES[:5])


def test_kernels_of_equal_structure_are_one_text() -> None:
    compiled = compile(
        parse_graph(
            "(x: f32[s0, 64], y: f32[s1, 64]) { a: f32[s0, 64] = tanh(x); b: f32[s1, 64] = tanh(y); return a, b }"
        )
    )
    bodies = {getattr(part, "body", None) for entry in compiled.lowered.entries for part in _parts(entry)}
    assert len(bodies) == 1


def layers(count: int) -> str:
    """A chain of layers whose activations are all needed again, last first."""
    lines = ["(h0: f32[s0, 24], w: f32[24, 24]) {"]
    for k in range(1, count + 1):
        lines.append(f"p{k}: f32[s0, 24] = matmul(h{k - 1}, w); h{k}: f32[s0, 24] = tanh(p{k});")
    lines.append(f"g{count}: f32[s0, 24] = square(h{count});")
    for k in range(count, 0, -1):
        lines.append(f"q{k}: f32[s0, 24] = mul(g{k}, h{k}); g{k - 1}: f32[s0, 24] = matmul(q{k}, w);")
        lines.append(f"t{k}: f32[24, s0] = permute[axes=(1, 0)](h{k - 1}); d{k}: f32[24, 24] = matmul(t{k}, q{k});")
    shown = ", ".join(f"d{k}" for k in range(1, count + 1))
    return " ".join([*lines, f"return g0, {shown} }}"])


@pytest.mark.parametrize("count", [2, 3, 6])
def test_values_of_a_slice_do_not_lie_in_each_others_memory(count: int) -> None:
    with compiling_with(least_bytes=1):
        compiled = check(layers(count), (*BATCHES, {"s0": 3000}), ulps=256.0)
    assert any(isinstance(item, Band) for item in compiled.schedule.kernels)


def seen_with(graph: Graph, hints: dict[str, int]) -> Graph:
    """The graph as a capture with arrays of other sizes gives it."""
    builder = GraphBuilder()
    known = {v: builder.input(v.type.with_shape(with_hints(v.type.shape, hints))) for v in graph.inputs}
    for node in graph.nodes:
        known.update(zip(node.outputs, builder.apply(node.op, [known[v] for v in node.inputs]), strict=True))
    return builder.finish([known[v] for v in graph.outputs])


@pytest.mark.parametrize("text", [*LOOPS.values(), *PRODUCTS.values(), *STRUCTURED.values(), convolutions(1), CHAIN])
def test_code_does_not_depend_on_the_sizes_met_first(text: str) -> None:
    graph = parse_graph(text)
    shown = {repr(lower(schedule(seen_with(graph, {"s0": n})), host_target()).entries) for n in (2, 37, 256)}
    assert len({re.sub(r"0x[0-9a-f]+", "", entries) for entries in shown}) == 1


def softmaxes(widths: Sequence[int]) -> str:
    """Softmaxes over rows of several lengths, side by side over the same rows."""
    lines = []
    for k, width in enumerate(widths):
        n = f"{width}*s0"
        lines.append(
            f"m{k}: f32[16, 8] = amax[axes=(2,)](x{k}); b{k}: f32[16, 8, 1] = reshape[shape=(16, 8, 1)](m{k});"
        )
        lines.append(f"d{k}: f32[16, 8, {n}] = sub(x{k}, b{k}); e{k}: f32[16, 8, {n}] = exp(d{k});")
        lines.append(f"s{k}: f32[16, 8] = sum[axes=(2,)](e{k}); c{k}: f32[16, 8, 1] = reshape[shape=(16, 8, 1)](s{k});")
        lines.append(f"r{k}: f32[16, 8, {n}] = div(e{k}, c{k});")
    inputs = ", ".join(f"x{k}: f32[16, 8, {width}*s0]" for k, width in enumerate(widths))
    return f"(y: f32[s0], {inputs}) {{ {' '.join(lines)} return {', '.join(f'r{k}' for k in range(len(widths)))} }}"


def test_workers_in_different_kernels_have_memory_of_their_own() -> None:
    graph = parse_graph(softmaxes((1, 5, 2, 7)))
    compiled = compile(graph)
    (batch,) = compiled.schedule.kernels
    assert isinstance(batch, Batch)
    arrays = draw(concrete(graph, {"s0": 2001}))
    threads = get_num_threads()
    try:
        set_num_threads(1)
        expected = [y.tobytes() for y in compiled.executable.run(arrays)]
        set_num_threads(4)
        executable = compile(graph).executable
        for _ in range(10):
            assert [y.tobytes() for y in executable.run(arrays)] == expected
    finally:
        set_num_threads(threads)


def _parts(entry: Any) -> Sequence[Any]:
    return getattr(entry, "entries", (entry,))


def test_results_do_not_depend_on_threads() -> None:
    graph = parse_graph(LOOPS_OF_TWO["rows of two axes as one"])
    compiled = compile(graph)
    arrays = draw(concrete(graph, {"s0": 64, "s1": 300}))
    threads = get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            found.append([y.tobytes() for y in compiled.executable.run(arrays)])
    finally:
        set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_an_index_out_of_range_is_reported_for_the_sizes_of_the_call() -> None:
    graph = parse_graph(
        "(x: f32[s0, 4], i: i64[s1]) { y: f32[s1, 4] = index_select[axis=0](x, i); z: f32[s1, 4] = tanh(y); return z }"
    )
    executable = compile(graph).executable
    x = np.ones((9, 4), np.float32)
    (found,) = executable.run([x, np.array([8, -9])])
    assert found.shape == (2, 4)
    with pytest.raises(IndexOutOfRangeError, match="out of bounds"):
        executable.run([x[:8].copy(), np.array([8, 0])])
    executable.run([x, np.array([8, 0])])


def test_state_of_fixed_size_is_updated_in_place_for_every_batch() -> None:
    graph = parse_graph(
        """(x: f32[s0, 64], w: f32[64, 8], y: f32[s0, 8]) {
        t: f32[64, s0] = permute[axes=(1, 0)](x);
        g: f32[64, 8] = matmul(t, y);
        v: f32[64, 8] = sub(w, g);
        return v }"""
    )
    executable = compile(graph, donated={0: 1}).executable
    for values in BATCHES:
        x, w, y = draw(concrete(graph, values))
        expected = w - x.T @ y
        executable.run([x, w, y], [w])
        np.testing.assert_allclose(w, expected, rtol=2e-4, atol=2e-4)


def test_memory_of_temporaries_grows_with_the_sizes_met() -> None:
    text = """(x: f32[s0, 64], w: f32[64, 64]) {
      a: f32[s0, 64] = matmul(x, w);
      b: f32[s0, 64] = cumulative[kind='sum', axis=1, reverse=False](a);
      c: f32[s0, 64] = matmul(b, w);
      d: f32[s0, 64] = cumulative[kind='sum', axis=1, reverse=False](c);
      s: f32[] = amax[axes=(0, 1)](d);
      return s }"""
    compiled = check(text, BATCHES)
    memory = compiled.schedule.memory
    assert memory.arena_bytes == 0
    assert [evaluate_size(size, {"s0": 100}) for size in memory.regions] == [25600, 25600]


def test_a_chain_over_many_rows_runs_slice_by_slice() -> None:
    with compiling_with(least_bytes=1, least_open_kernels=2):
        compiled = check(CHAIN, (*BATCHES, {"s0": 5000}))
    (band,) = (item for item in compiled.schedule.kernels if isinstance(item, Band))
    counts = {n: evaluate_size(band.slices.count, {"s0": n}) for n in (2, 16, 64, 100, 256, 5000)}
    assert counts == {2: 1, 16: 1, 64: 2, 100: 4, 256: 8, 5000: 10}
    places = [(offset, value) for value, offset in band.offsets.items()]
    assert all(evaluate_size(offset, {"s0": n}) % 64 == 0 for offset, _ in places for n in (2, 37, 5000))


def test_memory_that_cannot_be_had_is_an_error_and_the_next_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph(PRODUCTS["a layer after the other"])
    executable = compile(graph).executable
    arrays = draw(concrete(graph, {"s0": 40}))
    expected = executable.run(draw(concrete(graph, {"s0": 4})))

    def refuse(size_bytes: int) -> None:
        raise MemoryError(f"no {size_bytes} bytes")

    with monkeypatch.context() as patched:
        patched.setattr("autojit.runtime.memory.Arena", refuse)
        with pytest.raises(MemoryError, match="bytes"):
            executable.run(draw(concrete(graph, {"s0": 4000})))
    for found, before in zip(executable.run(draw(concrete(graph, {"s0": 4}))), expected, strict=True):
        assert found.tobytes() == before.tobytes()
    executable.run(arrays)


def test_a_size_that_no_argument_shows_is_asked_for() -> None:
    graph = parse_graph("(x: f32[2*s0]) { y: f32[2*s0] = tanh(x); return y }")
    with pytest.raises(SpecializeSize, match="s0"):
        compile(graph)
