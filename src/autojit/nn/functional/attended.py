"""What attention attends to: by one op, or by its parts where something is unusual about the operands.

How to read: `attended`; `_shape_for_op`, which operands the op takes; `attention_weights`, the parts.
"""

from __future__ import annotations

import math
from math import prod
from operator import is_
from typing import Any

import numpy as np

import autojit as aj
from autojit.core.dtypes import HALVES
from autojit.core.sizes import surely_equal
from autojit.core.types import Shape
from autojit.dispatch.dispatch import apply
from autojit.functions.random import key_for
from autojit.history.recording import wants_grad
from autojit.ir.op import Op
from autojit.nn.functional.dropout import dropout
from autojit.ops.base import is_expandable
from autojit.tensor import Tensor
from autojit.tensor.state import computes_at_once, state
from autojit.tensor.tensor import type_of

FLOATS = (*HALVES, aj.float32, aj.float64)


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``dropout(softmax(q k^T scale + mask)) v``."""
    is_plain = mask is None and dropout_p == 0.0 and computes_at_once()
    known = _key_of(query, key, value, is_causal, scale) if is_plain else None
    if known in _OPS:
        return apply(_OPS[known], query, key, value)[0]
    shape = _shape_for_op(query, key, value, mask, dropout_p)
    if shape is None:
        return _by_parts(query, key, value, mask, dropout_p, is_causal, scale)
    operands = [_with_batch(x, shape[:-2]) for x in (query, key, value)]
    if mask is not None:
        wide = mask if mask.dtype is aj.bool or query.dtype not in HALVES else mask.to(aj.float32)
        operands.append(wide if surely_equal(type_of(wide).shape, shape) else wide.expand(*shape))
    if dropout_p > 0.0:
        operands.append(key_for(prod(shape), type_of(query).device))
    op = Op.registry["attention"](_factor(query, scale), is_causal, mask is not None, float(dropout_p))
    if known is not None and all(map(is_, operands, (query, key, value))):
        if len(_OPS) >= _MOST_OPS:
            _OPS.clear()
        _OPS[known] = op
    return apply(op, *operands)[0]


_OPS: dict[Any, Any] = {}
"""What attends without a mask, by what ``_key_of`` says of operands that are taken as they are."""
_MOST_OPS = 1024


def _key_of(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Any:
    """What the op depends on; None of operands that hold no arrays of this machine."""
    q, k, v = query._array, key._array, value._array
    if not type(q) is type(k) is type(v) is np.ndarray:
        return None
    return q.shape, q.dtype, k.shape, k.dtype, v.shape, v.dtype, is_causal, scale


def attended_by_groups(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """The same where several heads (axis -3) of the queries share one of the keys and one of the values.

    Nothing is repeated in memory: the heads of a group are an axis along which keys do not move.
    """
    heads, of_keys = query.shape[-3], key.shape[-3]
    if heads % of_keys or value.shape[-3] != of_keys or (mask is not None and mask.ndim > 2 and mask.shape[-3] != 1):
        key = key.repeat_interleave(heads // of_keys, -3)
        value = value.repeat_interleave(heads // value.shape[-3], -3)
        return attended(query, key, value, mask, dropout_p, is_causal, scale)
    grouped = query.unflatten(-3, (of_keys, heads // of_keys))
    if mask is not None and mask.ndim > 2:
        mask = mask.unsqueeze(-3)
    found = attended(grouped, key.unsqueeze(-3), value.unsqueeze(-3), mask, dropout_p, is_causal, scale)
    return found.flatten(-4, -3)


def _shape_for_op(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float) -> Shape | None:
    """The shape of the scores where the op takes the operands; None: the parts say what they do, or what is wrong."""
    q, k, v = map(type_of, (query, key, value))
    if q.dtype not in FLOATS or k.dtype is not q.dtype or v.dtype is not q.dtype:
        return None
    if min(q.ndim, k.ndim, v.ndim) < 2 or not surely_equal(q.shape[-1], k.shape[-1]):
        return None
    if not surely_equal(k.shape[-2], v.shape[-2]) or 0 in (*q.shape, *k.shape, *v.shape):
        return None
    batch = q.shape[:-2]
    if not (is_expandable(k.shape[:-2], batch) and is_expandable(v.shape[:-2], batch)):
        return None
    if dropout_p != 0.0 and (state.layers or not 0.0 < dropout_p < 1.0):
        return None  # random numbers of a batch are its layer's business
    shape = (*q.shape[:-1], k.shape[-2])
    return shape if mask is None or _takes_mask(mask, q.dtype, shape) else None


def _takes_mask(mask: Tensor, dtype: aj.dtype, shape: Shape) -> bool:
    """A mask that learns has a derivative as large as all scores, so nothing is gained by not keeping these."""
    spec = type_of(mask)
    is_usual = spec.dtype in (aj.bool, dtype) or (dtype in HALVES and spec.dtype is aj.float32)
    return is_usual and is_expandable(spec.shape, shape) and not wants_grad(mask)


def _with_batch(x: Tensor, batch: Shape) -> Tensor:
    own = type_of(x).shape
    return x if surely_equal(own[:-2], batch) else x.expand(*batch, *own[-2:])


def _factor(query: Tensor, scale: float | None) -> float:
    if scale is not None:
        return float(scale)
    width = query.shape[-1]
    return 1.0 / math.sqrt(width) if width else 1.0  # of no terms: any


# -- the parts


def _by_parts(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    narrow = value.dtype
    if narrow in HALVES:
        # the exponential turns a score's rounding error into a relative error of its weight
        query, key, value = query.to(aj.float32), key.to(aj.float32), value.to(aj.float32)
        if mask is not None and mask.dtype is narrow:
            mask = mask.to(aj.float32)
    weights = dropped(attention_weights(query, key, mask, is_causal, scale), dropout_p)
    return aj.matmul(weights, value).to(narrow)


def dropped(weights: Tensor, dropout_p: float) -> Tensor:
    """The weights, some of them dropped."""
    return dropout(weights, dropout_p) if dropout_p > 0.0 else weights


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """softmax over keys; every row sums to 1, or is all zero when a mask removes every key."""
    scores = aj.matmul(query * _factor(query, scale), key.transpose(-2, -1))
    if is_causal:
        # every row keeps at least key 0, so no row is empty
        return aj.softmax(aj.where(_causal_mask(query, key), scores, float("-inf")), -1)
    if mask is None:
        return aj.softmax(scores, -1)
    if mask.dtype is aj.bool:
        # a finite fill keeps rows without any key free of NaN in values and derivatives
        filled = aj.where(mask, scores, aj.finfo(scores.dtype).min)
        return aj.where(mask, aj.softmax(filled, -1), 0.0)
    masked = scores + mask
    filled = aj.where(masked == float("-inf"), aj.finfo(scores.dtype).min, masked)
    return aj.where(masked == float("-inf"), 0.0, aj.softmax(filled, -1))


def _causal_mask(query: Tensor, key: Tensor) -> Tensor:
    rows = aj.arange(query.shape[-2], device=query.device).unsqueeze(1)
    columns = aj.arange(key.shape[-2], device=query.device).unsqueeze(0)
    return columns <= rows
