"""One step on a GPU for many sizes: what it computes for any of them is what a graph of those very sizes computes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from autojit.codegen.lowered import Launch
from autojit.compiler import Compiled, compile
from autojit.core.config import config
from autojit.core.device import Device, space_at
from autojit.core.device_array import host_copy
from autojit.core.errors import SpecializeSize
from autojit.core.sizes import with_hints
from autojit.ir import evaluate, parse_graph
from autojit.ir.concrete import concrete
from tests.codegen.agreement import disagreement
from tests.codegen.open_graphs import (
    ATTENTION,
    CHAIN,
    LOOPS,
    LOOPS_OF_TWO,
    PRODUCTS,
    STRUCTURED,
    convolutions,
    draw,
)
from tests.emulated import emulated_cuda

CUDA = Device("cuda", 0)
BATCHES = tuple({"s0": n} for n in (2, 3, 37, 130))
PAIRS = tuple({"s0": a, "s1": b} for a, b in ((3, 5), (2, 2), (5, 33), (2, 150)))
TYPE = re.compile(r"((?:f32|i64|bool)\[[^\]]*\])(?=[ ,)])")
SOURCE = re.compile(r"(iota|full|size_value)(\[[^\]]*)\]\(\)")
GROWING = """(x: f32[s0, 6], w: f32[6, 6]) {
  a: f32[s0, 6] = matmul(x, w);
  b: f32[s0, 6] = matmul(a, w);
  c: f32[s0, 6] = matmul(b, w);
  d: f32[s0, 6] = add(c, a);
  return d }"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with emulated_cuda():
        yield


def on_cuda(text: str) -> str:
    """The same graph with its values on the device."""
    return SOURCE.sub(r"\1\2, device=device('cuda:0')]()", TYPE.sub(r"\1@cuda:0", text))


def check(text: str, sizes: Sequence[dict[str, int]], ulps: float = 200.0) -> Compiled:
    """Compile once, run for all sizes, twice in a row, then in another order."""
    graph = parse_graph(text)
    compiled = compile(parse_graph(on_cuda(text)))
    for values in (*(v for v in sizes for _ in range(2)), *reversed(sizes)):
        fixed = concrete(graph, values)
        arrays = draw(fixed)
        expected = evaluate(fixed, arrays)
        given = list(map(space_at(CUDA).copied_in, arrays))
        for position, found in enumerate(compiled.executable.run(given)):
            wrong = disagreement(host_copy(found), expected[position], ulps)
            assert not wrong, f"{values}, output {position}: {wrong}\n{compiled.schedule}"
    assert not compiled.lowered.fallbacks
    return compiled


@pytest.mark.parametrize("name", LOOPS)
def test_loops_take_any_batch(name: str) -> None:
    check(LOOPS[name], BATCHES)


@pytest.mark.parametrize("name", LOOPS_OF_TWO)
def test_loops_take_two_open_sizes(name: str) -> None:
    check(LOOPS_OF_TWO[name], PAIRS)


@pytest.mark.parametrize("name", ["a map and folds over all, over rows and to a number", "positions of extrema"])
def test_which_lanes_come_first_does_not_matter(name: str) -> None:
    with emulated_cuda(5):
        check(LOOPS[name], BATCHES[1:3])


@pytest.mark.parametrize("name", PRODUCTS)
def test_matrix_products_take_any_extent(name: str) -> None:
    check(PRODUCTS[name].replace("784", "40"), BATCHES[:3])


def test_attention_takes_any_batch_and_length() -> None:
    check(ATTENTION, PAIRS[:3])


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_kernels_take_any_batch(name: str) -> None:
    check(STRUCTURED[name].replace("40", "12"), BATCHES[1:3])


def test_convolutions_take_any_batch() -> None:
    check(convolutions(4).replace("16, 16]", "5, 5]").replace("(16, 16)", "(5, 5)"), BATCHES[:2])


def test_a_chain_of_products_is_one_graph_for_each_size() -> None:
    compiled = check(CHAIN, BATCHES[:3])
    counts = compiled.executable.device_counts()
    assert (counts.runs, counts.graphs) == (9, 3)


@pytest.mark.parametrize("name", [*LOOPS, *LOOPS_OF_TWO])
def test_the_checked_form_finds_no_access_outside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check", True)
    check({**LOOPS, **LOOPS_OF_TWO}[name], PAIRS[:2])


def test_the_text_is_the_same_whatever_sizes_came_first() -> None:
    """Grids are planned by typical sizes, never by those of the call at hand."""

    def texts(hint: int) -> list[str]:
        graph = parse_graph(on_cuda(CHAIN))
        sizes = {"s0": hint, "s1": hint}
        for value in (*graph.inputs, *graph.definitions()):
            value.type = value.type.with_shape(with_hints(value.type.shape, sizes))
        (run,) = compile(graph).lowered.device_runs()
        return [work.kernel.text for work in run.work if isinstance(work, Launch)]

    assert texts(2) == texts(5000)


def test_temporaries_grow_with_the_sizes_and_old_graphs_go() -> None:
    """What a graph was made for is elsewhere after that."""
    compiled = check(GROWING, [{"s0": n} for n in (2, 3, 400, 3, 1200, 2)])
    assert compiled.executable.arena_bytes >= 2 * 1200 * 6 * 4


def test_an_op_that_is_written_for_its_sizes_says_so() -> None:
    line = "y: f32[s0, s0] = cholesky[](x);"
    with pytest.raises(SpecializeSize, match="the kernel of cholesky is written for its sizes"):
        compile(parse_graph(on_cuda(f"(x: f32[s0, s0]) {{ {line} return y }}")))


def test_sums_over_any_number_of_rows_are_the_same_bits_in_every_run() -> None:
    text = """(x: f32[s0, 7]@cuda:0) {
      s: f32[7]@cuda:0 = sum[axes=(0,)](x);
      t: f32[]@cuda:0 = sum[axes=(0, 1)](x);
      return s, t }"""
    step = compile(parse_graph(text)).executable
    x = space_at(CUDA).copied_in(np.random.default_rng(0).standard_normal((1000, 7)).astype("f4"))
    first, *others = [[host_copy(a).tobytes() for a in step.run([x])] for _ in range(3)]
    assert all(other == first for other in others)
