"""Distributions made of gamma numbers: exponential, gamma, chi-squared, beta, Dirichlet, Student's t, F.

All of them draw through ``gamma_sampling``, so their numbers are differentiable by every parameter.
"""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import Any, ClassVar

from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, Distribution, ExponentialFamily, _Located
from autojit.distributions.gamma_sampling import log_of_standard_gamma, standard_gamma
from autojit.distributions.parameters import broadcast_all
from autojit.functions.comparison import clamp, where
from autojit.functions.elementwise import exp, log, log1p, sqrt, xlogy
from autojit.functions.factories import arange, as_tensor
from autojit.functions.namespace import finfo
from autojit.functions.random import rand, randn
from autojit.functions.reduction import softmax
from autojit.functions.shape import stack
from autojit.functions.special import digamma, igamma, igammac, lgamma
from autojit.tensor.tensor import Tensor


class Exponential(ExponentialFamily):
    """Waiting times of events that come at a ``rate``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Exponential(2.0).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[Constraints] = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate * 0

    stddev = mean

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = rand(self._extended_shape(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return -log1p(-u) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - log(self.rate)


class Gamma(ExponentialFamily):
    """The gamma distribution with a shape (``concentration``) and a ``rate``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Gamma(2.0, 4.0).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[Constraints] = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return clamp((self.concentration - 1) / self.rate, min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = standard_gamma(self.concentration.expand(shape)) / self.rate
        return clamp(drawn, min=finfo(drawn.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a, self.rate) + xlogy(a - 1, value) - self.rate * value - lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        """Not differentiable by the concentration, as in torch."""
        self._validate_sample(value)
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)


class Chi2(Gamma):
    """Sums of ``df`` squared standard normal numbers.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Chi2(3.0).variance
        tensor(6.)
    """

    arg_constraints: ClassVar[Constraints] = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return 2 * self.concentration

    def __repr__(self) -> str:
        return f"Chi2(concentration: {self._shown('concentration')})"


class InverseGamma(Distribution):
    """Reciprocals of gamma numbers with the same parameters.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.InverseGamma(3.0, 4.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[Constraints] = Gamma.arg_constraints
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def of_reciprocals(self) -> Gamma:
        """What the numbers are reciprocals of."""
        return Gamma(self.concentration, self.rate, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return where(self.concentration > 1, self.rate / (self.concentration - 1), float("inf"))

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), float("inf"))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return 1 / self.of_reciprocals().rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a, self.rate) - xlogy(a + 1, value) - self.rate / value - lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        """0 at 0; not differentiable by the concentration."""
        self._validate_sample(value, constraints.nonnegative)
        return igammac(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)


class Dirichlet(ExponentialFamily):
    """Probability vectors, of gamma numbers divided by their sum.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Dirichlet(aj.tensor([1.0, 3.0])).mean
        tensor([0.2500, 0.7500])
    """

    arg_constraints: ClassVar[Constraints] = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        less = clamp(self.concentration - 1, min=0)
        mode = less / less.sum(-1, keepdim=True)
        is_flat = (self.concentration < 1).all(-1, keepdim=True)
        places = arange(mode.shape[-1], device=mode.device)
        corner = places.eq(0).to(mode.dtype)  # every corner is one then; torch gives the first
        return where(is_flat, corner, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        logs = log_of_standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        limits = finfo(self.concentration.dtype)
        shares = softmax(logs, -1).to(self.concentration.dtype)
        return clamp(shares, limits.tiny, 1 - limits.eps / 2)  # of small concentrations most are beyond: 0 and 1

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1)
        spread = (total - a.shape[-1]) * digamma(total) - ((a - 1) * digamma(a)).sum(-1)
        return lgamma(a).sum(-1) - lgamma(total) + spread


class Beta(ExponentialFamily):
    """Numbers between 0 and 1: the share of the first of two gamma numbers.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Beta(2.0, 2.0).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[Constraints] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def _dirichlet(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet().mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet().rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1, value) + (b - 1) * log1p(-value) + lgamma(a + b) - lgamma(a) - lgamma(b)

    def entropy(self) -> Tensor:
        return self._dirichlet().entropy()


class StudentT(_Located):
    """Student's t distribution with ``df`` degrees of freedom, moved and scaled.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.StudentT(4.0).variance
        tensor(2.)
    """

    arg_constraints: ClassVar[Constraints] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, float("nan"))

    @property
    def variance(self) -> Tensor:
        kept = where(self.df > 2, self.df, 3.0)
        finite = self.scale**2 * kept / (kept - 2)
        return where(self.df > 2, finite, where(self.df > 1, float("inf"), float("nan")).to(finite.dtype))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        z = standard_gamma((0.5 * self.df).expand(shape))
        return self.loc + self.scale * randn(shape, dtype=z.dtype, device=z.device) * sqrt(0.5 * self.df / z)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._log_of_maximum() - 0.5 * (self.df + 1) * log1p(((value - self.loc) / self.scale) ** 2 / self.df)

    def _log_of_maximum(self) -> Tensor:
        ratio = lgamma(0.5 * (self.df + 1)) - lgamma(0.5 * self.df)
        return ratio - log(self.scale) - 0.5 * log(self.df) - 0.5 * log_of(pi)

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        return half * (digamma(half) - digamma(0.5 * self.df)) - self._log_of_maximum()


class FisherSnedecor(Distribution):
    """Ratios of two chi-squared numbers, each divided by its degrees of freedom.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.FisherSnedecor(2.0, 4.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[Constraints] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df2 > 2, self.df2 / (self.df2 - 2), float("nan"))

    @property
    def mode(self) -> Tensor:
        return where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), float("nan"))

    @property
    def variance(self) -> Tensor:
        m, n = self.df1, self.df2
        return where(n > 4, 2 * n**2 * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4)), float("nan"))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        above = standard_gamma((0.5 * self.df1).expand(shape)) / self.df1
        below = standard_gamma((0.5 * self.df2).expand(shape)) / self.df2
        return clamp(above / below, min=finfo(above.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        half1, half2, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        constant = lgamma(half1 + half2) - lgamma(half1) - lgamma(half2) + half1 * log(ratio)
        return constant + (half1 - 1) * log(value) - (half1 + half2) * log1p(ratio * value)
