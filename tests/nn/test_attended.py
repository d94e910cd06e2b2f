"""Attention is the softmax of scores times values, whatever computes it: as an op, compiled, in transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import nn
from autojit.autograd import gradcheck, gradgradcheck

F = nn.functional

RNG = np.random.default_rng(0)


def leaf(*shape: int, dtype: aj.dtype = aj.float64) -> aj.Tensor:
    return aj.tensor(RNG.normal(size=shape), dtype=dtype, requires_grad=True)


def by_hand(
    q: aj.Tensor,
    k: aj.Tensor,
    v: aj.Tensor,
    mask: aj.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> aj.Tensor:
    """What the op stands for, where every query sees a key."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if is_causal:
        mask = aj.ones(q.shape[-2], k.shape[-2], dtype=aj.bool).tril()
    if mask is not None and mask.dtype is aj.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    return F.dropout(aj.softmax(scores, -1), dropout_p) @ v


KEEP = aj.tensor([[True, False, True], [False, True, True]])
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "bool mask": {"attn_mask": KEEP},
    "float mask": {"attn_mask": aj.where(KEEP, 0.3, float("-inf")).double()},
}


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences(name: str, is_compiled: bool) -> None:
    def function(q: aj.Tensor, k: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
        return F.scaled_dot_product_attention(q, k, v, **CASES[name])

    checked = aj.jit(function) if is_compiled else function
    operands = leaf(2, 2, 2), leaf(2, 3, 2), leaf(2, 3, 1)
    assert gradcheck(checked, operands, check_forward_ad=True)
    assert gradgradcheck(checked, operands)


def test_a_mask_that_learns_has_a_derivative() -> None:
    mask = leaf(2, 3)
    operands = leaf(2, 2, 2), leaf(2, 3, 2), leaf(2, 3, 1)
    assert gradcheck(lambda mask, *x: F.scaled_dot_product_attention(*x, attn_mask=mask), (mask, *operands))


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_random_shapes_agree_with_what_is_written_by_hand(is_causal: bool, mode: str) -> None:
    generator = np.random.default_rng(5)
    for _ in range(4):
        batch = tuple(int(n) for n in generator.integers(1, 4, generator.integers(0, 3)))
        queries, keys, width, other = (int(n) for n in generator.integers(1, 40, 4))
        operands = [leaf(*batch, *s, dtype=aj.float32) for s in ((queries, width), (keys, width), (keys, other))]

        def both(function: Callable[..., aj.Tensor], *x: aj.Tensor) -> tuple[aj.Tensor, ...]:
            y = function(*x, is_causal=is_causal)
            return (y.detach(), *aj.autograd.grad((y * y).sum(), x))

        step = both if mode == "eager" else aj.jit(both)
        found = step(F.scaled_dot_product_attention, *operands)
        for one, other_one in zip(found, both(by_hand, *operands), strict=True):
            scale = float(other_one.abs().max())
            np.testing.assert_allclose(one.numpy(), other_one.numpy(), rtol=0, atol=1e-5 * max(scale, 1e-2))


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_equal_seeds_drop_the_weights_that_dropout_drops(mode: str) -> None:
    operands = leaf(2, 5, 4), leaf(2, 7, 4), leaf(2, 7, 3)
    results = []
    for function in (F.scaled_dot_product_attention, by_hand):
        aj.manual_seed(4)
        call = function if mode == "eager" else aj.jit(function)
        drawn = [call(*operands, dropout_p=0.4) for _ in range(2)]
        results.append([x.detach().numpy() for x in drawn])
        assert not np.allclose(*results[-1])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


def test_batches_by_vmap_are_batches() -> None:
    q, k, v = leaf(3, 2, 4), leaf(5, 4), leaf(3, 5, 2)
    mapped = aj.func.vmap(F.scaled_dot_product_attention, in_dims=(0, None, 0))(q, k, v)
    rows = [F.scaled_dot_product_attention(q[i], k, v[i]) for i in range(3)]
    np.testing.assert_allclose(mapped.detach().numpy(), aj.stack(rows).detach().numpy(), rtol=1e-12)
    draw = aj.func.vmap(lambda x: F.scaled_dot_product_attention(x, k, v[0], dropout_p=0.5), randomness="different")
    assert len({tuple(row) for row in draw(q[:1].expand(3, 2, 4)).detach().flatten(1).numpy().tolist()}) == 3


@pytest.mark.parametrize("mask", [None, (3, 5), (2, 1, 3, 5), (2, 6, 3, 5)], ids=str)
def test_heads_share_keys_where_that_is_asked_for(mask: tuple[int, ...] | None) -> None:
    q, k, v = operands = leaf(2, 6, 3, 4), leaf(2, 2, 5, 4), leaf(2, 2, 5, 3)
    added = None if mask is None else leaf(*mask).detach()
    found = F.scaled_dot_product_attention(q, k, v, attn_mask=added, enable_gqa=True)
    expected = by_hand(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), added)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    bars = [aj.autograd.grad((y * y).sum(), operands) for y in (found, expected)]
    for one, other in zip(*bars, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-10, atol=1e-12)


def test_attention_without_weights_to_show_is_the_same() -> None:
    aj.manual_seed(2)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = leaf(3, 5, 8, dtype=aj.float32)
    removed = aj.tensor(RNG.uniform(size=(3, 5)) > 0.7)
    shown, weights = layer(x, x, x, key_padding_mask=removed)
    hidden, none = layer(x, x, x, key_padding_mask=removed, need_weights=False)
    assert none is None and weights is not None
    np.testing.assert_allclose(hidden.detach().numpy(), shown.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_history_keeps_as_much_as_queries_keys_and_values_have() -> None:
    """Not the weights, of which there are queries times keys."""
    kept: list[int] = []

    def pack(t: aj.Tensor) -> aj.Tensor:
        kept.append(t.numel())
        return t

    with aj.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        F.scaled_dot_product_attention(leaf(50, 2), leaf(60, 2), leaf(60, 3))
    assert max(kept) <= 60 * 3
