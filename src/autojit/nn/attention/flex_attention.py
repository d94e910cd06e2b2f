"""torch.nn.attention.flex_attention: attention with a function of its scores, and with masks by blocks.

The functions speak of single places. They are applied to all of them at once (`score_functions.py`), so what they do
not depend on is computed once, and gradients flow into every tensor that they close over.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import autojit as aj
from autojit.core.errors import UsageError
from autojit.nn.attention.block_mask import DEFAULT_BLOCK as _DEFAULT_SPARSE_BLOCK_SIZE  # noqa: F401
from autojit.nn.attention.block_mask import BlockMask as BlockMask
from autojit.nn.attention.block_mask import sliced_mask_mod_error
from autojit.nn.attention.captured_scores import attended_by_op
from autojit.nn.attention.masks import and_masks as and_masks
from autojit.nn.attention.masks import create_block_mask as create_block_mask
from autojit.nn.attention.masks import create_mask as create_mask
from autojit.nn.attention.masks import or_masks as or_masks
from autojit.nn.attention.score_functions import ScoreMod, as_tensor, modified_scores, places
from autojit.nn.attention.score_functions import noop_mask as noop_mask
from autojit.tensor import Tensor

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


class AuxRequest(NamedTuple):
    """What `flex_attention` is to return besides the attended values."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for: logarithms of the sums of exponentials, largest scores; ``f[b, heads, l]``."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(q k^T scale)) v, where the mask leaves a place. Queries ``f[b, heads, l, e]``.

    Args:
        key, value: ``f[b, heads, s, e]`` and ``f[b, heads, s, v]``; with ``enable_gqa`` heads may be shared by several
            of the queries'; one batch may serve all where a ``block_mask`` is given.
        score_mod: takes (score, batch, head, number of the query, number of the key), all tensors without dimensions,
            and returns another score. It may read other tensors, which may learn.
        block_mask: by `create_block_mask`; places outside of its blocks, and those that its ``mask_mod`` does not
            leave, are not seen. A query that sees no key gets zeros.
        scale: defaults to 1 / sqrt(e).
        return_lse: return (values, logarithms of the sums of exponentials).
        kernel_options: torch's, without effect.
        return_aux: return (values, `AuxOutput`).

    Raises:
        ValueError: operands, or operands and mask, do not fit.
        NotImplementedError: operands do not have four dimensions.

    Example:
        >>> import autojit as aj
        >>> q, k, v = aj.zeros(1, 1, 3, 2), aj.zeros(1, 1, 3, 2), aj.eye(3).reshape(1, 1, 3, 3)
        >>> causal = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 3, 3)
        >>> flex_attention(q, k, v, block_mask=causal)[0, 0]
        tensor([[1.0000, 0.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.3333, 0.3333, 0.3333]])
    """
    _check_operands(query, key, value, enable_gqa, block_mask)
    if block_mask is not None:
        _check_mask(query, key, block_mask)
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. "
            "return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead."
        )
    _check_options({} if kernel_options is None else kernel_options)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    wanted = return_aux or AuxRequest(lse=return_lse)
    found, aux = _attended(query, key, value, score_mod, block_mask, factor, wanted)
    if return_aux is not None:
        return found, aux
    return (found, aux.lse) if return_lse else found


# -- errors


def _check_operands(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool, block_mask: BlockMask | None) -> None:
    if q.device != k.device or q.device != v.device:
        raise ValueError(
            f"Expected query, key, and value to have the same device type, but got query.device: {q.device}, "
            f"key.device: {k.device}, and value.device: {v.device} instead."
        )
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ValueError(
            f"Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {q.ndim}, "
            f"key.dim: {k.ndim} and value.dim: {v.ndim} instead."
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"Expect query and key/value to have the same embedding dimension but got E={q.shape[-1]} and "
            f"E={k.shape[-1]}."
        )
    if not q.ndim == k.ndim == v.ndim == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if not enable_gqa and q.shape[1] != k.shape[1]:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={q.shape[1]} and "
            f"Hkv={k.shape[1]}. Try setting enable_gqa=True for GQA."
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={q.shape[1]} and "
            f"Hkv={k.shape[1]}."
        )
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"Expect key and value to have the same batch, heads and length but got {k.shape} and {v.shape}."
        )
    if q.shape[0] != k.shape[0]:
        _check_shared(q, k, block_mask)


def _check_shared(q: Tensor, k: Tensor, block_mask: BlockMask | None) -> None:
    """Whether keys may serve all batches."""
    asked = "Expect query and key/value to have the same batch size, "
    if block_mask is None:
        raise ValueError(
            f"{asked}or non-none block_mask, but got block_mask=None, Bq={q.shape[0]}, and Bkv={k.shape[0]}."
        )
    if block_mask.kv_num_blocks.shape[0] != q.shape[0]:
        raise ValueError(
            f"{asked}or block_mask and query to have the same batch size, but got Bq={q.shape[0]}, "
            f"Bkv={k.shape[0]}, B_block_mask={block_mask.kv_num_blocks.shape[0]}."
        )
    if k.shape[0] != 1:
        raise UsageError(f"Bq and Bkv must broadcast. Got Bq={q.shape[0]} and Bkv={k.shape[0]}")


def _check_mask(q: Tensor, k: Tensor, block_mask: BlockMask) -> None:
    if block_mask.mask_mod is sliced_mask_mod_error:
        raise UsageError("Cannot use mask_mod from a sliced BlockMask")
    queries, keys = block_mask.shape[-2:]
    found = (
        f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q.shape[-2]} and "
        f"kv_len={k.shape[-2]}. "
    )
    if q.shape[-2] > queries or k.shape[-2] > keys:
        raise ValueError(
            f"{found}As the block mask was created for a smaller length than you're using it for, you likely need to "
            "create a new block mask."
        )
    if q.shape[-2] < queries or k.shape[-2] < keys:
        raise ValueError(
            f"{found}As the block mask was created for a larger length than you're using it for, you can either 1. "
            "create a new block mask with the correct length, or 2. 'adjust' the existing block mask to the correct "
            "length by calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper "
            "left corner, which does not work for all mask_mods!"
        )
    if q.device != block_mask.kv_num_blocks.device:
        raise UsageError(
            f"Expect q/k/v and block_mask to be on the same device but got {q.device} and "
            f"{block_mask.kv_num_blocks.device}."
        )


def _check_options(options: dict[str, Any]) -> None:
    if "BACKEND" in options and options.get("FORCE_USE_FLEX_ATTENTION", False):
        raise UsageError(
            "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION. BACKEND supersedes the legacy knob; "
            "please drop FORCE_USE_FLEX_ATTENTION and only specify the desired BACKEND."
        )
    if options.get("BACKEND", "AUTO") not in BACKENDS:
        raise ValueError(f"Invalid BACKEND value '{options['BACKEND']}'. Must be one of {BACKENDS}")


# -- by one op, or by its parts


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None,
    block_mask: BlockMask | None,
    scale: float,
    wanted: AuxRequest,
) -> tuple[Tensor, AuxOutput]:
    """By one op where that is captured and takes it; halves are computed in float32 and rounded once."""
    narrow = query.dtype
    wide = aj.float64 if narrow is aj.float64 else aj.float32
    q, k, v = query.to(wide), key.to(wide), value.to(narrow).to(wide)
    is_seen = None if block_mask is None else block_mask.at_places()

    def modified(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found = score if score_mod is None else as_tensor("score_mod", score_mod(score, b, h, i, j)).to(wide)
        if is_seen is None:
            return found
        return aj.where(as_tensor("mask_mod", is_seen(b, h, i, j)), found, float("-inf"))

    if not wanted.max_scores:
        table = None if block_mask is None else block_mask.to_dense().ne(0)
        block = () if block_mask is None else block_mask.BLOCK_SIZE
        by_op = attended_by_op(q, k, v, modified, scale, table, block)
        if by_op is not None:
            return by_op[0].to(narrow), AuxOutput(by_op[1] if wanted.lse else None)
    scores = grouped_products(q, k.transpose(-2, -1)) * scale
    if score_mod is not None or block_mask is not None:
        scores = modified_scores(modified, scores, places((*q.shape[:3], k.shape[2]), q.device))
    found, aux = _by_parts(scores, v, wanted)
    return found.to(narrow), aux


def _by_parts(scores: Tensor, value: Tensor, wanted: AuxRequest) -> tuple[Tensor, AuxOutput]:
    """With a table of all scores."""
    is_seen = scores != float("-inf")
    filled = aj.where(is_seen, scores, aj.finfo(scores.dtype).min)  # finite: derivatives of rows without any key are 0
    weights = aj.where(is_seen, aj.softmax(filled, -1), 0.0)
    sees_some = is_seen.any(-1)
    lse = aj.where(sees_some, aj.logsumexp(filled, -1), float("-inf")) if wanted.lse else None
    return grouped_products(weights, value), AuxOutput(lse, scores.amax(-1) if wanted.max_scores else None)


def grouped_products(a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices, where several heads of ``a`` share one of ``b``: nothing is repeated."""
    heads, shared = a.shape[1], b.shape[1]
    if heads == shared:
        return aj.matmul(a, b)
    return aj.matmul(a.unflatten(1, (shared, heads // shared)), b.unsqueeze(2)).flatten(1, 2)
