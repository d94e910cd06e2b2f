"""Distributions of 0 and 1, and of counts: Bernoulli, geometric, binomial, negative binomial, Poisson."""

from __future__ import annotations

from typing import Any

from autojit.distributions import constraints
from autojit.distributions.count_sampling import binomial_counts, poisson_counts
from autojit.distributions.distribution import Distribution, ExponentialFamily
from autojit.distributions.gamma_sampling import standard_gamma
from autojit.distributions.parameters import broadcast_all, logits_to_probs, one_of, probs_to_logits
from autojit.nn.functional import binary_cross_entropy_with_logits, logsigmoid, softplus
from autojit.tensor.factories import arange
from autojit.tensor.functions_elementwise import clamp, exp, floor, log1p, where, xlogy
from autojit.tensor.functions_special import lgamma
from autojit.tensor.namespace import finfo
from autojit.tensor.random import bernoulli, rand
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import Tensor

_PROBABILITIES = {"probs": constraints.unit_interval, "logits": constraints.real}


class _OfProbability(Distribution):
    """A distribution that is given by probabilities or by their log-odds; the other follows."""

    def __init__(self, probs: Any, logits: Any, *others: Any, validate_args: bool | None = None) -> None:
        one_of(probs, logits)
        name, given = ("_probs", probs) if logits is None else ("_logits", logits)
        made, *self._others = broadcast_all(given, *others)
        self.__dict__[name] = made
        super().__init__(made.shape, validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        found = self.__dict__.get("_probs")
        return logits_to_probs(self.__dict__["_logits"], is_binary=True) if found is None else found

    @property
    def logits(self) -> Tensor:
        """The log-odds."""
        found = self.__dict__.get("_logits")
        return probs_to_logits(self.__dict__["_probs"], is_binary=True) if found is None else found

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter given."""
        return self._given().shape

    def _given(self) -> Tensor:
        found = self.__dict__.get("_probs")
        return self.__dict__["_logits"] if found is None else found  # type: ignore[no-any-return]
