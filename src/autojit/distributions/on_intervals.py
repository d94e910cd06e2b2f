"""Numbers on an interval: the continuous Bernoulli on 0 ... 1, the generalised Pareto from ``loc`` on."""

from __future__ import annotations

from math import log as log_of
from typing import Any, ClassVar

from autojit.distributions import constraints
from autojit.distributions.counts import _OfProbability
from autojit.distributions.distribution import Constraints, ExponentialFamily, _Located
from autojit.distributions.parameters import (
    broadcast_all,
    clamp_probs,
    derived,
    logits_to_probs,
)  # fmt: skip
from autojit.functions.comparison import where
from autojit.functions.elementwise import abs as absolute
from autojit.functions.elementwise import exp, expm1, log, log1p
from autojit.functions.random import rand
from autojit.functions.shape import broadcast_tensors
from autojit.nn.functional import softplus
from autojit.tensor.tensor import Tensor


class ContinuousBernoulli(_OfProbability, ExponentialFamily):
    """Numbers x on 0 ... 1 with density proportional to p^x (1 - p)^(1 - x).

    Args:
        lims: where p is so near 1/2 that Taylor series are used.

    Raises:
        ValueError: not exactly one of ``probs`` and ``logits`` is given, or probabilities are invalid.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.ContinuousBernoulli(0.5).mean
        tensor(0.5000)

    Source: Loaiza-Ganem and Cunningham, arXiv:1907.06845.
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._lims = lims
        super().__init__(probs, logits, validate_args)
        if probs is not None:
            self.__dict__["probs"] = clamp_probs(self.probs)

    @derived
    def probs(self) -> Tensor:
        """The parameter p."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _far(self) -> tuple[Tensor, Tensor]:
        """Whether p is far enough from 1/2 for the closed forms, and p moved away from 1/2 where it is not."""
        p = self.probs
        is_far = (p <= self._lims[0]) | (p > self._lims[1])
        return is_far, where(is_far, p, self._lims[0])

    def _log_norm(self) -> Tensor:
        """The logarithm of the constant that makes the density integrate to 1."""
        is_far, p = self._far()
        ratio = (log1p(-p) - log(p)) / (1 - 2 * p)
        x = (self.probs - 0.5) ** 2
        return where(is_far, log(ratio), log_of(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        is_far, p = self._far()
        x = self.probs - 0.5
        found = p / (2.0 * p - 1.0) + 1.0 / (log1p(-p) - log(p))
        return where(is_far, found, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        is_far, p = self._far()
        x = (self.probs - 0.5) ** 2
        found = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / (log1p(-p) - log(p)) ** 2
        return where(is_far, found, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, x = broadcast_tensors(self.logits, value)
        return x * logits - softplus(logits) + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        is_far, p = self._far()
        found = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = where(is_far, found, value)
        return where(value <= 0.0, 0.0, where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        is_far, p = self._far()
        found = (log1p(value * (2.0 * p - 1.0) - p) - log1p(-p)) / (log(p) - log1p(-p))
        return where(is_far, found, value)

    def entropy(self) -> Tensor:
        low, high = log1p(-self.probs), log(self.probs)
        return self.mean * (low - high) - self._log_norm() - low


class GeneralizedPareto(_Located):
    """Numbers beyond a threshold ``loc``: exponential for concentration 0, a power law above 0, bounded below 0.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From ``loc`` on, bounded for negative concentrations."""
        is_bounded = self.concentration < 0
        width = self.scale / where(is_bounded, -self.concentration, 1.0)
        return constraints.interval(self.loc, where(is_bounded, self.loc + width, float("inf")))

    def _bent(self) -> tuple[Tensor, Tensor]:
        """Whether the concentration differs from 0, and the concentration moved away from 0 where it does not."""
        is_bent = absolute(self.concentration) > 1e-8
        return is_bent, where(is_bent, self.concentration, 1.0)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        is_bent, c = self._bent()
        power = 1 / c + 1
        found = where(power.eq(0), 0.0, power * log1p(c * z))
        return -log(self.scale) - where(is_bent, found, z)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a greater number."""
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        is_bent, c = self._bent()
        return where(is_bent, -log1p(c * z) / c, -z)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of ``cdf``."""
        return log1p(-exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        is_bent, c = self._bent()
        log_rest = log1p(-value)
        return self.loc + self.scale * where(is_bent, expm1(-c * log_rest) / c, -log_rest)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        found = self.loc + self.scale / (1 - where(c < 1, c, 0.5))
        return where(c < 1, found, float("nan"))

    @property
    def variance(self) -> Tensor:
        c = where(self.concentration < 0.5, self.concentration, 0.25)
        found = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return where(self.concentration < 0.5, found, float("nan"))

    def entropy(self) -> Tensor:
        return log(self.scale) + self.concentration + 1
