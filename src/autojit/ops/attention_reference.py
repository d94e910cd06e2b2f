"""Attention and its derivative in NumPy: a block of queries at a time, so that no table of all weights is made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autojit.core.records import record
from autojit.ir.op import Ndarray

BLOCK_BYTES = 1 << 20
"""Scores of a block: part of a second-level cache, and long enough for a library's products."""


@record
class Scores:
    """What becomes of ``q @ k.T``: it is multiplied by ``scale``; a query sees keys up to its own number, or all."""

    scale: float
    is_causal: bool


def attend(scores: Scores, q: Ndarray, k: Ndarray, v: Ndarray, mask: Ndarray | None) -> tuple[Ndarray, Ndarray]:
    """The attended values, and the logarithm of each query's sum of exponentials: of halves in float32."""
    narrow, (q, k, v) = q.dtype, _widened(q, k, v)
    y = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    lse = np.empty(q.shape[:-1], q.dtype)
    for rows, keys in _blocks(scores, q, k):
        s = _scores(scores, q, k, mask, rows, keys)
        top = s.max(-1, keepdims=True)
        if mask is not None:
            top = np.where(top == -np.inf, 0, top)
        s -= top
        p = np.exp(s, out=s)
        total = p.sum(-1, keepdims=True)
        found = p @ v[..., keys, :]
        if mask is None:
            found /= total
        else:  # a query that sees no key gets zeros
            found *= np.where(total == 0, 0, 1 / np.where(total == 0, 1, total))
        y[..., rows, :] = found
        lse[..., rows] = (top + np.log(np.where(total == 0, 1, total)))[..., 0]
    return y.astype(narrow, copy=False), lse


def attend_back(
    scores: Scores, q: Ndarray, k: Ndarray, v: Ndarray, mask: Ndarray | None, y: Ndarray, lse: Ndarray, y_bar: Ndarray
) -> tuple[Ndarray, Ndarray, Ndarray]:
    """The cotangents of q, k and v: weights are computed again from the scores and their logarithms of sums."""
    narrow, (q, k, v, y, y_bar) = q.dtype, _widened(q, k, v, y, y_bar)
    q_bar, k_bar, v_bar = (np.zeros(x.shape, x.dtype) for x in (q, k, v))
    inner = (y * y_bar).sum(-1, keepdims=True)
    for rows, keys in _blocks(scores, q, k):
        s = _scores(scores, q, k, mask, rows, keys)
        s -= lse[..., rows, None]
        p = np.exp(s, out=s)
        bar = y_bar[..., rows, :]
        v_bar[..., keys, :] += _turned(p) @ bar
        s_bar = bar @ _turned(v[..., keys, :])
        s_bar -= inner[..., rows, :]
        s_bar *= p
        s_bar *= q.dtype.type(scores.scale)
        q_bar[..., rows, :] = s_bar @ k[..., keys, :]
        k_bar[..., keys, :] += _turned(s_bar) @ q[..., rows, :]
    return q_bar.astype(narrow, copy=False), k_bar.astype(narrow, copy=False), v_bar.astype(narrow, copy=False)


def _widened(*arrays: Ndarray) -> tuple[Ndarray, ...]:
    """Halves as float32: the exponential turns a score's rounding error into a relative error of its weight."""
    return tuple([x.astype(np.float32) if x.dtype.itemsize == 2 else x for x in arrays])


def _turned(x: Ndarray) -> Ndarray:
    return np.swapaxes(x, -1, -2)


def _blocks(scores: Scores, q: Ndarray, k: Ndarray) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries, with the keys that they may see."""
    queries, keys = q.shape[-2], k.shape[-2]
    line_bytes = max(1, q.itemsize * keys * (q.size // max(1, queries * q.shape[-1])))
    height = min(max(16, BLOCK_BYTES // line_bytes), max(queries, 1))
    for first in range(0, queries, height):
        last = min(queries, first + height)
        yield slice(first, last), slice(0, min(keys, last) if scores.is_causal else keys)


def _scores(scores: Scores, q: Ndarray, k: Ndarray, mask: Ndarray | None, rows: slice, keys: slice) -> Ndarray:
    factor = q.dtype.type(scores.scale)
    s: Ndarray = (q[..., rows, :] * factor) @ _turned(k[..., keys, :])
    if scores.is_causal:
        places = np.arange(rows.start, rows.stop)[:, None]
        np.copyto(s, -np.inf, where=np.arange(keys.start, keys.stop) > places)
    if mask is not None:
        part = mask[..., rows, keys]
        if part.dtype == np.bool_:
            np.copyto(s, -np.inf, where=~part)
        else:
            s += part
    return s
