"""Densities, distribution functions, entropies and moments agree with SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import autojit as aj
from autojit import distributions as d

CONTINUOUS: dict[str, tuple[Any, Any]] = {
    "normal": (lambda: d.Normal(_f(0.3), _f(1.5)), scipy.stats.norm(0.3, 1.5)),
    "log_normal": (lambda: d.LogNormal(_f(0.3), _f(0.5)), scipy.stats.lognorm(0.5, scale=np.exp(0.3))),
    "half_normal": (lambda: d.HalfNormal(_f(1.5)), scipy.stats.halfnorm(0, 1.5)),
    "laplace": (lambda: d.Laplace(_f(0.3), _f(1.5)), scipy.stats.laplace(0.3, 1.5)),
    "gumbel": (lambda: d.Gumbel(_f(0.3), _f(1.5)), scipy.stats.gumbel_r(0.3, 1.5)),
    "uniform": (lambda: d.Uniform(_f(0.25), _f(3.0)), scipy.stats.uniform(0.25, 2.75)),
    "exponential": (lambda: d.Exponential(_f(2.0)), scipy.stats.expon(0, 0.5)),
    "gamma": (lambda: d.Gamma(_f(2.5), _f(2.0)), scipy.stats.gamma(2.5, scale=0.5)),
    "chi2": (lambda: d.Chi2(_f(3.0)), scipy.stats.chi2(3.0)),
    "inverse_gamma": (lambda: d.InverseGamma(_f(3.5), _f(2.0)), scipy.stats.invgamma(3.5, scale=2.0)),
    "beta": (lambda: d.Beta(_f(2.5), _f(1.5)), scipy.stats.beta(2.5, 1.5)),
    "student": (lambda: d.StudentT(_f(4.5), _f(0.3), _f(1.5)), scipy.stats.t(4.5, 0.3, 1.5)),
    "fisher": (lambda: d.FisherSnedecor(_f(3.0), _f(6.5)), scipy.stats.f(3.0, 6.5)),
    "weibull": (lambda: d.Weibull(_f(1.5), _f(2.5)), scipy.stats.weibull_min(2.5, scale=1.5)),
    "pareto": (lambda: d.Pareto(_f(0.25), _f(3.5)), scipy.stats.pareto(3.5, scale=0.25)),
    "cauchy": (lambda: d.Cauchy(_f(0.3), _f(1.5)), scipy.stats.cauchy(0.3, 1.5)),
    "half_cauchy": (lambda: d.HalfCauchy(_f(1.5)), scipy.stats.halfcauchy(0, 1.5)),
}
COUNTS: dict[str, tuple[Any, Any]] = {
    "bernoulli": (lambda: d.Bernoulli(_f(0.3)), scipy.stats.bernoulli(0.3)),
    "geometric": (lambda: d.Geometric(_f(0.3)), scipy.stats.geom(0.3, loc=-1)),
    "binomial": (lambda: d.Binomial(7, _f(0.3)), scipy.stats.binom(7, 0.3)),
    "negative_binomial": (lambda: d.NegativeBinomial(_f(2.5), _f(0.3)), scipy.stats.nbinom(2.5, 0.7)),
    "poisson": (lambda: d.Poisson(_f(3.5)), scipy.stats.poisson(3.5)),
}
WITHOUT_MEAN = ("cauchy", "half_cauchy")


def _f(value: Any) -> aj.Tensor:
    return aj.tensor(value, dtype=aj.float64)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_density_and_distribution_function_are_scipys(name: str) -> None:
    made, reference = CONTINUOUS[name][0](), CONTINUOUS[name][1]
    x = np.array([0.3, 0.45, 0.8])
    np.testing.assert_allclose(made.log_prob(_f(x)), reference.logpdf(x), rtol=1e-10)
    if type(made).cdf is not d.Distribution.cdf:
        np.testing.assert_allclose(made.cdf(_f(x)), reference.cdf(x), rtol=1e-10)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_invert_the_distribution_function(name: str) -> None:
    made, reference = CONTINUOUS[name][0](), CONTINUOUS[name][1]
    chance = np.array([0.1, 0.5, 0.9])
    if type(made).icdf is not d.Distribution.icdf:
        np.testing.assert_allclose(made.icdf(_f(chance)), reference.ppf(chance), rtol=1e-9)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_moments_and_entropy_are_scipys(name: str) -> None:
    made, reference = CONTINUOUS[name][0](), CONTINUOUS[name][1]
    if name not in WITHOUT_MEAN:
        np.testing.assert_allclose(made.mean, reference.mean(), rtol=1e-10)
        np.testing.assert_allclose(made.variance, reference.var(), rtol=1e-9)
        np.testing.assert_allclose(made.stddev, reference.std(), rtol=1e-9)
    if type(made).entropy is not d.Distribution.entropy:
        np.testing.assert_allclose(made.entropy(), reference.entropy(), rtol=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_chances_and_moments_of_counts_are_scipys(name: str) -> None:
    made, reference = COUNTS[name][0](), COUNTS[name][1]
    counts = np.array([0.0, 1.0])
    np.testing.assert_allclose(made.log_prob(_f(counts)), reference.logpmf(counts), rtol=1e-10)
    np.testing.assert_allclose(made.mean, reference.mean(), rtol=1e-10)
    np.testing.assert_allclose(made.variance, reference.var(), rtol=1e-10)


def test_vectors_have_scipys_densities() -> None:
    covariance = np.array([[2.0, 0.3], [0.3, 1.0]])
    made = d.MultivariateNormal(_f([0.1, 0.2]), _f(covariance))
    reference = scipy.stats.multivariate_normal([0.1, 0.2], covariance)
    np.testing.assert_allclose(made.log_prob(_f([0.5, -1.0])), reference.logpdf([0.5, -1.0]), rtol=1e-12)
    np.testing.assert_allclose(made.entropy(), reference.entropy(), rtol=1e-12)
    np.testing.assert_allclose(made.precision_matrix, np.linalg.inv(covariance), rtol=1e-12)
    by_precision = d.MultivariateNormal(_f([0.1, 0.2]), precision_matrix=_f(np.linalg.inv(covariance)))
    np.testing.assert_allclose(by_precision.scale_tril, made.scale_tril, rtol=1e-12, atol=1e-15)
    shares = scipy.stats.dirichlet([0.5, 2.0, 3.0])
    np.testing.assert_allclose(
        d.Dirichlet(_f([0.5, 2.0, 3.0])).log_prob(_f([0.2, 0.3, 0.5])), shares.logpdf([0.2, 0.3, 0.5])
    )
    np.testing.assert_allclose(d.Dirichlet(_f([0.5, 2.0, 3.0])).entropy(), shares.entropy())
    tally = scipy.stats.multinomial(4, [0.1, 0.2, 0.7])
    made_tally = d.Multinomial(4, _f([0.1, 0.2, 0.7]))
    np.testing.assert_allclose(made_tally.log_prob(_f([1.0, 1.0, 2.0])), tally.logpmf([1, 1, 2]))
    np.testing.assert_allclose(made_tally.entropy(), tally.entropy())


def test_categories_list_their_support() -> None:
    made = d.Categorical(logits=_f([[0.0, 1.0], [2.0, 0.0]]))
    values = made.enumerate_support()
    assert values.shape == (2, 2)
    np.testing.assert_allclose(made.log_prob(values).exp().sum(0), 1.0)
    np.testing.assert_allclose(made.entropy(), -(made.probs * made.logits).sum(-1))
    assert d.OneHotCategorical(logits=_f([0.0, 1.0])).enumerate_support().tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_mixture_averages_its_components() -> None:
    mixture = d.MixtureSameFamily(d.Categorical(_f([0.3, 0.7])), d.Normal(_f([-1.0, 2.0]), _f([1.0, 0.5])))
    x = 0.4
    density = 0.3 * scipy.stats.norm(-1, 1).pdf(x) + 0.7 * scipy.stats.norm(2, 0.5).pdf(x)
    np.testing.assert_allclose(mixture.log_prob(_f(x)), np.log(density))
    np.testing.assert_allclose(mixture.mean, 1.1)


def test_expanding_keeps_densities_and_takes_in_axes() -> None:
    made = d.Independent(d.Normal(_f([0.1, 0.2]), 1.0), 1).expand((3,))
    assert made.batch_shape == (3,) and made.event_shape == (2,)
    assert made.log_prob(_f([0.0, 0.0])).shape == (3,)
    assert d.LogNormal(0.0, 1.0).expand((2, 3)).sample((4,)).shape == (4, 2, 3)
