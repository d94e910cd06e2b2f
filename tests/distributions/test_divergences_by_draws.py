"""A divergence that a rule gives is the mean of log p - log q over numbers drawn from p, for all pairs with a rule."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import autojit as aj
from autojit import distributions as d

S, P = aj.tensor([0.8, 2.0]), aj.tensor([0.2, 0.7])
MADE: dict[str, Any] = {
    "Bernoulli": d.Bernoulli(P), "Beta": d.Beta(S + 1, S + 2), "Binomial": d.Binomial(4, P),
    "Cauchy": d.Cauchy(P, S), "Chi2": d.Chi2(S + 3), "ContinuousBernoulli": d.ContinuousBernoulli(P),
    "Exponential": d.Exponential(S), "Gamma": d.Gamma(S + 2, S), "Geometric": d.Geometric(P), "Gumbel": d.Gumbel(P, S),
    "HalfNormal": d.HalfNormal(S), "HalfCauchy": d.HalfCauchy(S), "InverseGamma": d.InverseGamma(S + 3, S),
    "InverseGamma 2": d.InverseGamma(S + 2, S * 2), "Laplace": d.Laplace(P, S), "LogNormal": d.LogNormal(P, S / 4),
    "Normal": d.Normal(P, S), "Pareto": d.Pareto(S, S + 4), "Poisson": d.Poisson(S),
    "StudentT": d.StudentT(S + 4, P, S), "Uniform": d.Uniform(P / 9, P),
    "Weibull": d.Weibull(S, S + 1), "Gamma 2": d.Gamma(S + 1, S * 2),
    "Kumaraswamy": d.Kumaraswamy(S + 1, S + 2), "FisherSnedecor": d.FisherSnedecor(S + 5, S + 9),
}  # fmt: skip
COUNT = 20_000


@pytest.fixture(scope="module")
def drawn() -> dict[str, aj.Tensor]:
    aj.manual_seed(3)
    return {name: p.sample((COUNT,)) for name, p in MADE.items()}


@pytest.mark.parametrize("name", MADE)
def test_a_divergence_is_the_mean_over_draws(name: str, drawn: dict[str, aj.Tensor]) -> None:
    p, values = MADE[name], drawn[name]
    for q in MADE.values():
        try:
            told = d.kl_divergence(p, q)
        except NotImplementedError:
            continue
        if not told.isfinite().all():
            continue
        q._validate_args = False
        ratios = (p.log_prob(values) - q.log_prob(values)).double()
        error = ratios.std(0) / COUNT**0.5
        assert ((ratios.mean(0) - told).abs() < 6 * error + 1e-4 * (1 + told.abs())).all(), f"{p} of {q}"


def test_classes_are_those_that_they_are_of_in_torch() -> None:
    kinds = (d.Gamma, d.Beta, d.Normal, d.Exponential, d.Bernoulli, d.Poisson, d.Laplace, d.Uniform, d.Dirichlet)
    found = {
        (a.__name__, b.__name__)
        for a, b in itertools.product([getattr(d, n) for n in d.__all__ if isinstance(getattr(d, n), type)], kinds)
        if a is not b and issubclass(a, b)
    }
    assert found == {("Chi2", "Gamma")}


def test_at_the_bounds_of_what_they_reach() -> None:
    zero = aj.tensor(0.0)
    for p in (d.InverseGamma(2.0, 1.0), d.LogNormal(0.0, 1.0), d.Weibull(1.0, 2.0)):
        assert p.cdf(zero).item() == 0.0
        with pytest.raises(ValueError, match="within the support"):
            p.log_prob(zero)
    relaxed = d.RelaxedBernoulli(aj.tensor(0.1), probs=aj.tensor(0.5))
    assert relaxed.log_prob(aj.tensor([0.0, 1.0])).isfinite().all()
