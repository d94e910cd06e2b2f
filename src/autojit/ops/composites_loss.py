"""Losses and their pieces, per element or per sample; ``reduced`` brings them to a number."""

from __future__ import annotations

from autojit.core.dtypes import DType, int64
from autojit.core.errors import ArgumentError
from autojit.ir.op import O
from autojit.ops.base import normalize_axis
from autojit.ops.composites_activation import log_softmax
from autojit.ops.composites_pointwise import xlogy
from autojit.ops.composites_reduction import mean
from autojit.ops.elementwise_arithmetic import add, cast, mul, neg, stop_gradient, sub, where
from autojit.ops.elementwise_exponential import exp, log, logaddexp
from autojit.ops.elementwise_logic import eq
from autojit.ops.probabilities import probability_loss
from autojit.ops.reductions import amax, restore_axes, sum
from autojit.ops.sources import iota

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "one_hot", "pick", "reduced",
    "soft_cross_entropy",
]  # fmt: skip


def reduced(losses: O, reduction: str = "mean") -> O:
    """The losses' "mean", "sum", or, for "none", themselves."""
    if reduction == "mean":
        return mean(losses)
    if reduction == "sum":
        return sum(losses)
    if reduction == "none":
        return losses
    raise ArgumentError(f"{reduction} is not a valid value for reduction", fix='use "mean", "sum" or "none"')


def _is_position(x: O, index: O, axis: int) -> O:
    """Where the position along ``axis`` is the one ``index`` (without that axis) names."""
    return eq(iota(x, x.spec.shape, axis, int64), restore_axes(index, x.spec.shape, (axis,)))


def pick(x: O, index: O, axis: int = -1) -> O:
    """The element ``index`` names along an axis; ``index`` (int64) has ``x``'s shape without that axis.

    Computed as a masked sum, so it fuses with other reductions of the row and its adjoint is a mask, not a scatter. An
    index out of range picks 0.
    """
    axis = normalize_axis(axis, x.spec.ndim, "pick")
    return sum(where(_is_position(x, index, axis), x, 0), axis)


def one_hot(index: O, classes: int, dtype: DType = int64) -> O:
    """1 at the position ``index`` names along a new last axis, else 0."""
    shape = (*index.spec.shape, classes)
    positions = iota(index, shape, index.spec.ndim, int64)
    return cast(eq(positions, restore_axes(index, shape, (index.spec.ndim,))), dtype)


def cross_entropy(logits: O, target: O, axis: int = 1, smoothing: float = 0.0) -> O:
    """Per sample: minus the log-probability of the class ``target`` (int64) names along ``axis``, in nats.

    The adjoint is ``softmax - one_hot`` times the sample's cotangent, without a reduction. ``smoothing`` spreads that
    share of the probability evenly over all classes.
    """
    axis = normalize_axis(axis, logits.spec.ndim, "cross_entropy")
    shifted = sub(logits, stop_gradient(amax(logits, axis, keep=True)))
    total = log(sum(exp(shifted), axis))
    losses = sub(total, pick(shifted, target, axis))
    if smoothing == 0.0:
        return losses
    even = sub(total, mean(shifted, axis))
    return add(mul(losses, 1.0 - smoothing), mul(even, smoothing))


def soft_cross_entropy(logits: O, probabilities: O, axis: int = 1) -> O:
    """Per sample: the cross-entropy of class probabilities and the softmax of ``logits``."""
    return neg(sum(mul(probabilities, log_softmax(logits, axis)), axis))


def binary_cross_entropy_with_logits(x: O, target: O, positive_weight: O | None = None) -> O:
    """Per element: the cross-entropy of ``target`` and ``sigmoid(x)``, without overflow."""
    softplus_of_minus = logaddexp(neg(x), 0)
    if positive_weight is None:
        return add(mul(sub(1, target), x), softplus_of_minus)
    weight = add(mul(sub(positive_weight, 1), target), 1)
    return add(mul(sub(1, target), x), mul(weight, softplus_of_minus))


binary_cross_entropy = probability_loss
"""Per element: the cross-entropy of ``target`` and the probability ``p``; logarithms are at least -100."""


def kl_div(log_p: O, target: O, log_target: bool = False) -> O:
    """Per element: ``target * (log target - log_p)``."""
    if log_target:
        return mul(exp(target), sub(target, log_p))
    return sub(xlogy(target, target), mul(target, log_p))
