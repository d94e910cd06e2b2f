"""Distributions of 0 and 1, and of counts: Bernoulli, geometric, binomial, negative binomial, Poisson."""

from __future__ import annotations

from typing import Any, ClassVar

from autojit.core.errors import UnsupportedError
from autojit.dispatch.requirements import require
from autojit.distributions import constraints
from autojit.distributions.count_sampling import binomial_counts, poisson_counts
from autojit.distributions.distribution import Constraints, Distribution, ExponentialFamily, _GivenEither
from autojit.distributions.gamma_sampling import standard_gamma
from autojit.distributions.parameters import broadcast_all, derived, is_known, logits_to_probs, one_of, probs_to_logits
from autojit.functions.comparison import clamp, minimum, where
from autojit.functions.elementwise import exp, floor, log, log1p, xlogy
from autojit.functions.factories import arange
from autojit.functions.random import bernoulli, rand
from autojit.functions.special import lgamma
from autojit.nn.functional import binary_cross_entropy_with_logits, logsigmoid, softplus
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor


class _OfProbability(_GivenEither):
    """A distribution that is given by probabilities or by their log-odds."""

    arg_constraints: ClassVar[Constraints] = {"probs": constraints.unit_interval, "logits": constraints.real}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._given.shape, validate_args=validate_args)

    @derived
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @derived
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    def _take(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Keep the parameter given, broadcast with the others, which come back."""
        one_of(probs, logits)
        name, given = ("probs", probs) if logits is None else ("logits", logits)
        self.__dict__[name], *rest = broadcast_all(given, *others)
        return tuple(rest)


class Bernoulli(_OfProbability, ExponentialFamily):
    """1 with probability ``probs``, else 0.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Bernoulli(probs=0.25).mean
        tensor(0.2500)
    """

    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return where(self.probs == 0.5, float("nan"), mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(arange(2, dtype=self._given.dtype, device=self._given.device), expand)


class _OfTrials(_OfProbability):
    """A distribution of a number of trials besides."""

    def __init__(self, total_count: Any, probs: Any, logits: Any, validate_args: bool | None) -> None:
        (counts,) = self._take(probs, logits, total_count)
        self.total_count = counts.to(self._given.dtype)
        Distribution.__init__(self, self._given.shape, validate_args=validate_args)


class Geometric(_OfProbability):
    """The number of failures before the first success of probability ``probs``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Geometric(probs=0.25).mean
        tensor(3.)
    """

    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(probs, logits, validate_args)
        if not self._validate_args or probs is None:
            return
        said = " of Geometric"
        if is_known(self.probs):
            said = f" (Tensor of shape {tuple(self.probs.shape)}) of distribution {self!r}"
        refusal = f"Expected parameter probs{said} to be positive but found invalid values"
        require(self.probs, lambda p: ~(p <= 0), refusal, "above 0", named="probs", kind="argument")

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            u = rand(self._extended_shape(sample_shape), dtype=self._given.dtype, device=self._given.device)
            return floor(log1p(-u) / log1p(-self.probs))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        is_sure = probs.eq(1) & value.eq(0)
        return value * log1p(-where(is_sure, 0.0, probs)) + log(self.probs)

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_OfTrials):
    """The number of successes in ``total_count`` trials.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Binomial(10, probs=0.5).mean
        tensor(5.)
    """

    arg_constraints: ClassVar[Constraints] = {
        "total_count": constraints.nonnegative_integer,
        **_OfProbability.arg_constraints,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """Whole numbers from 0 to ``total_count``."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return minimum(floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with grad_mode(False):
            return binomial_counts(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        choices = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return choices + value * logits - n * softplus(logits)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = int(self.total_count.max())
        if not bool((self.total_count == most).all()):
            raise UnsupportedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return self._enumerated(arange(most + 1, dtype=self._given.dtype, device=self._given.device), expand)

    def entropy(self) -> Tensor:
        return -(exp(self.log_prob(values := self.enumerate_support(False))) * self.log_prob(values)).sum(0)


class NegativeBinomial(_OfTrials):
    """The number of successes before the ``total_count``-th failure; the count may be any positive number.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.NegativeBinomial(4.0, probs=0.5).mean
        tensor(4.)
    """

    arg_constraints: ClassVar[Constraints] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(total_count, probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return clamp(floor((self.total_count - 1) * exp(self.logits)), min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with grad_mode(False):
            return poisson_counts(standard_gamma(self.total_count.expand(shape)) * exp(self.logits))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        chances = n * logsigmoid(-logits) + value * logsigmoid(logits)
        orders = lgamma(n + value) - lgamma(1 + value) - lgamma(n)
        return chances + where(n + value == 0, 0.0, orders)


class Poisson(ExponentialFamily):
    """The number of events that come at a ``rate``.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Poisson(3.0).variance
        tensor(3.)
    """

    arg_constraints: ClassVar[Constraints] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return floor(self.rate)

    variance = mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            return poisson_counts(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)
