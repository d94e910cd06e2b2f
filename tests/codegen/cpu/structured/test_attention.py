"""Attention's kernels on the CPU against the eager rule: any extents, masks, random numbers, threads, strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.lower import lower
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.codegen.target import host_target
from autojit.compiler import compile
from autojit.core.dtypes import DType, bfloat16, float16, float32, float64
from autojit.core.machine import Machine
from autojit.ops.attention import Attending, Attention, AttentionAdjoint
from autojit.passes.expand import expand
from tests.codegen.cuda.attention_kernels import Array, drawn, mask_for, with_adjoint
from tests.on_cpu import optimize, schedule
from tests.ops.laws import graph_of

assert CPU_MACHINE.attention is not None
ALWAYS: Machine = replace(CPU_MACHINE, attention=replace(CPU_MACHINE.attention, least_table_bytes=0))
"""A CPU that writes no attention out."""

TOLERANCE = {float32: 3e-6, float64: 1e-13, float16: 2.0**-10, bfloat16: 2.0**-7}
"""Of the largest magnitude."""

# queries, keys, elements of a key, elements of a value; matrices: several blocks and tiles, which nothing divides
EXTENTS = {
    "one tile": ((5, 7, 3, 4), ()),
    "more queries": ((530, 260, 5, 3), (2,)),
    "more keys": ((130, 1100, 4, 17), ()),
    "one element": ((20, 300, 1, 1), (1, 3)),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = aj.get_num_threads()
    yield
    aj.set_num_threads(before)


def computed(op: Attending, operands: list[Array], n_threads: int = 2) -> list[Array]:
    """What the kernel makes of operands; nothing is called back."""
    aj.set_num_threads(n_threads)
    with compiling_by(cpu_backend(ALWAYS)):
        found = compile(graph_of(op, operands))
    assert op.name in [entry.label for entry in found.lowered.single_entries()] and not found.lowered.fallbacks
    return list(found.executable.run([np.ascontiguousarray(x) for x in operands]))


def check(op: Attention, operands: list[Array], seed: int) -> None:
    """The op and its derivative are the eager rule's, to the same bits whatever the number of threads."""
    dtype = next(d for d in TOLERANCE if d.numpy == operands[0].dtype)
    adjoint, all_operands = with_adjoint(op, operands, np.random.default_rng(seed))
    for one, given in ((op, operands), (adjoint, all_operands)):
        found = computed(one, given)
        for mine, expected in zip(found, one.eager(*given), strict=True):
            mine, expected = (np.asarray(x).astype(np.float64) for x in (mine, expected))
            most = max(float(np.abs(expected).max()), 1e-3)
            np.testing.assert_allclose(mine, expected, rtol=0, atol=4 * TOLERANCE[dtype] * most)
        for mine, other in zip(found, computed(one, given, n_threads=1), strict=True):
            assert mine.tobytes() == other.tobytes()


@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", EXTENTS)
def test_kernels_compute_the_eager_rule(name: str, is_causal: bool) -> None:
    extents, batch = EXTENTS[name]
    seed = 2 * list(EXTENTS).index(name) + is_causal
    dtype = (float32, float64)[seed % 2]
    check(Attention(0.4, is_causal, False, 0.0), drawn(np.random.default_rng(seed), extents, batch, dtype), seed)


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_masks_remove_keys_and_a_query_without_any_has_no_part_in_anything(kind: str) -> None:
    generator = np.random.default_rng(7)
    operands = drawn(generator, (270, 300, 6, 5), (2,), float32)
    operands.append(mask_for(generator, operands, kind))
    op = Attention(0.3, False, True, 0.0)
    check(op, operands, 7)
    values, _ = computed(op, operands)
    assert (values[:, 135] == 0).all()


@pytest.mark.parametrize("keys", [300, 301], ids=["whole blocks of words", "parts of blocks"])
def test_dropped_weights_are_those_of_the_eager_rule(keys: int) -> None:
    operands = drawn(np.random.default_rng(8), (270, keys, 4, 3), (2,), float32)
    check(Attention(0.3, keys % 2 == 0, False, 0.3), [*operands, np.array([5, 1 << 33])], 8)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_halves_are_computed_in_float32(dtype: DType) -> None:
    check(Attention(0.3, True, False, 0.0), drawn(np.random.default_rng(9), (18, 36, 18, 16), (), dtype), 9)


def test_large_scores_and_those_that_rise_from_tile_to_tile_lose_nothing() -> None:
    q, k, v = drawn(np.random.default_rng(10), (20, 1300, 4, 3), (), float64)
    k *= np.linspace(1, 900, 1300)[:, None]
    check(Attention(1.0, False, False, 0.0), [q, k, v], 10)


def test_what_is_no_number_stays_with_its_query() -> None:
    q, k, v = drawn(np.random.default_rng(12), (300, 290, 4, 3), (), float32)
    q[4] = np.nan
    found, _ = computed(Attention(0.3, False, False, 0.0), [q, k, v])
    assert np.isnan(found[4]).all() and np.isfinite(np.delete(found, 4, 0)).all()


def test_operands_are_read_where_they_are_and_masks_without_being_repeated() -> None:
    """Heads are views of one projection; the arena of the step holds nothing as large as the scores."""
    generator = np.random.default_rng(3)
    x = aj.tensor(generator.normal(size=(2, 896, 3, 2, 8)), dtype=aj.float32, requires_grad=True)
    keep = aj.tensor(generator.random((896, 896)) < 0.8)

    def step(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
        y = aj.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return y.detach(), aj.autograd.grad((y * y).sum(), x)[0]

    compiled = aj.jit(step)
    found = compiled(x)
    for mine, expected in zip(found, step(x), strict=True):
        most = float(expected.abs().max())
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=0, atol=2e-5 * most)
    sizes = compiled.memory()
    assert "attention_adjoint" in compiled.show("schedule")
    assert sizes["arena_bytes"] <= 8 * x.numel() * 4 < 4 * 896 * 896 * 4


def test_memory_of_the_derivative_grows_with_the_number_of_tokens_only() -> None:
    """Shares of the queries' cotangents, and each worker's tables of a block and a tile."""

    def working(tokens: int) -> int:
        op = Attention(0.3, False, False, 0.0)
        operands = [np.broadcast_to(np.float32(0), (2, tokens, 64))] * 3
        line = np.broadcast_to(np.float32(0), (2, tokens))
        adjoint = AttentionAdjoint(op.scale, op.is_causal, op.has_mask, op.dropped, False)
        graph = optimize(graph_of(adjoint, [*operands, operands[0], line, operands[0]]))
        return lower(schedule(graph), host_target()).scratch_bytes(2)

    assert working(4096) <= 4 * working(1024)
    assert working(2048) <= 8e6 < 2 * 2048 * 2048 * 4 / 4


def written_out(op: Attention, extents: tuple[int, int, int, int], batch: tuple[int, ...]) -> bool:
    operands = [np.broadcast_to(np.float32(0), (*batch, *shape)) for shape in _shapes(extents)]
    return "attention" not in [node.op.name for node in expand(graph_of(op, operands), CPU_MACHINE).nodes]


def _shapes(extents: tuple[int, int, int, int]) -> Any:
    queries, keys, key_width, value_width = extents
    return (queries, key_width), (keys, key_width), (keys, value_width)


def test_scores_that_stay_in_a_cache_are_written_out_unless_there_are_many() -> None:
    plain, causal = (Attention(0.3, is_causal, False, 0.0) for is_causal in (False, True))
    assert written_out(plain, (512, 512, 8, 8), (2,)) and not written_out(plain, (1024, 1024, 8, 8), ())
    assert written_out(causal, (256, 256, 8, 8), (2,)) and not written_out(causal, (512, 512, 8, 8), ())
    assert written_out(plain, (1024, 1024, 128, 8), ()) and not written_out(plain, (2048, 2048, 128, 8), ())
    assert not written_out(plain, (256, 256, 8, 8), (128,))
