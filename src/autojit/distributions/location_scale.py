"""Distributions of a location and a scale: normal, Laplace, Cauchy, Gumbel, uniform."""

from __future__ import annotations

from math import log as log_of
from math import pi, sqrt
from typing import Any, ClassVar

from autojit.dispatch.requirements import require
from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, Distribution, ExponentialFamily, _Located
from autojit.distributions.parameters import EULER_CONSTANT, broadcast_all
from autojit.functions.comparison import clamp, where
from autojit.functions.elementwise import abs as absolute
from autojit.functions.elementwise import atan, exp, expm1, log, log1p, sign, tan
from autojit.functions.namespace import finfo
from autojit.functions.random import rand, randn
from autojit.functions.special import erf, erfinv
from autojit.tensor.tensor import Tensor


class _LocationScale(_Located):
    """``loc + scale * x`` for x of a standard distribution, whose functions a subclass gives."""

    arg_constraints: ClassVar[Constraints] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _standardized(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        kind = finfo(self.loc.dtype)
        drawn = rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(clamp(drawn, min=kind.tiny, max=1 - kind.eps / 2))  # strictly between 0 and 1


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution with mean ``loc`` and standard deviation ``scale``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Normal(0.0, 1.0).log_prob(aj.tensor(0.0))
        tensor(-0.9189)
    """

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * drawn

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._standardized(value)
        return -0.5 * x * x - log(self.scale) - 0.5 * log_of(2 * pi)

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + erf(self._standardized(value) * sqrt(0.5)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * erfinv(2 * value - 1) * sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * log_of(2 * pi) + log(self.scale)


class Laplace(_LocationScale):
    """The Laplace distribution: density falling exponentially on both sides of ``loc``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Laplace(0.0, 1.0).cdf(aj.tensor(0.0))
        tensor(0.5000)
    """

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return sqrt(2) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -log(2 * self.scale) - absolute(self._standardized(value))

    def cdf(self, value: Tensor) -> Tensor:
        x = self._standardized(value)
        return 0.5 - 0.5 * sign(x) * expm1(-absolute(x))

    def icdf(self, value: Tensor) -> Tensor:
        centred = value - 0.5
        return self.loc - self.scale * sign(centred) * log1p(-2 * absolute(centred))

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)


class Cauchy(_LocationScale):
    """The Cauchy distribution, which has no mean; ``loc`` is its median, ``scale`` its half width at half maximum.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Cauchy(0.0, 1.0).cdf(aj.tensor(1.0))
        tensor(0.7500)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc.new_full(self.loc.shape, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.loc.new_full(self.loc.shape, float("inf"))

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._standardized(value)
        return -log_of(pi) - log(self.scale) - log1p(x * x)

    def cdf(self, value: Tensor) -> Tensor:
        return atan(self._standardized(value)) / pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * tan(pi * (value - 0.5))

    def entropy(self) -> Tensor:
        return log_of(4 * pi) + log(self.scale)


class Gumbel(_LocationScale):
    """The Gumbel distribution, of the largest of many numbers.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Gumbel(0.0, 1.0).mean
        tensor(0.5772)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + EULER_CONSTANT * self.scale

    @property
    def stddev(self) -> Tensor:
        return pi / sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._standardized(value)
        return -x - exp(-x) - log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        return exp(-exp(-self._standardized(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * log(-log(value))

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + EULER_CONSTANT)


class Uniform(Distribution):
    """Numbers equally probable from ``low`` up to below ``high``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Uniform(0.0, 4.0).log_prob(aj.tensor([1.0]))
        tensor([-1.3863])
    """

    arg_constraints: ClassVar[Constraints] = {
        "low": constraints.dependent_property(is_discrete=False, event_dim=0),
        "high": constraints.dependent_property(is_discrete=False, event_dim=0),
    }
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args:
            refusal = "Uniform is not defined when low>= high"
            require(self.low, lambda low: low < self.high, refusal, "below high", named="low", kind="argument")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From ``low`` to ``high``."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        is_inside = (self.low <= value) & (value < self.high)
        return where(is_inside, -log(self.high - self.low), float("-inf"))

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return clamp((value - self.low) / (self.high - self.low), min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return log(self.high - self.low)
