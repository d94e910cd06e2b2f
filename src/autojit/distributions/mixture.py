"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any, ClassVar

from autojit.distributions import constraints
from autojit.distributions.categorical import Categorical
from autojit.distributions.distribution import Constraints, Distribution
from autojit.functions.reduction import log_softmax, logsumexp
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor


class MixtureSameFamily(Distribution):
    """A component drawn by a categorical distribution, then a value of it; the components are the last batch axis.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions
        >>> d.MixtureSameFamily(d.Categorical(aj.ones(2)), d.Normal(aj.tensor([-1.0, 3.0]), 1.0)).mean
        tensor(1.)
    """

    arg_constraints: ClassVar[Constraints] = {}

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of autojit.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of autojit.distributions.Distribution")
        batch = component_distribution.batch_shape
        for ours, theirs in zip(reversed(mixture_distribution.batch_shape), reversed(batch[:-1]), strict=False):
            if 1 not in (ours, theirs) and ours != theirs:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture_distribution.batch_shape}) is not compatible with "
                    f"`component_distribution.batch_shape` ({batch})"
                )
        if mixture_distribution.param_shape[-1] != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({batch[-1]})"
            )
        self._mixture_distribution = mixture_distribution.expand(batch[:-1])
        self._component_distribution = component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution over components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Any:
        """The components' support."""
        return self._component_distribution.support

    def _averaged(self, values: Tensor) -> Tensor:
        """The mean over components, which are the axis before the event's."""
        count = len(self._event_shape)
        weights = self._mixture_distribution.probs
        weights = weights.reshape(*weights.shape, *[1] * count)
        return (weights * values).sum(-1 - count)

    @property
    def mean(self) -> Tensor:
        return self._averaged(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        means = self._component_distribution.mean
        gap = means - self.mean.unsqueeze(-1 - len(self._event_shape))
        return self._averaged(self._component_distribution.variance + gap**2)

    def _spread(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - len(self._event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        found = self._component_distribution.cdf(self._spread(value))
        return (found * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        found = self._component_distribution.log_prob(self._spread(value))
        return logsumexp(found + log_softmax(self._mixture_distribution.logits, -1), -1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with grad_mode(False):
            count = len(self._event_shape)
            place = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            place = place.reshape(*place.shape, *[1] * (count + 1))
            axis = drawn.ndim - 1 - count
            return drawn.gather(axis, place.expand((*place.shape[: axis + 1], *drawn.shape[axis + 1 :]))).squeeze(axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture_distribution!r}, {self._component_distribution!r})"
