"""Kernels of attention with a function of its scores against tables of all scores: any extents, blocks, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.core.machine import Machine
from autojit.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

assert CPU_MACHINE.attention is not None
ALWAYS: Machine = replace(CPU_MACHINE, attention=replace(CPU_MACHINE.attention, least_table_bytes=0))
"""A CPU that writes no attention out."""

RNG = np.random.default_rng(0)
DOCUMENT = aj.tensor(np.sort(RNG.integers(0, 4, (2, 1100))))
BIAS = aj.tensor(RNG.normal(size=(3, 2200)), dtype=aj.float32)
FACTOR = aj.tensor(0.7)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = aj.get_num_threads()
    yield
    aj.set_num_threads(before)


def plain(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s


def soft(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return aj.tanh(s * FACTOR) + BIAS[h, q - k].to(s.dtype) * 0.5


def steep(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    """Has no slope where the mask removes a score, and is detached in part."""
    return aj.sqrt(aj.where(q >= k, s * s + 1, -1.0)) + s.detach()


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def in_document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (DOCUMENT[b, q] == DOCUMENT[b, k]) & (q > 40 * h)


def compute(
    score_mod: Callable[..., Any], blocks: BlockMask | None, extents: tuple[int, ...], shared: int, dtype: aj.dtype
) -> tuple[Any, Any, Any]:
    """(eager, compiled by two threads, by one), and what the compiled step is made of."""
    queries, keys, key_width, value_width = extents
    rng = np.random.default_rng(1)
    shapes = (2, 3, queries, key_width), (2, shared, keys, key_width), (2, shared, keys, value_width)
    operands = [aj.tensor(rng.normal(size=shape), dtype=dtype, requires_grad=True) for shape in shapes]

    def step(*operands: aj.Tensor) -> list[aj.Tensor]:
        y, lse = flex_attention(*operands, score_mod, blocks, enable_gqa=True, return_lse=True)
        return [y.detach(), lse.detach(), *aj.autograd.grad((y * aj.cos(y)).sum(), operands)]

    found: list[Any] = []
    with compiling_by(cpu_backend(ALWAYS)):
        for n_threads in (2, 1):
            aj.set_num_threads(n_threads)
            compiled = aj.jit(step)
            found.append(compiled(*operands))
    assert "flex_attention_adjoint" in compiled.show("schedule") and not compiled.stats()["fallbacks"]
    return step(*operands), found[0], found[1]


@pytest.mark.parametrize(
    ("score_mod", "mask", "extents", "shared", "dtype"),
    [
        (plain, None, (5, 7, 3, 4), 3, aj.float64),
        (soft, None, (270, 300, 6, 5), 1, aj.float32),
        (steep, causal, (530, 260, 5, 3), 3, aj.float64),
        (soft, in_document, (130, 1100, 4, 17), 3, aj.float32),
    ],
    ids=["plain", "soft", "steep and causal", "soft in documents"],
)
def test_kernels_compute_what_tables_do(
    score_mod: Any, mask: Any, extents: tuple[int, ...], shared: int, dtype: aj.dtype
) -> None:
    blocks = None if mask is None else create_block_mask(mask, 2, 3, *extents[:2], BLOCK_SIZE=(32, 48))
    expected, found, other = compute(score_mod, blocks, extents, shared, dtype)
    for mine, wanted, one_thread in zip(found, expected, other, strict=True):
        seen = wanted.isfinite()
        assert (mine.isfinite() == seen).all()
        most = float(wanted[seen].abs().max())
        tolerance = (2e-5 if dtype is aj.float32 else 1e-12) * most
        np.testing.assert_allclose(mine[seen].numpy(), wanted[seen].numpy(), rtol=0, atol=tolerance)
        assert mine.numpy().tobytes() == one_thread.numpy().tobytes()


def test_blocks_that_are_not_listed_are_not_seen() -> None:
    counts, indices = (
        aj.ones(1, 1, 5, dtype=aj.int32),
        aj.arange(5, dtype=aj.int32).reshape(1, 1, 5, 1).expand(1, 1, 5, 5),
    )
    blocks = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=64, seq_lengths=(300, 320))
    expected, found, _ = compute(plain, blocks, (300, 320, 4, 3), 3, aj.float64)
    for mine, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), wanted.numpy(), rtol=0, atol=1e-12 * float(wanted.abs().max()))


def test_what_no_kernel_can_hold_is_written_out() -> None:
    """An index that may be anywhere, and a row of what is read."""
    places = aj.tensor(RNG.integers(0, 6, 7))
    table = aj.tensor(RNG.normal(size=(7, 4)))
    functions = (
        lambda s, b, h, q, k: s + table[places[q], 0],
        lambda s, b, h, q, k: s + table[k].sum(),
    )
    q, k, v = (aj.tensor(RNG.normal(size=(1, 2, 6, 3))) for _ in range(3))
    for function in functions:
        with compiling_by(cpu_backend(ALWAYS)):
            compiled = aj.jit(lambda q, k, v, function=function: flex_attention(q, k, v, function))
            found = compiled(q, k, v)
        assert "flex_attention" not in compiled.show("schedule").replace("flex_attention.py", "")
        np.testing.assert_allclose(found.numpy(), flex_attention(q, k, v, function).numpy(), rtol=1e-12)
