"""Regression and ranking losses. Classification losses are in classification.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import autojit as aj
from autojit.core.errors import ArgumentError, DTypeError, ShapeError, UsageError
from autojit.core.sizes import is_symbolic, surely_equal
from autojit.core.user_warnings import warn
from autojit.dispatch.composite_nodes import as_float, composed
from autojit.dispatch.dispatch import apply
from autojit.dispatch.kernels import LARGE, in_one_pass, in_one_step
from autojit.dispatch.promotion import all_together
from autojit.dispatch.requirements import require
from autojit.functions.autocast import in_full_precision
from autojit.functions.refused_dtypes import refuses
from autojit.nn.functional.activation import softplus_of
from autojit.nn.functional.distance import pairwise_distance
from autojit.nn.functional.operand_dtypes import require_constant, require_differentiable
from autojit.nn.functional.reduction import (
    at_hand,
    promoted,
    reduce_loss,
    reduced_in_one_step,
    resolve_reduction,
)
from autojit.ops.composed import MseLoss, is_common
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of

__all__ = [
    "cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip

_LEAST_SQUARE = 1e-12  # added to squares of lengths, as torch does: of short vectors the cosine goes to 0


def _same_shape(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Broadcast input and target; a warning when their shapes differ, as that is rarely meant."""
    if target.shape != input.shape:
        warn(
            f"Using a target size ({aj.Size(target.shape)}) that is different to the input size "
            f"({aj.Size(input.shape)}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
        )
    left, right = aj.broadcast_tensors(input, target)
    return left, right


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Reduce with optional weights of the loss's shape: the mean divides by their sum."""
    if weight is None:
        return reduce_loss(loss, reduction)
    if weight.shape != loss.shape:
        raise ArgumentError("Inputs and weights must have the same size.")
    weighted = loss * weight
    if reduction == "mean":
        return weighted.sum() / weight.sum()
    return reduce_loss(weighted, reduction)


_MSE_LOSS = MseLoss()


@refuses("complex")
@in_full_precision
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(x - y)^2."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if weight is None and reduction == "mean" and at_hand(input, target):
        if input.numel() < LARGE:
            return apply(_MSE_LOSS, input, target)
        return in_one_step("squared_errors", (reduction,), input, target, node="MseLossBackward0")
    x, y = all_together(list(_same_shape(input, target)), "mse_loss")
    require_differentiable("mse_loss", x)

    def by_parts(x: Tensor, y: Tensor) -> Tensor:
        difference = x - y
        return _weighted(difference * difference, weight, reduction)

    is_alike = (
        input.dtype is target.dtype and is_common(input.dtype) and surely_equal(tuple(input.shape), tuple(target.shape))
    )
    if weight is None and reduction == "mean" and is_alike:
        count = type_of(x).size
        is_small = is_symbolic(count) or count < LARGE
        recorded = composed(_MSE_LOSS, (x, y), by_parts, "MseLossBackward0", is_small)
        if recorded is not None:
            return cast(Tensor, recorded)
    return by_parts(x, y)


@in_full_precision
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|x - y|."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    x, y = _same_shape(input, target)
    return _weighted((x - y).abs(), weight, reduction)


@refuses("complex")
@in_full_precision
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """(x - y)^2 / (2 beta) where |x - y| < beta, else |x - y| - beta / 2."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise UsageError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0.0:
        return l1_loss(input, target, reduction=reduction)
    x, y = promoted(*_same_shape(input, target))
    require_differentiable("smooth_l1_loss", x)
    return reduced_in_one_step("smooth_l1", (as_float(beta),), x, y, reduction, node="SmoothL1LossBackward0")


@refuses("int complex")
@in_full_precision
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """(x - y)^2 / 2 where |x - y| < delta, else delta (|x - y| - delta / 2)."""
    if delta <= 0:
        raise UsageError("huber_loss does not support non-positive values for delta.")
    x, y = _same_shape(input, target)
    if weight is None and x.dtype is y.dtype:
        return reduced_in_one_step("huber", (as_float(delta),), x, y, reduction, node="HuberLossBackward0")
    loss = in_one_pass("huber", (as_float(delta),), *promoted(x, y), node="HuberLossBackward0")
    return _weighted(loss.to(input.dtype), weight, reduction)  # torch's losses have the input's dtype


@refuses("int complex")
@in_full_precision
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """y (log y - x) with x log-probabilities; ``batchmean`` divides the sum by the first extent."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if not input.is_floating_point() or not target.is_floating_point():
        raise DTypeError(
            "kl_div: Integral inputs not supported.", {"input": input, "target": target}, "give both as floats"
        )
    if reduction == "mean":
        warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
        )
    loss = aj.exp(target) * (target - input) if log_target else aj.xlogy(target, target) - target * input
    if reduction == "batchmean":
        total = loss.sum()
        return total / input.shape[0] if input.ndim else total
    return reduce_loss(loss, reduction)


@in_full_precision
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of a Poisson count; ``full`` adds Stirling's approximation of log(target!)."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    loss = aj.exp(input) - target * input if log_input else input - target * aj.log(input + eps)
    if full:
        safe = target.clamp(min=1.0)
        stirling = safe * aj.log(safe) - safe + 0.5 * aj.log(2 * math.pi * safe)
        loss = loss + aj.where(target > 1, stirling, 0.0)
    return reduce_loss(loss, reduction)


def _gaussian_variance(input: Tensor, var: Tensor | float) -> Tensor:
    """The variance as a tensor that broadcasts against input; ValueError when its shape cannot be meant."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ArgumentError("var has negative entry/entries")
        return aj.full_like(input, var)
    if var.shape == input.shape:
        return var
    if input.shape[:-1] == var.shape:
        return var.unsqueeze(-1)
    if var.ndim == input.ndim and all(v in (1, n) for v, n in zip(var.shape, input.shape, strict=True)):
        return var
    raise ArgumentError("var is of incorrect size")


_NEGATIVE_VARIANCE = "var has negative entry/entries"


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of a Gaussian with the given variance, clamped from below by ``eps``."""
    variance = _gaussian_variance(input, var)
    require(variance, lambda v: ~(v < 0), _NEGATIVE_VARIANCE, "0 and more", named="var", kind="argument")
    # the clamp bounds the value only; the gradient passes through, as in torch
    variance = variance + (variance.clamp(min=eps) - variance).detach()
    loss = 0.5 * (aj.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(loss, reduction)


@in_full_precision
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    near = aj.where(target.ne(-1), input, 0.0)
    far = aj.where(target.ne(1), (margin - input).clamp(min=0.0), 0.0)
    return reduce_loss(near + far, reduction)


@refuses("complex")
@in_full_precision
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target (x1 - x2) + margin)."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduce_loss((-target * (input1 - input2) + margin).clamp(min=0.0), reduction)


@refuses("int")
@in_full_precision
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-y x)) with y = 1 or -1, in the dtype of x."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    require_constant("soft_margin_loss", "target", target)
    target = target.to(input.dtype)
    return reduce_loss(softplus_of(-target * input), reduction)


@refuses("complex")
@in_full_precision
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if target.ndim > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported", {"target": target})
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    if not input1.is_floating_point():
        input1, input2 = input1.float(), input2.float()
    axis = target.ndim
    squares = [(x * x).sum(axis) + _LEAST_SQUARE for x in (input1, input2)]
    cosine = (input1 * input2).sum(axis) / (squares[0] * squares[1]).sqrt()
    near = aj.where(target.eq(1), 1 - cosine, 0.0)
    far = aj.where(target.eq(-1), (cosine - margin).clamp(min=0.0), 0.0)
    return reduce_loss(near + far, reduction)


@in_full_precision
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin); ``swap`` takes the nearer of both to negative."""
    reduction = resolve_reduction(size_average, reduce, reduction)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet margin loss with a distance of the user's."""
    if margin <= 0:
        raise ArgumentError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    to_positive = distance(anchor, positive)
    to_negative = distance(anchor, negative)
    if swap:
        to_negative = aj.minimum(to_negative, distance(positive, negative))
    return reduce_loss((margin + to_positive - to_negative).clamp(min=0.0), reduction)
