"""Distributions of several elements at once: the last batch axes of a distribution taken into its values."""

from __future__ import annotations

from typing import Any, ClassVar

from autojit.distributions import constraints
from autojit.distributions.distribution import Constraints, Distribution
from autojit.distributions.parameters import sum_rightmost
from autojit.tensor.tensor import Tensor


class Independent(Distribution):
    """A distribution whose last batch axes belong to the value.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions
        >>> d.Independent(d.Normal(aj.zeros(3), 1.0), 1).log_prob(aj.zeros(3))
        tensor(-2.7568)
    """

    arg_constraints: ClassVar[Constraints] = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:cut], (*batch[cut:], *base_distribution.event_shape), validate_args=validate_args)

    @property
    def has_rsample(self) -> bool:
        """Whether the base distribution's numbers are differentiable."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:
        """Whether all values can be listed: only where no axis was taken in."""
        return self.base_dist.has_enumerate_support and self.reinterpreted_batch_ndims == 0

    @constraints.dependent_property
    def support(self) -> Any:
        """The base distribution's, of all elements at once."""
        found = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(found, count) if count else found

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise self._missing("enumeration over the product of its axes")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
