"""Distributions over categories: one of them, as a position or a one-hot vector, and counts of many draws."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from autojit.core.errors import UnsupportedError
from autojit.distributions import constraints
from autojit.distributions.count_sampling import binomial_counts
from autojit.distributions.distribution import Constraints, Distribution, _GivenEither
from autojit.distributions.parameters import derived, logits_to_probs, normalize_logits, one_of, probs_to_logits
from autojit.functions.comparison import clamp, where
from autojit.functions.elementwise import exp, xlogy
from autojit.functions.factories import arange, eye
from autojit.functions.namespace import finfo
from autojit.functions.random import multinomial
from autojit.functions.shape import broadcast_tensors, stack
from autojit.functions.special import lgamma
from autojit.nn.functional import one_hot
from autojit.tensor.size import Size
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor


class _OfCategories(_GivenEither):
    """A distribution given by probabilities, or their logarithms up to a constant, along the last axis."""

    arg_constraints: ClassVar[Constraints] = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        shape = self._take(probs, logits)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @derived
    def probs(self) -> Tensor:
        """The probabilities; they add up to 1."""
        return logits_to_probs(self.logits)

    @derived
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    def _take(self, probs: Any, logits: Any) -> Size:
        """Keep the parameter given, normalised; returns its shape."""
        one_of(probs, logits)
        given = logits if probs is None else probs
        if given.ndim < 1:
            raise ValueError(f"`{'logits' if probs is None else 'probs'}` parameter must be at least one-dimensional.")
        if probs is None:
            self.__dict__["logits"] = normalize_logits(logits)
        else:
            self.__dict__["probs"] = probs / probs.sum(-1, keepdim=True)
        return Size(given.shape)

    def _positions(self, sample_shape: Any) -> Tensor:
        """Categories drawn. Shape: ``sample_shape + batch_shape``."""
        count = prod(sample_shape)
        rows = self.probs.reshape(-1, self.probs.shape[-1])
        if count == 0 or rows.shape[0] == 0:
            return arange(0, device=rows.device).reshape(*sample_shape, *self._batch_shape)
        drawn = multinomial(rows, count, True)
        return drawn.T.reshape(*sample_shape, *self._batch_shape)

    def _entropy(self) -> Tensor:
        logits = clamp(self.logits, min=finfo(self._given.dtype).min)
        return -(logits * self.probs).sum(-1)


class Categorical(_OfCategories):
    """Positions 0 .. n - 1 with given probabilities.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Categorical(probs=aj.tensor([0.25, 0.75])).log_prob(aj.tensor(1))
        tensor(-0.2877)
    """

    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        shape = self._take(probs, logits)
        self._num_events = shape[-1]
        Distribution.__init__(self, shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """The positions."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._given.new_full(self._batch_shape, float("nan"))

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            return self._positions(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        places, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, places[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(arange(self._num_events, device=self._given.device), expand)


class OneHotCategorical(_OfCategories):
    """One-hot vectors with given probabilities.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.OneHotCategorical(probs=aj.tensor([0.25, 0.75])).mode
        tensor([0., 1.])
    """

    support = constraints.one_hot
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self._given.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            return one_hot(self._positions(sample_shape), self._event_shape[0]).to(self._given.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        chosen, logits = broadcast_tensors(value, self.logits)
        return logits.gather(-1, chosen.argmax(-1, keepdim=True)).squeeze(-1)

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(eye(self._event_shape[0], dtype=self._given.dtype, device=self._given.device), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose derivative is taken to be that of their probabilities (Bengio et al., 2013).

    Example:
        >>> import autojit as aj
        >>> aj.distributions.OneHotCategoricalStraightThrough(aj.ones(3)).rsample().sum()
        tensor(1.)
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OfCategories):
    """How often each category comes in ``total_count`` draws.

    Example:
        >>> import autojit as aj
        >>> aj.distributions.Multinomial(8, probs=aj.tensor([0.25, 0.75])).mean
        tensor([2., 6.])
    """

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise UnsupportedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Vectors of counts that add up to at most ``total_count``."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Category after category, each a binomial share of the draws that are left."""
        with grad_mode(False):
            probs = self.probs.expand(self._extended_shape(sample_shape))
            left = probs.new_full(probs.shape[:-1], float(self.total_count))
            ahead = probs.flip(-1).cumsum(-1).flip(-1)
            counts = []
            for i in range(probs.shape[-1] - 1):
                total = ahead[..., i]
                share = where(total > 0, clamp(probs[..., i] / where(total > 0, total, 1.0), max=1.0), 0.0)
                counts.append(binomial_counts(left, share))
                left = left - counts[-1]
            return stack([*counts, left], -1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, counts = broadcast_tensors(self.logits, value)
        is_void = counts.eq(0) & logits.eq(float("-inf"))
        kept = where(is_void, 0.0, logits)
        return lgamma(counts.sum(-1) + 1) - lgamma(counts + 1).sum(-1) + (kept * counts).sum(-1)

    def entropy(self) -> Tensor:
        n, given = self.total_count, self._given
        counts = arange(n + 1, dtype=given.dtype, device=given.device).reshape(-1, *[1] * len(given.shape))
        top = lgamma(counts.new_full((), float(n + 1)))
        log_chance = top - lgamma(counts + 1) - lgamma(n - counts + 1)
        chance = exp(log_chance + xlogy(counts, self.probs) + xlogy(n - counts, 1 - self.probs))
        return n * self._entropy() - top + (chance * lgamma(counts + 1)).sum(0).sum(-1)
