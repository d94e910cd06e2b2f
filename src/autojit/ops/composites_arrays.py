"""Composites with reductions that are one function to the user, in the forms that eager mode computes by one kernel:
their operands are tensors, everything else are options. ``fused_arrays.py`` makes ops of them.
"""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import DType
from autojit.ir.op import O
from autojit.ops.composites_loss import cross_entropy, one_hot, reduced
from autojit.ops.composites_normalization import standardize
from autojit.ops.composites_recurrent import gru_cell, gru_gates, lstm_cell, lstm_gates, rnn_cell
from autojit.ops.composites_reduction import logsumexp, mean, norm, safe_sqrt, std, var, var_mean
from autojit.ops.composites_windows import window_maxima, window_means
from autojit.ops.cotangent_masks import cotangent_product, under_mask
from autojit.ops.elementwise_arithmetic import add, div, mul, square, sub, where
from autojit.ops.elementwise_exponential import exp, rsqrt
from autojit.ops.elementwise_logic import isnan
from autojit.ops.elementwise_selection import clamp_min
from autojit.ops.fused import COMPOSITES
from autojit.ops.joining import roll, stack
from autojit.ops.matmul import kron, matmul, outer, swap_last
from autojit.ops.random import normal, random_bits, spread_over, uniform
from autojit.ops.reductions import prod, sum
from autojit.ops.shape import pad, reshape
from autojit.ops.triangles import diag_embed, tril, triu

__all__ = [
    "bits_like", "class_losses", "cosines", "cross", "diag_embed", "distances", "distances_by_products", "gru_cell",
    "gru_gates", "inner_product", "integers_like", "kron", "log_softmax_cotangent", "logsumexp", "lstm_cell",
    "lstm_gates", "nansum",
    "norm", "normal_like", "normalized", "normalized_with_moments", "one_hot", "outer", "pad", "pointwise_losses",
    "prod", "rms_normalized", "rnn_cell", "shifted_and_scaled", "softmax_cotangent", "squared_errors", "std", "tril",
    "triu", "uniform_like", "unit_vectors", "var", "window_maxima", "window_means",
]  # fmt: skip


def _affine(x: O, has_weight: bool, has_bias: bool, affine: tuple[Any, ...]) -> O:
    y = mul(x, affine[0]) if has_weight else x
    return add(y, affine[-1]) if has_bias else y


def normalized(x: O, *rest: Any) -> O:
    """``standardize`` over axes, then scaled and shifted by operands that broadcast.

    ``rest``: the weight and the bias, where they are there; the axes, epsilon, whether they are there.
    """
    *affine, axes, eps, has_weight, has_bias = rest
    return _affine(standardize(x, axes, eps), has_weight, has_bias, tuple(affine))


def normalized_with_moments(x: O, *rest: Any) -> tuple[O, O, O]:
    """(what ``normalized`` gives, the biased variance, the mean): the moments keep the axes with extent 1."""
    *affine, axes, eps, has_weight, has_bias = rest
    variance, middle = var_mean(x, axes, correction=0, keep=True)
    return shifted_and_scaled(x, middle, variance, *affine, eps, has_weight, has_bias), variance, middle


def shifted_and_scaled(x: O, middle: O, variance: O, *rest: Any) -> O:
    """``(x - middle) / sqrt(variance + eps)``, then scaled and shifted; all broadcast. ``rest``: without axes."""
    *affine, eps, has_weight, has_bias = rest
    normal: O = mul(sub(x, middle), rsqrt(add(variance, eps)))
    return _affine(normal, has_weight, has_bias, tuple(affine))


def rms_normalized(x: O, *rest: Any) -> O:
    """``x / sqrt(mean(x**2) + eps)`` over axes, then scaled; ``rest`` as of ``normalized``, without a bias."""
    *affine, axes, eps, has_weight = rest
    y: O = mul(x, rsqrt(add(mean(square(x), axes, keep=True), eps)))
    return _affine(y, has_weight, False, tuple(affine))


def class_losses(x: O, target: O, axis: int, smoothing: float, reduction: str) -> O:
    """The cross-entropy of classes (int64) and the softmax of ``x`` along an axis, reduced."""
    return reduced(cross_entropy(x, target, axis, smoothing), reduction)


def squared_errors(x: O, y: O, reduction: str) -> O:
    """``(x - y)**2``, reduced."""
    return reduced(square(sub(x, y)), reduction)


def pointwise_losses(x: O, y: O, name: str, options: tuple[Any, ...], reduction: str) -> O:
    """The composite ``name`` of ``fused.py``, reduced."""
    losses: O = COMPOSITES[name](x, y, *options)
    return reduced(losses, reduction)


def softmax_cotangent(y: O, y_bar: O, axis: int, is_masked: bool) -> O:
    """The cotangent of the operand of a softmax with result ``y``. Linear in ``y_bar``, and its own transpose."""
    with under_mask(is_masked):
        weighted = cotangent_product(y_bar, y)
        return sub(weighted, cotangent_product(sum(weighted, axis, keep=True), y))


def log_softmax_cotangent(y: O, y_bar: O, axis: int, is_masked: bool) -> O:
    """The cotangent of the operand of a log-softmax with result ``y``."""
    with under_mask(is_masked):
        return sub(y_bar, cotangent_product(sum(y_bar, axis, keep=True), exp(y)))


def nansum(x: O, axes: Any, keep: bool) -> O:
    """The sum with NaN counted as 0."""
    return sum(where(isnan(x), 0, x), axes, keep)


def unit_vectors(x: O, p: float, axis: int, eps: float) -> O:
    """``x`` over its p-norm along an axis, which counts as at least ``eps``."""
    return div(x, clamp_min(norm(x, p, axis, keep=True), eps))


def cosines(x: O, y: O, axis: int, eps: float) -> O:
    """The cosine of the angle between vectors along an axis; norms are at least ``eps``."""
    directions = [div(v, clamp_min(norm(v, 2.0, (axis,), keep=True), eps)) for v in (x, y)]
    return sum(mul(*directions), (axis,))


def cross(x: O, y: O, axis: int) -> O:
    """The vector product along an axis of extent 3."""
    return sub(mul(roll(x, -1, axis), roll(y, -2, axis)), mul(roll(x, -2, axis), roll(y, -1, axis)))


def distances(x: O, y: O, p: float) -> O:
    """p-norm distances of all rows of ``x`` (f[..., n, d]) and ``y`` (f[..., m, d]): f[..., n, m]."""
    (*lead, n, width), (*others, m, _) = x.spec.shape, y.spec.shape
    return norm(sub(reshape(x, (*lead, n, 1, width)), reshape(y, (*others, 1, m, width))), p, -1)


def distances_by_products(x: O, y: O) -> O:
    """Euclidean distances from ``|x|^2 + |y|^2 - 2 x y``: for long rows, where a matrix product is much faster.

    Rows at a distance below the rounding error of their lengths come out as this close, not exactly.
    """
    lengths = add(sum(square(x), -1, keep=True), swap_last(sum(square(y), -1, keep=True)))
    return safe_sqrt(clamp_min(sub(lengths, mul(matmul(x, swap_last(y)), 2)), 0))


def inner_product(x: O, y: O) -> O:
    """The sum of the products of two vectors' elements."""
    return sum(mul(x, y))


def bits_like(seed: O, offset: O, like: O) -> O:
    """Random words for the key ``(seed, offset)`` in the shape of ``like``."""
    return random_bits(stack((seed, offset)), like.spec.shape)


def integers_like(seed: O, offset: O, like: O, low: O, span: O) -> O:
    """Integers in [low, low + span) for the key ``(seed, offset)`` in the shape of ``like``."""
    return spread_over(bits_like(seed, offset, like), low, span)


def uniform_like(seed: O, offset: O, like: O, dtype: DType) -> O:
    """Uniform numbers for the key ``(seed, offset)`` in the shape of ``like``."""
    return uniform(stack((seed, offset)), like.spec.shape, dtype)


def normal_like(seed: O, offset: O, like: O, dtype: DType) -> O:
    """Standard normal numbers for the key ``(seed, offset)`` in the shape of ``like``."""
    return normal(stack((seed, offset)), like.spec.shape, dtype)
