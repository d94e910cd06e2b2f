"""Connectionist temporal classification: the loss of unaligned label sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import autojit as aj
from autojit.core.errors import ArgumentError, DTypeError, ShapeError
from autojit.dispatch.kernels import in_one_step
from autojit.dispatch.requirements import require
from autojit.functions.autocast import in_full_precision
from autojit.functions.refused_dtypes import refuses
from autojit.nn.functional.reduction import known
from autojit.tensor import Tensor
from autojit.tensor.state import computes_at_once
from autojit.tensor.tensor import wrap

_NODES = {"none": "CtcLossBackward0", "sum": "SumBackward0", "mean": "MeanBackward0"}


@refuses("bool int complex")
@in_full_precision
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of label sequences without alignment.

    Shapes: ``f[frames, batch, classes], i64[batch, labels] -> f[]`` (``f[batch]`` for ``reduction="none"``); targets
    may also be one vector of all labels; ``log_probs`` without the batch axis gives the loss of one sequence. Units:
    nats.

    Args:
        input_lengths, target_lengths: frames and labels of each sequence.
        blank: the class that stands for no label.
        reduction: ``"none"``, ``"sum"``, or ``"mean"``: each loss over its number of labels, averaged.
        zero_infinity: losses of impossible sequences (and their gradients) count as 0.

    Raises:
        ArgumentError: the reduction is unknown, or the blank is not a class.
        ShapeError: lengths exceed the frames or labels there are.

    Example:
        >>> import autojit as aj
        >>> import autojit.nn.functional as F
        >>> uniform = aj.zeros(2, 1, 2).log_softmax(2)
        >>> F.ctc_loss(uniform, aj.tensor([[1]]), [2], [1])  # three of the four paths spell the label
        tensor(0.2877)
    """
    known(reduction)
    if log_probs.dtype.size_bytes < 4:  # which does not hold the logarithm of a probability that is 0
        wide = ctc_loss(log_probs.float(), targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
        return wide.to(log_probs.dtype)
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    frames, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"blank must be in label range, got {blank} of {classes} classes")
    steps, labels = (_lengths(given, batch, log_probs) for given in (input_lengths, target_lengths))
    rows = _rows(targets, labels, batch)
    longest_row = targets.shape[1] if targets.ndim == 2 else None
    if not (_are_within(steps, frames) and _are_within(labels, longest_row)):
        if isinstance(input_lengths, list | tuple) and any(int(n) > frames for n in input_lengths):
            raise ShapeError(
                f"Expected input_lengths to have value at most {frames}, but got value {max(input_lengths)}"
            )
        _require_lengths(steps, frames, labels, longest_row)
    options = blank, reduction, bool(zero_infinity)
    losses = in_one_step("ctc_losses", options, log_probs, rows, steps, labels, node=_NODES[reduction])
    return losses.squeeze(0) if single and reduction == "none" else losses


def _lengths(given: Tensor | Sequence[int], batch: int, like: Tensor) -> Tensor:
    if isinstance(given, Tensor) and given.dtype.category != 1:
        raise DTypeError("input_lengths and target_lengths must be integral", {"lengths": given})
    if not isinstance(given, Tensor):
        numbers = [int(n) for n in given]
        if type(like._array) is np.ndarray and computes_at_once():
            lengths = wrap(np.array(numbers, np.int64))
        else:
            lengths = aj.tensor(numbers, device=like.device, dtype=aj.int64)
    elif given.dtype is aj.int64 and given.ndim == 1 and given.device == like.device:
        lengths = given
    else:
        lengths = given.to(like.device).long().reshape(-1)
    if lengths.shape[0] != batch:
        raise ShapeError(f"lengths must be of size batch_size, got {lengths.shape[0]} for {batch} sequences")
    return lengths


def _are_within(lengths: Tensor, most: int | None) -> bool:
    """Whether lengths that are at hand are from 0 to ``most``; what is not is asked by `_require_lengths`."""
    array = lengths._array
    if type(array) is not np.ndarray or not array.size or type(most) not in (int, type(None)):
        return False
    return bool(array.min() >= 0 and (most is None or array.max() <= most))


def _require_lengths(steps: Tensor, frames: int, labels: Tensor, longest_row: int | None) -> None:
    refusal = "Expected input_lengths to be between 0 and the number of frames"
    valid = "0 to the number of frames"
    require(steps, lambda n: (n >= 0) & (n <= frames), refusal, valid, named="input_lengths")
    refusal = "Expected target_lengths to have value at least 0"
    require(labels, lambda n: n >= 0, refusal, "0 and more", named="target_lengths")
    if longest_row is not None:
        refusal = "Expected target_lengths to be no more than there are targets in a row"
        require(labels, lambda n: n <= longest_row, refusal, "the length of a row at most", named="target_lengths")


def _rows(targets: Tensor, labels: Tensor, batch: int) -> Tensor:
    """One row of labels per sequence; those that are shorter than the longest are followed by anything."""
    targets = targets.long()
    if targets.ndim == 2:
        return targets
    longest = int(labels.max().item()) if batch else 0
    if not longest:
        return targets.new_zeros((batch, 0))
    starts = (labels.cumsum(0) - labels).unsqueeze(1)
    places = aj.arange(longest, device=labels.device)
    return targets[aj.where(places < labels.unsqueeze(1), starts + places, 0)]
