"""A graph's program gives what the interpreter gives, in memory that is nobody else's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import autojit  # noqa: F401  (defines the ops)
from autojit.core.dtypes import float64
from autojit.ir import evaluate, parse_graph
from autojit.ops.fused_arrays import FusedArrays
from autojit.ops.graph_op import types_of
from autojit.ops.numpy_program import Program

GRAPHS = {
    "operands and constants": "(x: f64[3, 4]) { c: f64[2] = full[value=2, dtype=f64, shape=(2,)](); return x, c, x }",
    "one value twice": "(x: f64[3, 4]) { y: f64[3, 4] = tanh(x); return y, y }",
    "views of operands": "(x: f64[3, 4]) { y: f64[4, 3] = permute[axes=(1, 0)](x); return y, x }",
    "a result and views of it": "(x: f64[3, 4]) { y: f64[3, 4] = exp(x); z: f64[12] = reshape[shape=(12,)](y);"
    " w: f64[4, 3] = permute[axes=(1, 0)](y); return z, y, w }",
    "views alone": "(x: f64[3, 4]) { y: f64[3, 4] = exp(x); z: f64[12] = reshape[shape=(12,)](y);"
    " w: f64[2, 2] = slice[starts=(0, 0), stops=(2, 2), steps=(1, 1)](y); return z, w }",
    "columns": "(x: f64[3, 4]) { y: f64[4, 3] = permute[axes=(1, 0)](x); z: f64[4, 3] = exp(y); return z, y }",
    "numbers": "(x: f64[3, 4]) { s: f64[] = sum[axes=(0, 1)](x); e: f64[] = exp(s); f: f64[] = mul(e, s);"
    " return f, s }",
    "sums that keep axes": "(x: f64[3, 4]) { s: f64[3] = sum[axes=(1,)](x); r: f64[3, 1] = reshape[shape=(3, 1)](s);"
    " q: f64[3] = reshape[shape=(3,)](r); t: f64[3, 1] = reshape[shape=(3, 1)](q); b: f64[3, 4] ="
    " broadcast_to[shape=(3, 4)](t); y: f64[3, 4] = mul(b, x); z: f64[3, 4] = mul(b, b); return y, z, r }",
    "twice the same": "(x: f64[3, 4]) { a: f64[3, 4] = exp(x); b: f64[3, 4] = exp(x); c: f64[3, 4] = mul(a, b);"
    " s: f64[4] = sum[axes=(0,)](c); t: f64[4] = sum[axes=(0,)](c); u: f64[1, 4] = reshape[shape=(1, 4)](t);"
    " return b, s, u }",
    "names taken again": "(x: f64[3, 4]) { a: f64[3, 4] = exp(x); b: f64[3, 4] = mul(a, a); c: f64[3, 4] = add(b, x);"
    " d: f64[3, 4] = mul(c, b); e: f64[3, 4] = sub(d, c); return e }",
}


def check(graph: Any, arrays: list[Any]) -> None:
    kept = [a.copy() for a in arrays]
    program = Program(graph)
    with np.errstate(all="ignore"):
        wanted, found, again = evaluate(graph, arrays), program.run(*arrays), program.run(*arrays)
    for one, other in zip(wanted, found, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert other.flags.c_contiguous
        assert other.flags.writeable
    for one, other in itertools.combinations([*found, *again, *arrays], 2):
        are_given = any(one is a for a in arrays) and any(other is a for a in arrays)
        assert are_given or not np.shares_memory(one, other)
    for a, b in zip(arrays, kept, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("layout", ["rows", "columns", "spread"])
def test_a_program_is_its_graph(name: str, layout: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    laid_out = {"rows": x, "columns": np.asfortranarray(x), "spread": np.broadcast_to(x[:1], x.shape)}
    check(parse_graph(GRAPHS[name]), [laid_out[layout]])


def test_programs_of_composites_are_their_graphs() -> None:
    for op, arrays in FusedArrays.samples(float64):
        assert isinstance(op, FusedArrays)
        check(op.graph_of(types_of(arrays)), list(arrays))


def test_graphs_alike_but_for_extents_have_one_text() -> None:
    text = "(x: f64[{n}]) {{ y: f64[{n}] = tanh(x); z: f64[{n}] = mul(y, x); return z }}"
    first, second = (Program(parse_graph(text.format(n=n))).run for n in (3, 5))
    assert first.__code__ is second.__code__
