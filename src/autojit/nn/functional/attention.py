"""Scaled dot-product attention and the multi-head form around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import UsageError
from autojit.functions.autocast import in_lower_precision
from autojit.nn.functional.attended import attended, attended_by_groups, dropped
from autojit.nn.functional.linear import linear
from autojit.nn.functional.padding import pad
from autojit.tensor import Tensor


@in_lower_precision
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T scale + mask) v. Shapes: ``f[..., l, e], f[..., s, e], f[..., s, v] -> f[..., l, v]``.

    Args:
        attn_mask: added to the scores when floating; where boolean, False removes a key.
        dropout_p: probability of dropping a weight, always applied when positive.
        is_causal: query i sees keys 0..i only.
        scale: defaults to 1 / sqrt(e).
        enable_gqa: repeat the key and value heads (axis -3) to the number of query heads.

    A query that sees no key gets zeros. Source: arXiv:1706.03762.
    """
    if attn_mask is not None and is_causal:
        raise UsageError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        return attended_by_groups(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return attended(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _check_heads(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, separate: bool
) -> int:
    """The head size; errors when the embeddings do not fit."""
    embed_dim = query.shape[-1]
    if embed_dim != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}")
    if embed_dim % num_heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
            )
    elif key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    return embed_dim // num_heads


_RANKS = {3: ("batched (3-D)", 2), 2: ("unbatched (2-D)", 1)}
"""By the axes of a query: how errors call it, and the axes of a mask of its keys."""


def _check_ranks(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, num_heads: int
) -> None:
    """AssertionError unless all have as many axes as the query has with, or without, a batch."""
    if query.ndim not in _RANKS:
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    kind, mask_rank = _RANKS[query.ndim]
    wants = f"For {kind} `query`, expected"
    if not key.ndim == value.ndim == query.ndim:
        raise AssertionError(
            f"{wants} `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and {value.ndim}-D tensors "
            "respectively"
        )
    if padding is not None and padding.ndim != mask_rank:
        none_or = f"{wants} `key_padding_mask` to be `None` or {mask_rank}-D"
        raise AssertionError(f"{none_or} but found {padding.ndim}-D tensor instead")
    if mask is None:
        return
    if mask.ndim not in (2, 3):
        raise AssertionError(f"{wants} `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead")
    by_head = (num_heads, query.shape[0], key.shape[0])
    if query.ndim == 2 and mask.ndim == 3 and tuple(mask.shape) != by_head:
        raise AssertionError(f"Expected `attn_mask` shape to be {by_head} but got {tuple(mask.shape)}")


def _padding_mask(padding: Tensor | None, q: Tensor, batch: int, keys: int) -> Tensor | None:
    """The mask of keys, to add; AssertionError unless there is one number per key of each sequence."""
    for axis, expected in enumerate((batch, keys) if padding is not None else ()):
        if padding is not None and (found := padding.shape[axis]) != expected:
            raise AssertionError(f"Expected key_padded_mask.shape[{axis}] to be {expected}, but got {found}")
    return _additive_mask(padding, q.dtype)


def _additive_mask(mask: Tensor | None, dtype: DType) -> Tensor | None:
    """A boolean mask (True: removed) as -inf to add; floating masks as they are."""
    if mask is None or mask.is_floating_point():
        return mask
    return aj.where(mask, float("-inf"), aj.zeros((), dtype=dtype, device=mask.device))


def _project(
    query: Tensor, key: Tensor, value: Tensor, weights: Sequence[Tensor | None], bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; ``weights`` are those of each, or the joint one: one product per tensor then."""
    if len(weights) == 1:
        joint = weights[0]
        assert joint is not None
        if query is key and key is value:
            q, k, v = linear(query, joint, bias).chunk(3, -1)
            return q, k, v
        if key is value:
            width = joint.shape[0] // 3
            of_query, of_rest = (None, None) if bias is None else bias.split([width, 2 * width])
            weight, rest = joint.split([width, 2 * width])
            k, v = linear(key, rest, of_rest).chunk(2, -1)
            return linear(query, weight, of_query), k, v
        weights = joint.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    given: Any = zip((query, key, value), weights, biases, strict=True)
    q, k, v = (linear(x, weight, of) for x, weight, of in given)
    return q, k, v


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention over ``f[l, n, e]`` (sequence first; ``f[l, e]`` unbatched) with all projections.

    Masks are torch's here: True (or -inf) *removes* a key. Returns the output and, with ``need_weights``, the
    attention weights ``f[n, l, s]`` (``f[n, heads, l, s]`` without averaging). A query that sees no key gets NaN then,
    and zeros without, as in torch.
    """
    _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    is_batched = query.ndim == 3
    if not is_batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if is_causal and attn_mask is None:
        raise UsageError("Need attn_mask if specifying the is_causal hint.")
    head_dim = _check_heads(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = _projection_weights(in_proj_weight, separate, use_separate_proj_weight)
    q, k, v = _project(query, key, value, weights, in_proj_bias)
    length, batch, embed_dim = q.shape
    mask = _additive_mask(attn_mask, q.dtype)
    if mask is not None and mask.ndim == 3:
        mask = mask.reshape(batch, num_heads, *mask.shape[1:])
    biases = (bias_k, bias_v) if bias_k is not None and bias_v is not None else (None, None)
    q = _heads(q, num_heads, head_dim)
    k = _extended(k, biases[0], static_k, add_zero_attn, num_heads, head_dim)
    v = _extended(v, biases[1], static_v, add_zero_attn, num_heads, head_dim)
    added = (biases[0] is not None) + add_zero_attn
    combined = _combined_mask(mask, _padding_mask(key_padding_mask, q, batch, k.shape[-2] - added), added)
    shown_as = None if not need_weights else "average" if average_attn_weights else "by head"
    found, shown = _attend_and_show(q, k, v, combined, dropout_p if training else 0.0, shown_as)
    joined = found.permute(2, 0, 1, 3).reshape(length, batch, embed_dim)
    output = linear(joined, out_proj_weight, out_proj_bias)
    return (output, shown) if is_batched else (output.squeeze(1), None if shown is None else shown.squeeze(0))


def _attend_and_show(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, shown_as: str | None
) -> tuple[Tensor, Tensor | None]:
    """What is attended to, and the weights if they are to be shown; else one op does it."""
    if shown_as is None:
        return attended(q, k, v, mask, dropout_p), None
    scores = aj.matmul(q * (q.shape[-1] ** -0.5), k.transpose(-2, -1))
    weights = dropped(aj.softmax(scores if mask is None else scores + mask, -1), dropout_p)
    return aj.matmul(weights, v), weights.mean(1) if shown_as == "average" else weights


def _projection_weights(
    joint: Tensor | None, separate: tuple[Tensor | None, Tensor | None, Tensor | None], use_separate: bool
) -> Sequence[Tensor | None]:
    if not use_separate:
        if joint is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        return (joint,)
    for name, weight in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), separate, strict=True):
        if weight is None:
            raise AssertionError(f"use_separate_proj_weight is True but {name} is None")
    return separate


def _heads(x: Tensor, num_heads: int, head_dim: int) -> Tensor:
    """``f[s, n, heads * d] -> f[n, heads, s, d]``."""
    length, batch, _ = x.shape
    return x.reshape(length, batch, num_heads, head_dim).permute(1, 2, 0, 3)


def _extended(
    x: Tensor, bias: Tensor | None, static: Tensor | None, with_zero: bool, num_heads: int, head_dim: int
) -> Tensor:
    """Keys or values by head, those given as ``static`` if any; a bias and a zero stand behind the others."""
    if bias is not None:
        if static is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        x = aj.cat([x, bias.expand(1, *x.shape[1:])])
    found = _heads(x, num_heads, head_dim) if static is None else static.reshape(x.shape[1], num_heads, -1, head_dim)
    if not with_zero:
        return found
    return aj.cat([found, aj.zeros((x.shape[1], num_heads, 1, head_dim), dtype=found.dtype, device=found.device)], 2)


def _combined_mask(mask: Tensor | None, padding: Tensor | None, extra: int) -> Tensor | None:
    """Both additive masks in one that broadcasts to ``f[n, heads, l, s]``; added keys are never removed."""
    if mask is not None and extra:
        mask = pad(mask, (0, extra))
    if padding is None:
        return mask
    if extra:
        padding = pad(padding, (0, extra))
    spread = padding.reshape(padding.shape[0], 1, 1, padding.shape[1])
    return spread if mask is None else mask + spread
