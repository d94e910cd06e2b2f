"""Connectionist temporal classification: the loss of unaligned label sequences.

The forward variable of the extended labels (blank, l1, blank, l2, ..., blank) runs over the frames; the loss is the
negative logarithm of the total probability at its end. Impossible states carry a large negative number in place of
minus infinity, so that no derivative meets ``inf - inf``. Source: Graves et al., ICML 2006.
"""

from __future__ import annotations

from collections.abc import Sequence

import autojit as aj
from autojit.core.errors import ArgumentError, ShapeError
from autojit.dispatch.kernels import in_one_step, is_one_step
from autojit.dispatch.requirements import require
from autojit.functions.autocast import in_full_precision
from autojit.functions.refused_dtypes import refuses
from autojit.nn.functional.reduction import known
from autojit.tensor import Tensor

_IMPOSSIBLE = -1e30


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
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    frames, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"blank must be in label range, got {blank} of {classes} classes")
    steps, labels = (_lengths(given, batch, log_probs) for given in (input_lengths, target_lengths))
    rows, longest = _rows(targets, labels, batch, blank)
    if isinstance(input_lengths, list | tuple) and any(int(n) > frames for n in input_lengths):
        raise ShapeError(f"Expected input_lengths to have value at most {frames}, but got value {max(input_lengths)}")
    _require_lengths(steps, frames, labels, targets.shape[1] if targets.ndim == 2 else None)
    losses = -_log_likelihood(log_probs, rows, steps, labels, longest, blank)
    losses = losses + _normalization(log_probs, steps)
    impossible = losses > -_IMPOSSIBLE / 10
    losses = aj.where(impossible, 0.0 if zero_infinity else float("inf"), losses)
    if reduction == "none":
        return losses.squeeze(0) if single else losses
    if reduction == "sum":
        return losses.sum()
    return (losses / labels.clamp(min=1).to(losses.dtype)).mean()


def _normalization(log_probs: Tensor, steps: Tensor) -> Tensor:
    """Zero, whose derivative by each frame is the frame's probabilities.

    torch differentiates the loss as if each frame were normalised after it. For logarithms of probabilities made by
    ``log_softmax`` this changes nothing.
    """
    inside = aj.arange(log_probs.shape[0], device=steps.device).unsqueeze(1) < steps
    total = aj.where(inside, log_probs.exp().sum(2), 0.0).sum(0)
    return total - total.detach()


def _lengths(given: Tensor | Sequence[int], batch: int, like: Tensor) -> Tensor:
    numbers = given if isinstance(given, Tensor) else aj.tensor([int(n) for n in given], device=like.device)
    lengths = numbers.to(like.device).long().reshape(-1)
    if lengths.shape[0] != batch:
        raise ShapeError(f"lengths must be of size batch_size, got {lengths.shape[0]} for {batch} sequences")
    return lengths


def _require_lengths(steps: Tensor, frames: int, labels: Tensor, longest_row: int | None) -> None:
    refusal = "Expected input_lengths to lie between 0 and the number of frames"
    valid = "0 to the number of frames"
    require(steps, lambda n: (n >= 0) & (n <= frames), refusal, valid, named="input_lengths")
    refusal = "Expected target_lengths to have value at least 0"
    require(labels, lambda n: n >= 0, refusal, "0 and more", named="target_lengths")
    if longest_row is not None:
        refusal = "Expected target_lengths to be no more than there are targets in a row"
        require(labels, lambda n: n <= longest_row, refusal, "the length of a row at most", named="target_lengths")


def _rows(targets: Tensor, labels: Tensor, batch: int, blank: int) -> tuple[Tensor, int]:
    """One row of labels per sequence, filled up with blanks, and the longest row."""
    targets = targets.long()
    if targets.ndim == 2:
        longest = targets.shape[1]
        inside = aj.arange(longest, device=labels.device) < labels.unsqueeze(1)
        return aj.where(inside, targets, blank), longest
    longest = int(labels.max().item()) if batch else 0
    starts = (labels.cumsum(0) - labels).unsqueeze(1)
    places = aj.arange(longest, device=labels.device)
    inside = places < labels.unsqueeze(1)
    if not longest:
        return targets.new_zeros((batch, 0)), 0
    return aj.where(inside, targets[aj.where(inside, starts + places, 0)], blank), longest


def _log_likelihood(log_probs: Tensor, rows: Tensor, steps: Tensor, labels: Tensor, longest: int, blank: int) -> Tensor:
    """Log of the probability of every sequence, about ``_IMPOSSIBLE`` where there is no path."""
    frames, batch, _ = log_probs.shape
    blanks = rows.new_full((batch, longest + 1), blank)
    paired = aj.stack([blanks[:, :longest], rows], 2).reshape(batch, 2 * longest)
    extended = aj.cat([paired, blanks[:, longest:]], 1)
    emitted = log_probs.gather(2, extended.unsqueeze(0).expand(frames, batch, 2 * longest + 1))
    states = aj.arange(2 * longest + 1, device=rows.device)
    barrier = emitted.detach().new_full((batch, 2), _IMPOSSIBLE)
    may_skip = (extended != blank) & (extended != aj.cat([extended.new_full((batch, 2), blank), extended], 1)[:, :-2])
    alpha = aj.where(states < 2, emitted[0], _IMPOSSIBLE)
    if is_one_step(alpha, emitted, may_skip):
        each, inside = emitted.unbind(0), (steps > aj.arange(frames, device=steps.device).unsqueeze(1)).unsqueeze(2)
        for frame in range(1, frames):
            alpha = in_one_step("ctc_frame", (_IMPOSSIBLE,), alpha, each[frame], may_skip, inside[frame])
        return _at_end(alpha, steps, labels)
    for frame in range(1, frames):
        by_one = aj.cat([barrier[:, :1], alpha], 1)[:, :-1]
        by_two = aj.where(may_skip, aj.cat([barrier, alpha], 1)[:, :-2], _IMPOSSIBLE)
        reached = aj.stack([alpha, by_one, by_two], 0).logsumexp(0) + emitted[frame]
        alpha = aj.where((steps > frame).unsqueeze(1), reached.clamp(min=_IMPOSSIBLE), alpha)
    return _at_end(alpha, steps, labels)


def _at_end(alpha: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of the probability to be at a sequence's last label or the blank after it, of ``alpha`` there."""
    end = (2 * labels).unsqueeze(1)
    last = alpha.gather(1, end).squeeze(1)
    before = alpha.gather(1, (end - 1).clamp(min=0)).squeeze(1)
    total = aj.logaddexp(last, aj.where(labels > 0, before, _IMPOSSIBLE))
    return aj.where(steps > 0, total, aj.where(labels > 0, _IMPOSSIBLE, 0.0))
