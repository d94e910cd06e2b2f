"""Classification losses over class indices, class probabilities and independent labels."""

from __future__ import annotations

from typing import cast

import numpy as np

import autojit as aj
from autojit.core.dtypes import HALVES
from autojit.core.errors import ArgumentError, DTypeError, ShapeError, UsageError
from autojit.core.sizes import surely_equal
from autojit.dispatch.composite_nodes import composed
from autojit.dispatch.dispatch import apply
from autojit.dispatch.kernels import LARGE, in_one_pass, in_one_step
from autojit.dispatch.requirements import is_known, require, told
from autojit.functions.autocast import in_full_precision
from autojit.functions.refused_dtypes import refuses
from autojit.history.op_node import rename_node
from autojit.nn.functional.activation import log_softmax, logsigmoid, softplus_of
from autojit.nn.functional.operand_dtypes import (
    require_constant,
    require_differentiable,
    require_dtype_of,
    require_float_result,
)
from autojit.nn.functional.reduction import COMMON, known, reduce_loss, reduced_in_one_step, resolve_reduction
from autojit.ops import composites_loss
from autojit.ops.composed import NllLoss, is_common
from autojit.ops.composites_loss import pick
from autojit.ops.indexing import FROM_THE_FRONT
from autojit.tensor import Tensor
from autojit.tensor.state import computes_at_once

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss",
]  # fmt: skip


def _check_classes(name: str, input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The class axis of ``input``; errors when shapes of class indices and scores do not fit."""
    axis = _class_axis(input)
    expected = input.shape[:axis] + input.shape[axis + 1 :]
    if input.ndim > 1 and target.ndim and input.shape[0] != target.shape[0]:
        raise ArgumentError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]})."
        )
    if input.ndim <= 2 and target.ndim > 1:
        raise ShapeError(
            f"{name}: 0D or 1D target tensor expected, multi-target not supported",
            {"input": input, "target": target},
            "give each row the index of its class, or probabilities of the input's shape",
        )
    if tuple(target.shape) != tuple(expected):
        raise ShapeError(
            f"{name}: expected target size {list(expected)} for input size {list(input.shape)}, "
            f"got {list(target.shape)}"
        )
    _check_weight("", input.shape[axis], weight)
    return axis


def _class_axis(input: Tensor) -> int:
    if input.ndim == 0:
        raise ArgumentError(f"Expected 1 or more dimensions (got {input.ndim})")
    return 0 if input.ndim == 1 else 1


def _check_weight(name: str, classes: int, weight: Tensor | None) -> None:
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        raise ShapeError(
            f"{name}weight tensor should be defined either for all {classes} classes or no classes"
            f" but got weight tensor of shape: {list(weight.shape)}"
        )


def _check_class_weights(input: Tensor, weight: Tensor | None) -> None:
    require_dtype_of("nll_loss", input, "weight", weight)
    require_constant("nll_loss_forward", "weight", weight)


def _index_dtype(name: str, target: Tensor) -> None:
    if target.dtype is not aj.int64 and target.dtype is not aj.uint8:
        found = target.dtype.scalar_type
        raise UsageError(f"{name}: expected scalar type Long or Byte for class indices but found {found}")


@in_full_precision
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[y] x[y] over log-probabilities x; the mean divides by the sum of the weights that took part.

    Shapes: ``f[n, c], i[n]``, ``f[c], i[]`` or ``f[n, c, ...], i[n, ...]``.
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    is_plain = weight is None and reduction == "mean" and ignore_index < 0
    if is_plain and _names_classes(input, target) and input.numel() < LARGE:
        loss = apply(_NLL_LOSS, input, target)
        return rename_node(loss, "NllLossBackward0", weight=weight, ignore_index=ignore_index)
    axis = _check_classes("nll_loss", input, target, weight)
    require_differentiable("nll_loss", input)
    _check_class_weights(input, weight)
    _index_dtype("nll_loss", target)
    target = target.to(aj.int64)
    valid = _valid(target, input.shape[axis], ignore_index)
    loss = _reduce_classes(-pick(input, target, axis), valid, target, weight, reduction)
    return rename_node(loss, "NllLossBackward0", weight=weight, ignore_index=ignore_index)


def _valid(target: Tensor, axis_size: int, ignore_index: int) -> Tensor:
    """The mask of targets that are not ignored; IndexError for one out of range."""
    valid: Tensor = target.ne(ignore_index)
    inside = ~valid | ((target >= 0) & (target < axis_size))
    classes = f"0 to {axis_size - 1}" if type(axis_size) is int else "0 to the number of classes - 1"
    is_told = told(inside, target, "Target {value} is out of bounds.", classes, named="target", kind="index")
    return valid if is_known(target) else valid & is_told & _looked_up(target, valid, axis_size)


def _looked_up(target: Tensor, valid: Tensor, axis_size: int) -> Tensor:
    """True everywhere, by looking every valid target up in the table of classes: a compiled step reports look-ups that
    leave their table. A negative target would count from the end, so it is moved far before the table.
    """
    place = aj.where(valid, aj.where(target < 0, target - FROM_THE_FRONT, target), 0)
    return aj.take(aj.arange(axis_size, device=place.device), place) >= 0


def _reduce_classes(loss: Tensor, valid: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Mask and weight the per-target losses and reduce them; the mean is over the weights of valid targets."""
    loss = aj.where(valid, loss, 0.0)
    if weight is None:
        if reduction != "mean":
            return reduce_loss(loss, reduction)
        return loss.sum() / valid.sum().to(loss.dtype)
    weights = class_weights(weight, valid, target)
    loss = loss * weights
    return loss.sum() / weights.sum() if reduction == "mean" else reduce_loss(loss, reduction)


_NLL_LOSS = NllLoss()


def _names_classes(input: Tensor, target: Tensor) -> bool:
    """Whether each row of ``input`` has its class in ``target``, all concrete, so that one op computes the loss."""
    x, classes = input._array, target._array
    return (
        computes_at_once()
        and type(x) is np.ndarray
        and type(classes) is np.ndarray
        and x.ndim == 2
        and x.dtype.char in COMMON
        and classes.dtype == np.int64
        and classes.shape == x.shape[:1]
        and classes.size != 0
        and bool(np.maximum.reduce(classes.view(np.uint64)) < x.shape[1])  # negative ones are large
    )


@in_full_precision
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log-likelihood of softmax(x) at class indices, or against class probabilities of x's shape.

    Shapes: ``f[n, c], i[n]`` (also ``f[c], i[]`` and ``f[n, c, ...], i[n, ...]``), or both of the same floating shape.
    """
    reduction = resolve_reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise UsageError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.is_floating_point() and target.ndim == input.ndim and target.shape == input.shape:
        if ignore_index >= 0:
            raise UsageError("ignore_index is not supported for floating point target")
        return _probability_cross_entropy(input, target, weight, reduction, label_smoothing)
    if target.is_floating_point():
        _check_classes("cross_entropy", input, target, weight)
        found = target.dtype.scalar_type
        raise UsageError(f"expected scalar type Long but found {found} for class indices of cross_entropy")
    is_plain = weight is None and label_smoothing == 0.0 and reduction == "mean" and ignore_index < 0
    if is_plain and _names_classes(input, target):
        if input.numel() < LARGE:
            return apply(_NLL_LOSS, input.log_softmax(1), target)
        options = (1, 0.0, "mean")
        return in_one_step("class_losses", options, input, target, node="NllLossBackward0")

    def by_parts(input: Tensor, target: Tensor) -> Tensor:
        return _class_cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)

    names_classes = target.dtype is aj.int64 and surely_equal(tuple(target.shape), tuple(input.shape[:1]))
    if is_plain and input.ndim == 2 and is_common(input.dtype) and names_classes:
        recorded = composed(_NLL_LOSS, (input, target), by_parts, "NllLossBackward0")
        if recorded is not None:
            return cast(Tensor, recorded)
    return by_parts(input, target)


def _class_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, label_smoothing: float
) -> Tensor:
    axis = _check_classes("cross_entropy", input, target, weight)
    _check_class_weights(input, weight)
    _index_dtype("cross_entropy", target)
    target = target.to(aj.int64)
    valid = _valid(target, input.shape[axis], ignore_index)
    if label_smoothing == 0.0 or weight is None:
        loss = composites_loss.cross_entropy(input, target, axis, label_smoothing)
        loss = _reduce_classes(loss, valid, target, weight, reduction)
        if label_smoothing == 0.0:
            return rename_node(loss, "NllLossBackward0", weight=weight, ignore_index=ignore_index)
        return loss
    log_probs = log_softmax(input, axis)
    hard = aj.where(valid, -pick(log_probs, target, axis), 0.0) * class_weights(weight, valid, target)
    even = aj.where(valid, -(log_probs * _along(weight, axis, input.ndim)).sum(axis), 0.0)
    loss = (1.0 - label_smoothing) * hard + (label_smoothing / input.shape[axis]) * even
    if reduction != "mean":
        return reduce_loss(loss, reduction)
    return loss.sum() / class_weights(weight, valid, target).sum()


def class_weights(weight: Tensor, valid: Tensor, target: Tensor) -> Tensor:
    """The weight of each target's class, 0 where ignored."""
    return aj.where(valid, weight[aj.where(valid, target, 0)], 0.0)


def _along(weight: Tensor, axis: int, ndim: int) -> Tensor:
    return weight.reshape([-1 if place == axis else 1 for place in range(ndim)])


def _probability_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    axis = _class_axis(input)
    classes = input.shape[axis]
    _check_weight("cross_entropy: ", classes, weight)
    if label_smoothing > 0.0:
        target = target * (1.0 - label_smoothing) + label_smoothing / classes
    products = log_softmax(input, axis) * target
    if weight is not None:
        products = products * _along(weight, axis, input.ndim)
    if reduction == "mean":
        return -products.sum() / (input.numel() // max(classes, 1))
    return reduce_loss(-products.sum(axis), reduction)


@in_full_precision
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y log p + (1 - y) log(1 - p)), each log bounded from below by -100."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ArgumentError(
            f"Using a target size ({list(target.shape)}) that is different to the input size ({list(input.shape)}) "
            "is deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype:
        raise DTypeError(
            f"binary_cross_entropy: found dtype {target.dtype} but expected {input.dtype}",
            {"input": input, "target": target},
            "convert the target: target.to(input.dtype)",
        )
    if not is_known(input) or not _are_probabilities(input):
        require(input, lambda p: (p >= 0) & (p <= 1), _NO_PROBABILITIES, "probabilities, 0 to 1")
    if not is_known(target) or not _are_probabilities(target):
        refusal = _NO_PROBABILITIES.replace("input", "target")
        require(target, lambda p: (p >= 0) & (p <= 1), refusal, "probabilities, 0 to 1", named="target")
    node = "BinaryCrossEntropyBackward0"
    if weight is None:
        return reduced_in_one_step("probability_loss", (), input, target, reduction, node=node)
    return reduce_loss(in_one_pass("probability_loss", (), input, target, node=node) * weight, reduction)


_NO_PROBABILITIES = "all elements of input should be between 0 and 1"


def _are_probabilities(x: Tensor) -> bool:
    """Whether all elements are between 0 and 1."""
    array = x.numpy(force=True)
    return not array.size or bool(array.min() >= 0 and array.max() <= 1)


@refuses("int")
@in_full_precision
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of sigmoid(x), computed without forming the sigmoid."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ArgumentError(f"Target size ({aj.Size(target.shape)}) must be the same as input size "
                         f"({aj.Size(input.shape)})")  # fmt: skip
    require_float_result("binary_cross_entropy_with_logits", input, target)
    is_one_kernel = target.dtype is input.dtype and target.dtype not in HALVES  # of halves torch rounds every part
    if pos_weight is None and weight is None and is_one_kernel:
        return reduced_in_one_step(
            "logit_loss", (), input, target, reduction, node="BinaryCrossEntropyWithLogitsBackward0"
        )
    negative_log = softplus_of(-input)  # -log sigmoid(x)
    if pos_weight is None:
        loss = (1.0 - target) * input + negative_log
    else:
        loss = (1.0 - target) * input + (1.0 + (pos_weight - 1.0) * target) * negative_log
    loss = loss if weight is None else loss * weight
    return reduce_loss(loss.to(target.dtype), reduction)  # torch writes the losses in place of 1 - target


@refuses("bool int complex")
@in_full_precision
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum over other classes j of weight[y] max(0, margin - x[y] + x[j])^p / c."""
    reduction = known(resolve_reduction(size_average, reduce, reduction))
    if p not in (1, 2):
        raise ArgumentError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ArgumentError("weight must be one-dimensional")
    if input.ndim > 2 or 0 in input.shape[1:] or (input.ndim == 1 and 0 in input.shape):
        raise ShapeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}", {"input": input},
        )  # fmt: skip
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    if target.ndim > 1 or target.numel() != rows.shape[0]:
        raise ShapeError(
            f"multi_margin_loss: inconsistent target size, expected {rows.shape[0]} but got {list(target.shape)}",
            {"input": input, "target": target},
        )
    require_dtype_of("multi_margin_loss", input, "weight", weight)
    require_constant("multi_margin_loss", "weight", weight)
    index = target.reshape(-1, 1)
    picked = rows.gather(1, index)
    violation = margin - picked + rows
    violation = aj.where(violation > 0, violation, 0.0)  # a NaN violates no margin, as in torch
    if p == 2:
        violation = violation * violation
    if weight is not None:
        violation = violation * weight[index]
    own = aj.arange(rows.shape[1], device=index.device).reshape(1, -1) == index
    loss = aj.where(own, 0.0, violation).sum(1) / rows.shape[1]
    return reduce_loss(loss.reshape(target.shape), reduction)


@refuses("int")
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes (last axis) of binary cross-entropies of logits."""
    reduction = resolve_reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return reduce_loss(loss.mean(-1), reduction)


@refuses("bool int complex")
@in_full_precision
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum over target classes j and other classes i of max(0, 1 - (x[j] - x[i])) / c.

    Shapes: ``f[n, c], i64[n, c]`` or ``f[c], i64[c]``; a row of targets ends at its first -1.

    Raises:
        RuntimeError: shapes differ.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> F.multilabel_margin_loss(aj.tensor([0.1, 0.2, 0.4, 0.8]), aj.tensor([3, 0, -1, 1]))
        tensor(0.8500)
    """
    reduction = known(resolve_reduction(size_average, reduce, reduction))
    if input.ndim > 2 or input.shape != target.shape or 0 in input.shape[-1:]:
        raise ShapeError(
            f"multilabel_margin_loss: Expected input and target of the same size and at most 2 axes, got "
            f"{list(input.shape)} and {list(target.shape)}",
            {"input": input, "target": target},
        )
    classes = input.shape[-1] if input.ndim else 1
    rows, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    listed = (labels >= 0).to(aj.int64).cumprod(1) > 0
    labels = aj.where(listed, labels, 0)
    is_target = ((labels.unsqueeze(2) == aj.arange(classes, device=labels.device)) & listed.unsqueeze(2)).any(1)
    violation = 1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1)
    violation = aj.where(violation > 0, violation, 0.0)  # a NaN violates no margin, as in torch
    counts = listed.unsqueeze(2) & ~is_target.unsqueeze(1)
    loss = aj.where(counts, violation, 0.0).sum((1, 2)) / classes
    return reduce_loss(loss if input.ndim == 2 else loss.squeeze(0), reduction)
