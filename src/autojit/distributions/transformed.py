"""Distributions of transformed values: a base distribution pushed through transforms, and the named ones made so."""

from __future__ import annotations

from math import log as log_of
from math import pi, sqrt
from typing import Any, ClassVar

from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, Distribution
from autojit.distributions.gamma_family import Exponential
from autojit.distributions.independent import Independent
from autojit.distributions.location_scale import Cauchy, Normal, Uniform
from autojit.distributions.parameters import EULER_CONSTANT, broadcast_all, sum_rightmost
from autojit.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
    Transform,
)  # fmt: skip
from autojit.functions.comparison import where
from autojit.functions.elementwise import exp, expm1, log, log1p
from autojit.functions.special import digamma, lgamma
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor


class TransformedDistribution(Distribution):
    """Values of a base distribution after one or more transforms.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions
        >>> d.TransformedDistribution(d.Normal(0.0, 1.0), d.transforms.ExpTransform()).log_prob(aj.tensor(1.0))
        tensor(-0.9189)
    """

    arg_constraints: ClassVar[Constraints] = {}

    base_dist: Distribution

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(transform, Transform) for transform in self.transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        whole = ComposeTransform(self.transforms)
        base_shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        shape = whole.forward_shape(base_shape)
        full, own = whole.inverse_shape(shape), len(base_distribution.event_shape)
        if len(base_shape) < whole.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {base_shape}."
            )
        missing = max(whole.domain.event_dim - own, 0)
        base = base_distribution.expand(full[: len(full) - own])
        self.base_dist = Independent(base, missing) if missing else base
        count = whole.codomain.event_dim + max(own - whole.domain.event_dim, 0)
        super().__init__(shape[: len(shape) - count], shape[len(shape) - count :], validate_args=validate_args)

    @property
    def has_rsample(self) -> bool:
        """Whether the base distribution's numbers are differentiable."""
        return self.base_dist.has_rsample

    @constraints.dependent_property
    def support(self) -> Any:
        """Where the transforms lead."""
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        missing = len(self._event_shape) - found.event_dim
        return constraints.independent(found, missing) if missing > 0 else found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        axes = len(self._event_shape)
        stretch: Tensor | float = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            axes += transform.domain.event_dim - transform.codomain.event_dim
            stretch = stretch + sum_rightmost(transform.log_abs_det_jacobian(x, y), axes - transform.domain.event_dim)
            y = x
        return sum_rightmost(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape)) - stretch

    def cdf(self, value: Tensor) -> Tensor:
        """At the bounds of the support, too: the base says what is outside of its own."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._mirrored(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._mirrored(value)))

    def _mirrored(self, probability: Tensor) -> Tensor:
        """The probability itself, or its complement where the transforms decrease."""
        sign = ComposeTransform(self.transforms).sign
        if isinstance(sign, int):
            return probability if sign == 1 else 1 - probability
        return sign * (probability - 0.5) + 0.5


class LogNormal(TransformedDistribution):
    """Numbers whose logarithms are normal.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.LogNormal(0.0, 1.0).mean
        tensor(1.6487)
    """

    arg_constraints: ClassVar[Constraints] = Normal.arg_constraints
    support = constraints.positive
    base_dist: Normal

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return exp(self.loc + self.scale**2 / 2)

    @property
    def mode(self) -> Tensor:
        return exp(self.loc - self.scale**2)

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return expm1(square) * exp(2 * self.loc + square)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _Folded(Distribution):
    """Absolute values of numbers of a distribution symmetric about 0."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"scale": constraints.positive}
    support = constraints.nonnegative
    base_dist: Normal | Cauchy
    _of: ClassVar[type[Normal | Cauchy]]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self.base_dist = self._of(0.0, scale, validate_args=validate_args)
        super().__init__(self.base_dist.batch_shape, validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the base distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return self.scale * 0

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + log_of(2), float("-inf"))

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - log_of(2)


class HalfNormal(_Folded):
    """Absolute values of normal numbers with mean 0.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.HalfNormal(1.0).mean
        tensor(0.7979)
    """

    _of = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * sqrt(2 / pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / pi)


class HalfCauchy(_Folded):
    """Absolute values of Cauchy numbers about 0; it has no mean.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.HalfCauchy(1.0).cdf(aj.tensor(1.0))
        tensor(0.5000)
    """

    _of = Cauchy

    @property
    def mean(self) -> Tensor:
        return self.scale * 0 + float("inf")

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


class Weibull(TransformedDistribution):
    """Powers of exponential numbers: lifetimes with a ``scale`` and a shape (``concentration``).

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Weibull(2.0, 1.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[Constraints] = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(self.scale * 0 + 1, validate_args=validate_args)
        steps = [PowerTransform(1 / self.concentration), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    def _moment(self, order: int) -> Tensor:
        return self.scale**order * exp(lgamma(1 + order / self.concentration))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * where(k > 1, where(k > 1, (k - 1) / k, 1.0) ** (1 / k), 0.0)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def entropy(self) -> Tensor:
        return EULER_CONSTANT * (1 - 1 / self.concentration) + log(self.scale / self.concentration) + 1


class Pareto(TransformedDistribution):
    """Numbers above ``scale`` whose tail falls with the power ``alpha``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Pareto(1.0, 2.0).mean
        tensor(2.)
    """

    arg_constraints: ClassVar[Constraints] = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From ``scale`` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        return where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), float("inf"))

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return where(a > 2, self.scale**2 * a / ((a - 1) ** 2 * (a - 2)), float("inf"))

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + (1 + 1 / self.alpha)


class Kumaraswamy(TransformedDistribution):
    """Numbers between 0 and 1 with the distribution function 1 - (1 - x^a)^b.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Kumaraswamy(1.0, 1.0).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[Constraints] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(self.concentration0 * 0, self.concentration0 * 0 + 1, validate_args=validate_args)
        steps = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1.0, -1.0),
            PowerTransform(1 / self.concentration1),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def _moment(self, order: int) -> Tensor:
        a, b = 1 + order / self.concentration1, self.concentration0
        return b * exp(lgamma(a) + lgamma(b) - lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        is_inside = (a >= 1) & (b >= 1) & ~((a <= 1) & (b <= 1))
        return where(is_inside, ((a - 1) / (a * b - 1)) ** (1 / a), float("nan"))

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm, written out: the chain of transforms loses digits near 1."""
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return log(a * b) + (a - 1) * log(value) + (b - 1) * log1p(-(value**a))

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (1 - value**self.concentration1) ** self.concentration0

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = digamma(b + 1) + EULER_CONSTANT
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - log(a) - log(b)


class LogisticNormal(TransformedDistribution):
    """Probabilities made of normal numbers, one fewer, by breaking a stick.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.LogisticNormal(aj.zeros(2), aj.ones(2)).event_shape
        autojit.Size([3])
    """

    arg_constraints: ClassVar[Constraints] = Normal.arg_constraints
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        base = base if base.batch_shape else base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def _normal(self) -> Normal:
        assert isinstance(self.base_dist, Independent) and isinstance(self.base_dist.base_dist, Normal)
        return self.base_dist.base_dist

    @property
    def loc(self) -> Tensor:
        """The mean of the normal numbers."""
        return self._normal.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviation."""
        return self._normal.scale
