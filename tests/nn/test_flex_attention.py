"""Attention with functions of its scores is attention to the scores that the functions leave."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.autograd import gradcheck, gradgradcheck
from autojit.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)

RNG = np.random.default_rng(0)
BATCH, HEADS, QUERIES, KEYS = 2, 4, 19, 21


def leaf(*shape: int, dtype: aj.dtype = aj.float64) -> aj.Tensor:
    return aj.tensor(RNG.normal(size=shape), dtype=dtype, requires_grad=True)


def operands(heads: int = HEADS, queries: int = QUERIES, keys: int = KEYS) -> tuple[aj.Tensor, aj.Tensor, aj.Tensor]:
    return leaf(BATCH, HEADS, queries, 5), leaf(BATCH, heads, keys, 5), leaf(BATCH, heads, keys, 3)


BIAS = leaf(HEADS, QUERIES + KEYS)
DOCUMENT = aj.tensor(np.sort(RNG.integers(0, 3, (BATCH, KEYS))))


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def in_document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return DOCUMENT[b, q] == DOCUMENT[b, k]


def near(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q - k).abs() <= 4


def late(b: Any, h: Any, q: Any, k: Any) -> Any:
    """Early queries see nothing."""
    return (q > 7) & (k > h)


def biased(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + BIAS[h, q - k + KEYS]


def soft(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 3 * aj.tanh(score / 3) + (h + 1) * (k - q) * 0.1


SCORES: dict[str, tuple[Callable[..., Any] | None, Callable[[aj.Tensor], aj.Tensor]]] = {
    "none": (None, lambda s: s),
    "bias": (biased, lambda s: s + BIAS[:, aj.arange(QUERIES)[:, None] - aj.arange(KEYS) + KEYS]),
    "soft": (
        soft,
        lambda s: 3 * aj.tanh(s / 3) + (aj.arange(HEADS)[:, None, None] + 1)
        * (aj.arange(KEYS) - aj.arange(QUERIES)[:, None]) * 0.1,
    ),
}  # fmt: skip
MASKS = {
    "all": noop_mask,
    "causal": causal,
    "document": and_masks(causal, in_document),
    "either": or_masks(near, in_document),
    "late": late,
}


def block_mask(name: str) -> BlockMask:
    return create_block_mask(MASKS[name], BATCH, HEADS, QUERIES, KEYS, BLOCK_SIZE=(4, 8))


def by_hand(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor, scores: str, mask: str) -> tuple[aj.Tensor, aj.Tensor]:
    s = SCORES[scores][1](q @ k.mT / math.sqrt(q.shape[-1]))
    s = s.masked_fill(~create_mask(MASKS[mask], BATCH, HEADS, QUERIES, KEYS), float("-inf"))
    sees = (s > float("-inf")).any(-1, keepdim=True)
    weights = aj.where(sees, aj.softmax(aj.where(sees, s, 0.0), -1), 0.0)
    return weights @ v, aj.where(sees[..., 0], aj.logsumexp(aj.where(sees, s, 0.0), -1), float("-inf"))


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("scores", "mask"), [("none", "document"), ("bias", "late"), ("soft", "either")])
def test_values_and_gradients_are_those_of_tables(scores: str, mask: str, is_compiled: bool) -> None:
    q, k, v = operands()
    blocks = block_mask(mask)
    bar = aj.tensor(RNG.normal(size=(BATCH, HEADS, QUERIES, 3)))
    leaves = [q, k, v, *[BIAS] * (scores == "bias")]

    def flexible(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor) -> Any:
        y, aux = flex_attention(q, k, v, SCORES[scores][0], blocks, return_aux=AuxRequest(lse=True))
        total = (y * bar).sum() + aux.lse.nan_to_num(neginf=0.0).sum()
        return y, aux.lse, aj.autograd.grad(total, [q, k, v, *leaves[3:]])

    y, lse, grads = (aj.jit(flexible) if is_compiled else flexible)(q, k, v)
    wanted, wanted_lse = by_hand(q, k, v, scores, mask)
    total = (wanted * bar).sum() + wanted_lse.nan_to_num(neginf=0.0).sum()
    aj.testing.assert_close(y, wanted)
    aj.testing.assert_close(lse, wanted_lse)
    for found, expected in zip(grads, aj.autograd.grad(total, leaves), strict=True):
        aj.testing.assert_close(found, expected)


def test_derivatives_are_those_of_differences() -> None:
    q, k, v, bias = leaf(1, 2, 3, 2), leaf(1, 2, 4, 2), leaf(1, 2, 4, 1), leaf(2, 4)
    blocks = create_block_mask(lambda b, h, q, k: (q >= k) | (h > 0), None, 2, 3, 4, BLOCK_SIZE=2)

    def function(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor, bias: aj.Tensor) -> aj.Tensor:
        found: aj.Tensor = flex_attention(q, k, v, lambda s, b, h, q, k: s * aj.exp(bias[h, k]), blocks, scale=0.7)
        return found

    assert gradcheck(function, (q, k, v, bias))
    assert gradgradcheck(function, (q, k, v, bias))


def test_heads_and_batches_share_keys() -> None:
    q, k, v = operands(heads=2)
    blocks = block_mask("late")
    found = flex_attention(q, k[:1], v[:1], soft, blocks, enable_gqa=True)
    repeated = [x[:1].repeat_interleave(2, 1).expand(BATCH, -1, -1, -1) for x in (k, v)]
    aj.testing.assert_close(found, flex_attention(q, *repeated, soft, blocks))


def test_blocks_are_what_a_mask_leaves() -> None:
    mask = create_mask(late, None, HEADS, 16, 16)
    blocks = create_block_mask(late, None, HEADS, 16, 16, BLOCK_SIZE=4)
    tiles = mask.reshape(1, HEADS, 4, 4, 4, 4).transpose(3, 4)
    aj.testing.assert_close(blocks.to_dense() != 0, tiles.flatten(-2).any(-1))
    assert blocks.full_kv_num_blocks is not None
    assert int(blocks.full_kv_num_blocks.sum()) == int(tiles.flatten(-2).all(-1).sum())
    again = BlockMask.from_kv_blocks(*blocks.as_tuple()[2:6], BLOCK_SIZE=4)
    assert str(again) == str(blocks)
    assert blocks[0, 1].shape == (1, 1, 16, 16)
    aj.testing.assert_close(blocks._adjust(8, 12).to_dense(), blocks.to_dense()[..., :2, :3])


def test_blocks_that_are_not_listed_are_not_seen() -> None:
    q, k, v = operands()
    counts, indices = aj.ones(1, 1, 5, dtype=aj.int32), aj.zeros(1, 1, 5, 3, dtype=aj.int32)
    blocks = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=(4, 8), seq_lengths=(QUERIES, KEYS))
    first = create_block_mask(lambda b, h, q, k: k < 8, None, None, QUERIES, KEYS)
    aj.testing.assert_close(flex_attention(q, k, v, None, blocks), flex_attention(q, k, v, None, first))


def test_halves_are_rounded_once() -> None:
    q, k, v = (x.detach().bfloat16() for x in operands())
    found = flex_attention(q, k, v, soft, block_mask("causal"))
    wide = flex_attention(q.float(), k.float(), v.float(), soft, block_mask("causal"))
    assert found.dtype is aj.bfloat16
    aj.testing.assert_close(found, wide.bfloat16())


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda q, k, v: (q[0], k, v), NotImplementedError, "4D"),
        (lambda q, k, v: (q, k[:, :2], v[:, :2]), ValueError, "same number of heads"),
        (lambda q, k, v: (q, k[..., :2], v), ValueError, "same embedding dimension"),
        (lambda q, k, v: (q, k[:1], v[:1]), ValueError, "same batch size"),
        (lambda q, k, v: (q, k, v, None, block_mask("causal")[:, 0]), RuntimeError, "sliced BlockMask"),
        (lambda q, k, v: (q[:, :, :7], k, v, None, block_mask("causal")), ValueError, "larger length"),
        (lambda q, k, v: (q, k, v, lambda s, b, h, q, k: 1.0), ValueError, "`score_mod` must only return Tensors"),
        (lambda q, k, v: (q.repeat(1, 1, 2, 1), k, v, None, block_mask("causal")), ValueError, "smaller length"),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_are_refused(change: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        flex_attention(*change(*operands()))
