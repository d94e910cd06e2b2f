"""Rows in blocks: every row is what it would be alone, whatever its place and its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.compiler import Compiled, compile
from autojit.core.config import config
from autojit.ir import evaluate, parse_graph
from autojit.ir.concrete import concrete
from autojit.runtime.pool import get_num_threads, set_num_threads
from tests.codegen.agreement import disagreement
from tests.codegen.open_graphs import draw
from tests.fuzz_graphs import cut

SIZES = ((1, 5), (15, 20), (16, 3), (17, 8), (100, 1), (129, 31), (300, 16))
TWO_SIDED = """(x: {t}[{m}, {k}], q: {t}[{k}], s: {t}[{m}]) {{
  c: {t}[{k}, 1] = reshape[shape=({k}, 1)](q);
  z: {t}[{m}, 1] = matmul(x, c);
  d: {t}[{m}, 1] = reshape[shape=({m}, 1)](s);
  e: {t}[{m}, 1] = {middle};
  r: {t}[{m}] = reshape[shape=({m},)](e);
  u: {t}[{k}, {m}] = permute[axes=(1, 0)](x);
  g: {t}[{k}, 1] = matmul(u, e);
  n: {t}[] = sum[axes=(0,)](r);
  return r, g, n
}}"""


def two_sided(m: int | str, k: int | str, dtype: str = "f32", middle: str = "sub(z, d)") -> str:
    return TWO_SIDED.format(m=m, k=k, t=dtype, middle=middle)


def inputs_of(m: int, k: int, dtype: Any, rng: np.random.Generator) -> list[NDArray[Any]]:
    shapes = ((m, k), (k,), (m,))
    if np.dtype(dtype).kind in "iu":
        return [rng.integers(-5, 5, shape).astype(dtype) for shape in shapes]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def run(text: str, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    return compile(parse_graph(text)).executable.run(inputs)


@pytest.mark.parametrize(("short", "dtype"), [("f32", np.float32), ("f64", np.float64), ("i64", np.int64)])
def test_a_two_sided_product_is_what_its_parts_are(short: str, dtype: Any, rng: np.random.Generator) -> None:
    for m, k in SIZES if short == "f32" else SIZES[:: len(SIZES) // 2]:
        x, q, s = inputs_of(m, k, dtype, rng)
        row = x @ q - s
        for found, expected in zip(run(two_sided(m, k, short), [x, q, s]), (row, x.T @ row, row.sum()), strict=True):
            assert not disagreement(found.reshape(np.shape(expected)), np.asarray(expected), 64.0), (m, k)


def test_long_bodies_beside_a_product_are_computed_row_by_row(rng: np.random.Generator) -> None:
    chain = "t0: f32[37, 6] = mul(x, w); " + " ".join(
        f"t{k + 1}: f32[37, 6] = {'sin' if k % 2 else 'add'}(t{k}{'' if k % 2 else ', x'});" for k in range(20)
    )
    text = f"""(x: f32[37, 6], q: f32[6], w: f32[37, 1]) {{
      v: f32[37, 6] = mul(x, q);
      z: f32[37] = sum[axes=(1,)](v);
      {chain}
      g: f32[6] = sum[axes=(0,)](t20);
      return z, g }}"""
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in ((37, 6), (6,), (37, 1))]
    for found, expected in zip(run(text, inputs), evaluate(parse_graph(text), inputs), strict=True):
        assert not disagreement(found, expected, 64.0)


def test_a_row_is_the_same_bits_wherever_it_is(rng: np.random.Generator) -> None:
    for m, k in ((300, 20), (77, 13), (40, 100)):
        x, q, s = inputs_of(m, k, np.float32, rng)
        x[:], s[:] = x[0], s[0]
        row = run(two_sided(m, k), [x, q, s])[0]
        assert len({value.tobytes() for value in row}) == 1


def test_what_is_not_finite_stays_in_its_row(rng: np.random.Generator) -> None:
    for m, k in ((50, 3), (50, 20), (33, 9)):
        x, q, s = inputs_of(m, k, np.float32, rng)
        clean = run(two_sided(m, k), [x, q, s])[0]
        x[m // 2, k - 1], x[m // 2 + 1, 0] = np.nan, np.inf
        row = run(two_sided(m, k), [x, q, s])[0]
        assert np.isnan(row[m // 2]) and np.isinf(row[m // 2 + 1])
        others = np.delete(np.arange(m), [m // 2, m // 2 + 1])
        assert np.array_equal(row[others], clean[others])


def test_results_do_not_depend_on_threads(rng: np.random.Generator) -> None:
    inputs = inputs_of(60_000, 9, np.float32, rng)
    compiled = compile(parse_graph(two_sided(60_000, 9)))
    before = get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append([y.tobytes() for y in compiled.executable.run(inputs)])
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_open_sizes_are_any_sizes() -> None:
    compiled: Compiled = compile(parse_graph(two_sided("s0", "s1")))
    for m in (1, 8, 37, 200):
        for k in (1, 5, 20):
            fixed = concrete(compiled.graph, {"s0": m, "s1": k})
            arrays = draw(fixed)
            for found, expected in zip(compiled.executable.run(arrays), evaluate(fixed, arrays), strict=True):
                assert not disagreement(found, expected, 64.0), (m, k)


def test_an_empty_matrix_gives_zeros() -> None:
    for m, k in ((0, 4), (4, 0)):
        x, q, s = (np.zeros(shape, np.float32) for shape in ((m, k), (k,), (m,)))
        row, columns, total = run(two_sided(m, k), [x, q, s])
        assert row.shape == (m,) and not columns.any() and not total.any()


def test_row_functions_and_column_extremes_agree_with_the_reference(rng: np.random.Generator) -> None:
    text = """(x: f32[150, 11], w: f32[11]) {
      a: f32[150] = sum[axes=(1,)](x);
      b: f32[150, 1] = reshape[shape=(150, 1)](a);
      t: f32[150, 1] = tanh(b);
      y: f32[150, 11] = mul(x, t);
      z: f32[150, 11] = add(y, w);
      h: f32[11] = amax[axes=(0,)](z);
      l: f32[11] = amin[axes=(0,)](z);
      p: f32[150] = sum[axes=(1,)](z);
      return z, h, l, p
    }"""
    inputs = [rng.standard_normal((150, 11)).astype(np.float32), rng.standard_normal(11).astype(np.float32)]
    expected = evaluate(parse_graph(text), inputs)
    for found in (run(text, inputs), _checked(text, inputs)):
        for one, other in zip(found, expected, strict=True):
            assert not disagreement(one, other, 32.0)


def _checked(text: str, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    with cut("checked"):
        assert config.check
        return run(text, inputs)
