"""Sizes that a step counts itself: positions of true elements, and what is computed at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.compiler import Compiled, compile
from autojit.core.errors import DTypeError, SpecializeSize, UsageError
from autojit.core.sizes import evaluate, expression_of, named_size
from autojit.ir import parse_graph
from autojit.ir.concrete import concrete
from autojit.ops.counted_positions import Positions
from autojit.schedule.counts import upper_bound
from tests.codegen.agreement import disagreement
from tests.ops.laws import type_of

Arrays = Sequence[NDArray[Any]]
BATCHES = tuple({"s0": n} for n in (2, 3, 64, 1000, 5))
SHARES = (0.5, 0.0, 1.0, 0.1)  # of true elements


def check(text: str, sizes: Sequence[dict[str, int]], reference: Callable[..., Arrays]) -> Compiled:
    graph = parse_graph(text)
    compiled = compile(graph)
    rng = np.random.default_rng(0)
    for values in sizes:
        types = [concrete(v.type, values) for v in graph.inputs]
        for share in SHARES:
            arrays = [
                np.asarray(rng.random(t.shape) < share)
                if t.dtype.kind == "bool"
                else rng.standard_normal(t.shape).astype(t.dtype.numpy)
                for t in types
            ]
            expected = reference(*arrays)
            for _ in range(2):
                for found, wanted in zip(compiled.executable.run(arrays), expected, strict=True):
                    wrong = disagreement(found, np.asarray(wanted), 64.0)
                    assert not wrong, f"{values}, {share} true: {wrong}\n{compiled.schedule}"
    return compiled


def test_elements_under_a_mask_of_fixed_size() -> None:
    text = """(m: bool[100], x: f32[100]) {
      p: i64[u0] = positions[count=u0](m);
      y: f32[u0] = index_select[axis=0](x, p);
      z: f32[u0] = tanh(y);
      s: f32[] = sum[axes=(0,)](z);
      return s, z, p }"""
    compiled = check(text, [{}], lambda m, x: (np.tanh(x[m]).sum(), np.tanh(x[m]), np.flatnonzero(m)))
    assert compiled.lowered.fallbacks == ()
    assert compiled.executable.counted == ("u0",)


def test_a_mean_over_counted_elements_of_any_batch() -> None:
    text = """(m: bool[s0, 8], x: f32[s0, 8]) {
      p: i64[u0] = positions[count=u0](m);
      f: f32[8*s0] = reshape[shape=(8*s0,)](x);
      y: f32[u0] = index_select[axis=0](f, p);
      z: f32[u0] = square(y);
      n: f32[] = size_value[size=u0, dtype=f32]();
      s: f32[] = sum[axes=(0,)](z);
      q: f32[] = add(s, n);
      return q, z }"""
    check(text, BATCHES, lambda m, x: (np.square(x[m]).sum() + np.float32(m.sum()), np.square(x[m])))


def test_products_with_counted_rows_and_their_scatter_back() -> None:
    text = """(m: bool[s0], x: f32[s0, 8], w: f32[8, 5]) {
      p: i64[u0] = positions[count=u0](m);
      y: f32[u0, 8] = index_select[axis=0](x, p);
      z: f32[u0, 5] = matmul(y, w);
      t: f32[8, u0] = permute[axes=(1, 0)](y);
      g: f32[8, 5] = matmul(t, z);
      b: f32[s0, 8] = full[value=0.0, dtype=f32, shape=(s0, 8)]();
      d: f32[s0, 8] = index_update[axis=0, combine='add'](b, y, p);
      return z, g, d }"""
    check(text, BATCHES, lambda m, x, w: (x[m] @ w, x[m].T @ (x[m] @ w), np.where(m[:, None], x, np.float32(0))))


def test_what_reads_only_a_count_runs_after_it_is_known() -> None:
    text = """(m: bool[s0], x: f32[s0]) {
      n: f32[] = size_value[size=u0, dtype=f32]();
      i: i64[u0] = iota[shape=(u0,), axis=0, dtype=i64]();
      j: i64[u0] = add(i, i);
      p: i64[u0] = positions[count=u0](m);
      k: i64[u0] = add(j, p);
      return n, j, k }"""
    check(
        text,
        BATCHES,
        lambda m, x: (np.float32(m.sum()), 2 * np.arange(m.sum()), 2 * np.arange(m.sum()) + np.flatnonzero(m)),
    )


def test_a_count_of_counted_elements() -> None:
    text = """(m: bool[s0], x: f32[s0]) {
      p: i64[u0] = positions[count=u0](m);
      y: f32[u0] = index_select[axis=0](x, p);
      z: f32[] = full[value=0.0, dtype=f32, shape=()]();
      c: bool[u0] = gt(y, z);
      q: i64[u1] = positions[count=u1](c);
      w: f32[u1] = index_select[axis=0](y, q);
      e: f32[u1] = exp(w);
      return e, y }"""
    check(text, BATCHES, lambda m, x: (np.exp(x[m][x[m] > 0]), x[m]))


def test_memory_is_planned_for_the_most_that_can_be_counted() -> None:
    u, s = named_size("u0", 3, 0), named_size("s0", 9)
    bounds = {"u0": expression_of(s * 8)}
    for size, most in ((u * 4 + 1, 8 * 4 * 9 + 1), (u // 2, 36), (s - u, 9), (u % 5, 5), (s * 2, 18)):
        assert evaluate(upper_bound(size, bounds), {"s0": 9}) == most


def test_a_number_that_was_fixed_is_checked() -> None:
    text = """(m: bool[6], x: f32[6]) {
      p: i64[2] = positions[count=2](m);
      y: f32[2] = index_select[axis=0](x, p);
      return y }"""
    executable = compile(parse_graph(text)).executable
    x = np.arange(6, dtype=np.float32)
    (found,) = executable.run([np.array([0, 1, 0, 0, 1, 0], np.bool_), x])
    assert found.tolist() == [1.0, 4.0]
    with pytest.raises(UsageError, match="not 2 true elements"):
        executable.run([np.ones(6, np.bool_), x])


def test_a_mask_is_a_mask() -> None:
    with pytest.raises(DTypeError, match="no mask"):
        Positions(named_size("u0", 3, 0)).result_type(type_of(np.ones(4)))


def test_a_part_of_an_argument_that_a_count_places_is_asked_for() -> None:
    text = """(m: bool[s0], x: f32[s0, 8], w: f32[8, 4]) {
      p: i64[u0] = positions[count=u0](m);
      l: f32[max(0, s0-u0), 8] = slice[starts=(u0, 0), stops=(s0, 8), steps=(1, 1)](x);
      y: f32[max(0, s0-u0), 4] = matmul(l, w);
      return p, y }"""
    with pytest.raises(SpecializeSize, match="depends on it"):
        compile(parse_graph(text))
