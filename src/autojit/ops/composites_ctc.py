"""Connectionist temporal classification as one function: the forward variable is a `Scan` over the frames.

The forward variable of the extended labels (blank, l1, blank, l2, ..., blank) runs over the frames; the loss is the
negative logarithm of the total probability at its end. Impossible states carry a large negative number in place of
minus infinity, so that no derivative meets ``inf - inf``. Source: Graves et al., ICML 2006.
"""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import int64
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.op import O, bind
from autojit.ops.composites_loss import reduced
from autojit.ops.composites_reduction import logsumexp
from autojit.ops.elementwise_arithmetic import add, cast, div, neg, stop_gradient, sub, where
from autojit.ops.elementwise_exponential import exp, logaddexp
from autojit.ops.elementwise_logic import gt, logical_and, lt, ne
from autojit.ops.elementwise_selection import clamp_min
from autojit.ops.graph_op import as_tuple
from autojit.ops.indexing import gather
from autojit.ops.joining import concatenate, stack
from autojit.ops.reductions import sum
from autojit.ops.scan_steps import Scan
from autojit.ops.shape import broadcast_to, pad, reshape, slice_axis
from autojit.ops.sources import full, iota

__all__ = ["ctc_losses"]

_IMPOSSIBLE = -1e30
"""The logarithm that stands for probability 0."""


def ctc_losses(log_probs: O, rows: O, steps: O, labels: O, blank: int, reduction: str, zero_infinity: bool) -> O:
    """The loss of label sequences without alignment.

    Shapes: ``f[frames, batch, classes], i64[batch, longest], i64[batch], i64[batch] -> f[]``, or f[batch].

    Args:
        rows: the labels of each sequence; what follows them is ignored.
        steps, labels: the frames and labels of each sequence.
        zero_infinity: losses of impossible sequences (and their gradients) count as 0.
    """
    frames, batch, _ = log_probs.spec.shape
    extended = _extended(rows, labels, blank)
    states = extended.spec.shape[1]
    index = broadcast_to(reshape(extended, (1, batch, states)), (frames, batch, states))
    skipped = slice_axis(pad(extended, (0, 2), (0, 0), blank), 1, 0, states)
    may_skip = logical_and(ne(extended, blank), ne(extended, skipped))
    is_inside = lt(iota(steps, (frames, batch), 0, int64), steps)
    alpha = _at_last_frame(gather(log_probs, 2, index), may_skip, is_inside)
    losses = add(neg(_at_end(alpha, steps, labels)), _normalization(log_probs, is_inside))
    losses = where(gt(losses, -_IMPOSSIBLE / 10), 0.0 if zero_infinity else float("inf"), losses)
    if reduction == "mean":
        losses = div(losses, cast(clamp_min(labels, 1), losses.spec.dtype))
    found: O = reduced(losses, reduction)
    return found


def _extended(rows: O, labels: O, blank: int) -> O:
    """The labels of each sequence between blanks, and blanks after them."""
    batch, longest = rows.spec.shape
    is_label = lt(iota(rows, (batch, longest), 1, int64), reshape(labels, (batch, 1)))
    kept = where(is_label, rows, blank)
    blanks = full(rows, blank, (batch, longest + 1))
    paired = reshape(stack((slice_axis(blanks, 1, 0, longest), kept), 2), (batch, 2 * longest))
    found: O = concatenate((paired, slice_axis(blanks, 1, longest, longest + 1)), 1)
    return found


def _normalization(log_probs: O, is_inside: O) -> O:
    """Zero, whose derivative by each frame is the frame's probabilities.

    torch differentiates the loss as if each frame were normalised after it. For logarithms of probabilities made by
    ``log_softmax`` this changes nothing.
    """
    total = sum(where(is_inside, sum(exp(log_probs), 2), 0.0), 0)
    found: O = sub(total, stop_gradient(total))
    return found


def _at_last_frame(emitted: O, may_skip: O, is_inside: O) -> O:
    """The forward variable f[batch, states] at the last frame of each sequence.

    It begins before the first frame, certain to be in the first blank, from where the first frame reaches that blank
    and the first label: so all frames are alike.
    """
    frames, batch, states = emitted.spec.shape
    begun = where(lt(iota(may_skip, (batch, states), 1, int64), 1), full(emitted, 0, ()), _IMPOSSIBLE)
    live = reshape(is_inside, (frames, batch, 1))
    builder = GraphBuilder()
    types: list[TensorType] = [begun.spec, emitted.spec.drop((0,)), live.spec.drop((0,)), may_skip.spec]
    after = _frame(*[builder.tracer(builder.input(t)) for t in types])
    op = Scan(builder.finish([after.value]), 1, 2, frames, False)
    found: O = as_tuple(bind(op, begun, emitted, live, may_skip), 1)[0]
    return found


def _frame(alpha: Any, emitted: Any, is_inside: Any, may_skip: Any) -> Any:
    """The next forward variable, f[batch, states]: from a state, the one before it or the one before that.

    Args:
        emitted: the frame's logarithms of probabilities, by state.
        is_inside: sequences, bool[batch, 1], that the frame belongs to; others keep their variable.
        may_skip: states, bool[batch, states], that may follow the second before them.
    """
    states, later = alpha.spec.shape[1], pad(alpha, (0, 2), (0, 0), _IMPOSSIBLE)
    by_one, two = slice_axis(later, 1, 1, states + 1), slice_axis(later, 1, 0, states)
    by_two = where(may_skip, two, _IMPOSSIBLE)
    reached = add(logsumexp(stack((alpha, by_one, by_two), 0), 0), emitted)
    return where(is_inside, clamp_min(reached, _IMPOSSIBLE), alpha)


def _at_end(alpha: O, steps: O, labels: O) -> O:
    """The logarithm of the probability to be at a sequence's last label or the blank after it, of ``alpha`` there."""
    batch = labels.spec.shape[0]
    end = reshape(add(labels, labels), (batch, 1))
    last = reshape(gather(alpha, 1, end), (batch,))
    before = reshape(gather(alpha, 1, clamp_min(sub(end, 1), 0)), (batch,))
    total = logaddexp(last, where(gt(labels, 0), before, _IMPOSSIBLE))
    without = where(gt(labels, 0), _IMPOSSIBLE, full(alpha, 0, (batch,)))
    found: O = where(gt(steps, 0), total, without)
    return found
