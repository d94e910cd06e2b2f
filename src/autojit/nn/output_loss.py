"""Losses that hold the last linear layer themselves, so that not all scores of many classes are computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import autojit as aj
from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError, ShapeError, UsageError
from autojit.dispatch.requirements import require
from autojit.nn import functional as F
from autojit.nn.containers import ModuleList, Sequential
from autojit.nn.functional.grouped import LinearCrossEntropyOptions
from autojit.nn.linear import Linear
from autojit.nn.loss import _WeightedLoss
from autojit.nn.module import Module
from autojit.tensor import Tensor
from autojit.tensor.state import is_tracing, state


class AdaptiveOutput(NamedTuple):
    """What ``AdaptiveLogSoftmaxWithLoss`` returns: the log-probability of each target, and their negative mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of many classes: frequent ones directly, rare ones in clusters of smaller layers.

    Shapes: ``f[n, in_features], i64[n]`` or ``f[in_features], i64[]``; ``output`` has the target's shape, ``loss`` is
    f[]. Classes are numbered by falling frequency.

    Args:
        cutoffs: where one cluster ends and the next begins, increasing, between 1 and ``n_classes - 1``.
        div_value: cluster k works with ``in_features / div_value^k`` features.
        head_bias: whether the first layer has a bias.

    Raises:
        ValueError: bad cutoffs.
        RuntimeError: input and target do not fit, or a target is not a class.

    Example:
        >>> import autojit as aj
        >>> layer = aj.nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs=[2, 5], div_value=2.0)
        >>> bool(aj.allclose(layer.log_prob(aj.ones(3, 4)).exp().sum(1), aj.ones(3)))
        True

    Source: Grave et al., arXiv:1609.04309.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        places = list(cutoffs)
        if not places:
            raise ArgumentError("cutoffs should be a sequence of length larger than 0")
        is_increasing = all(a < b for a, b in pairwise(places))
        if not is_increasing or places[0] <= 0 or places[-1] > n_classes - 1 or any(int(c) != c for c in places):
            raise ArgumentError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*places, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for k, (low, high) in enumerate(pairwise(self.cutoffs), start=1):
            hidden = int(in_features // (div_value**k))
            first = Linear(in_features, hidden, False, device, dtype)
            self.tail.append(Sequential(first, Linear(hidden, high - low, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draw the parameters again."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveOutput:
        _check_target(input_, target_)
        is_batched = target_.ndim > 0
        input = input_ if is_batched else input_.unsqueeze(0)
        target = target_ if is_batched else target_.unsqueeze(0)
        last = self.n_classes - 1
        refusal = f"Target values should be in [0, {last}]"
        require(target, lambda t: (t >= 0) & (t <= last), refusal, f"0 to {last}", named="target")
        place, below = target, input.new_zeros(target.shape)
        for k, (low, high) in enumerate(pairwise(self.cutoffs)):
            is_here = (target >= low) & (target < high)
            if self._decides(k) and not bool(is_here.any()):
                continue  # the cluster's layers get no gradient, so that an optimiser leaves them alone
            place = aj.where(is_here, self.shortlist_size + k, place)
            below = below + self._within(k, input, target - low, is_here)
        head = F.log_softmax(self.head(input), 1)
        output = head.gather(1, place.unsqueeze(1)).squeeze(1) + below
        loss = (-output).mean()
        return AdaptiveOutput(output if is_batched else output.squeeze(0), loss)

    def _decides(self, cluster: int) -> bool:
        """Whether Python is to look for rows of a cluster: in a step where gradients tell whether there are any."""
        trace = state.trace
        if trace is None:
            return True
        trains = state.grad_enabled and any(p.requires_grad for p in self.tail[cluster].parameters())
        return trains and not trace.runs_often

    def _within(self, cluster: int, input: Tensor, place: Tensor, is_here: Tensor) -> Tensor:
        """Log-probabilities of the targets within their cluster, 0 for the rows of other clusters.

        Only the cluster's rows are computed; a captured step, where their number is not known, computes all.
        """
        if is_tracing():
            scores = F.log_softmax(self.tail[cluster](input), 1)
            picked = scores.gather(1, aj.where(is_here, place, 0).unsqueeze(1)).squeeze(1)
            return aj.where(is_here, picked, 0.0)
        rows = is_here.nonzero().squeeze(1)
        scores = F.log_softmax(self.tail[cluster](input.index_select(0, rows)), 1)
        picked = scores.gather(1, place.index_select(0, rows).unsqueeze(1)).squeeze(1)
        return input.new_zeros(place.shape).index_copy(0, rows, picked)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes. Shapes: ``f[n, in_features] -> f[n, n_classes]``."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for k, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), 1) + head[:, self.shortlist_size + k].unsqueeze(1))
        return aj.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row. Shapes: ``f[n, in_features] -> i64[n]``."""
        return self.log_prob(input).argmax(1)


def _check_target(input: Tensor, target: Tensor) -> None:
    facts = {"input": input, "target": target}
    if target.ndim > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported", facts)
    if target.ndim == 1 and input.shape[0] != target.shape[0]:
        raise ShapeError("Input and target should have the same size in the batch dimension.", facts)
    if input.ndim != target.ndim + 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with size "
            f"{list(input.shape)}",
            facts,
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross-entropy of scores that its own layer ``linear`` computes; see ``F.linear_cross_entropy``.

    Shapes: ``f[(n,) in_features]``, a target as for scores ``f[(n,) num_classes, *out_features]``.

    Example:
        >>> import autojit as aj
        >>> loss = aj.nn.LinearCrossEntropyLoss(3, 4)
        >>> loss(aj.zeros(2, 3), aj.tensor([0, 1])).item()
        1.3862943649291992
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: DType | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ShapeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1.0:
            raise UsageError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, num_classes * prod(out_features), bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        bias = self.linear.bias
        shape = (self.num_classes, *self.out_features)
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
            f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}"
        )
