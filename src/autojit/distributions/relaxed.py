"""Continuous stand-ins for 0/1 and one-hot values, so that draws are differentiable (Maddison et al., 2017)."""

from __future__ import annotations

from math import lgamma
from typing import Any

from autojit.distributions import constraints
from autojit.distributions.categorical import _OfCategories
from autojit.distributions.counts import _OfProbability
from autojit.distributions.distribution import Distribution
from autojit.functions.comparison import clamp
from autojit.functions.elementwise import log, log1p, sigmoid
from autojit.functions.factories import tensor
from autojit.functions.namespace import finfo
from autojit.functions.random import rand
from autojit.functions.reduction import logsumexp, softmax
from autojit.nn.functional import softplus
from autojit.tensor.tensor import Tensor


def _uniform(shape: Any, like: Tensor) -> Tensor:
    kind = finfo(like.dtype)
    return clamp(rand(shape, dtype=like.dtype, device=like.device), min=kind.eps, max=1 - kind.eps)


def _temperature(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else tensor(value, dtype=like.dtype, device=like.device)


class RelaxedBernoulli(_OfProbability):
    """Numbers between 0 and 1, near one of them when the temperature is low.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions.RelaxedBernoulli(aj.tensor(1.0), probs=aj.tensor(0.5))
        >>> d.log_prob(aj.tensor(0.25))
        tensor(0.)
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take(probs, logits)
        self.temperature = _temperature(temperature, self._given).expand(self._given.shape)
        Distribution.__init__(self, self._given.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = _uniform(self._extended_shape(sample_shape), self._given)
        found = sigmoid((log(u) - log1p(-u) + self.logits) / self.temperature)
        kind = finfo(found.dtype)
        return clamp(found, min=kind.tiny, max=1 - kind.eps)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        kind = finfo(value.dtype)
        value = clamp(value, min=kind.tiny, max=1 - kind.eps)  # 0 and 1 are numbers that were too close to them
        place = log(value) - log1p(-value)
        gap = self.logits - place * self.temperature
        return log(self.temperature) + gap - 2 * softplus(gap) - log(value) - log1p(-value)


class RelaxedOneHotCategorical(_OfCategories):
    """Probability vectors, near a one-hot one when the temperature is low.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions.RelaxedOneHotCategorical(aj.tensor(0.5), probs=aj.ones(3))
        >>> d.rsample().shape
        autojit.Size([3])
    """

    support = constraints.simplex
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        shape = self._take(probs, logits)
        self.temperature = _temperature(temperature, self._given).expand(shape[:-1])
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = _uniform(self._extended_shape(sample_shape), self._given)
        return softmax((self.logits - log(-log(u))) / self.temperature.unsqueeze(-1), -1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self._event_shape[0]
        heat = self.temperature.unsqueeze(-1)
        score = self.logits - heat * log(value)
        score = (score - logsumexp(score, -1, keepdim=True)).sum(-1) - log(value).sum(-1)
        return score + lgamma(n) + (n - 1) * log(self.temperature)
