"""Drawn numbers: moments, derivatives by parameters, the same compiled as eager, and along a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

import autojit as aj
from autojit import distributions as d
from autojit.distributions.count_sampling import binomial_counts, poisson_counts
from autojit.distributions.gamma_sampling import derivative_by_concentration, standard_gamma

COUNT = 20_000
DRAWN: dict[str, Any] = {
    "normal": lambda: d.Normal(0.3, 1.5),
    "log_normal": lambda: d.LogNormal(0.3, 0.3),
    "laplace": lambda: d.Laplace(0.3, 1.5),
    "gumbel": lambda: d.Gumbel(0.3, 1.5),
    "uniform": lambda: d.Uniform(0.3, 1.5),
    "exponential": lambda: d.Exponential(1.5),
    "gamma": lambda: d.Gamma(0.4, 1.5),
    "chi2": lambda: d.Chi2(7.0),
    "inverse_gamma": lambda: d.InverseGamma(7.0, 2.0),
    "beta": lambda: d.Beta(0.7, 2.0),
    "student": lambda: d.StudentT(9.0, 1.0, 2.0),
    "fisher": lambda: d.FisherSnedecor(5.0, 20.0),
    "half_normal": lambda: d.HalfNormal(2.0),
    "weibull": lambda: d.Weibull(1.5, 2.0),
    "kumaraswamy": lambda: d.Kumaraswamy(1.5, 2.0),
    "dirichlet": lambda: d.Dirichlet(aj.tensor([0.5, 1.0, 2.0])),
    "multivariate": lambda: d.MultivariateNormal(aj.ones(2), aj.tensor([[2.0, 0.3], [0.3, 1.0]])),
    "bernoulli": lambda: d.Bernoulli(0.3),
    "geometric": lambda: d.Geometric(0.3),
    "binomial": lambda: d.Binomial(40, aj.tensor([0.1, 0.5, 0.9])),
    "negative_binomial": lambda: d.NegativeBinomial(2.5, 0.3),
    "poisson": lambda: d.Poisson(aj.tensor([0.5, 30.0])),
    "one_hot": lambda: d.OneHotCategorical(aj.tensor([0.2, 0.8])),
    "multinomial": lambda: d.Multinomial(40, aj.tensor([0.2, 0.5, 0.3])),
    "mixture": lambda: d.MixtureSameFamily(d.Categorical(aj.tensor([0.2, 0.8])), d.Normal(aj.tensor([0.0, 3.0]), 1.0)),
}


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_have_the_mean_and_variance_stated(name: str) -> None:
    aj.manual_seed(7)
    made = DRAWN[name]()
    drawn = made.sample((COUNT,)).double()
    deviation = (drawn.mean(0) - made.mean).abs() / (made.stddev.double() / COUNT**0.5)
    assert deviation.max().item() < 5
    np.testing.assert_allclose(drawn.var(0), made.variance, rtol=0.15)


@pytest.mark.parametrize("name", DRAWN)
def test_a_compiled_step_draws_the_numbers_of_eager_mode(name: str) -> None:
    def body() -> Any:
        return DRAWN[name]().sample((5,))

    step = aj.jit(body)
    for _ in range(2):
        aj.manual_seed(3)
        expected = body()
        aj.manual_seed(3)
        found = step()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert step.stats()["fallbacks"] == 0


@pytest.mark.parametrize("concentration", [0.05, 0.4, 1.0, 3.0, 40.0, 900.0])
def test_gamma_numbers_follow_the_gamma_distribution(concentration: float) -> None:
    aj.manual_seed(11)
    drawn = standard_gamma(aj.full((4000,), concentration, dtype=aj.float64))
    assert scipy.stats.kstest(drawn.numpy(), scipy.stats.gamma(concentration).cdf).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [0.1, 0.9, 2.5, 60.0])
@pytest.mark.parametrize("quantile", [0.01, 0.4, 0.95])
def test_a_gamma_number_moves_along_its_quantile(concentration: float, quantile: float) -> None:
    step = 1e-4 * concentration
    slope = [scipy.special.gammaincinv(concentration + s, quantile) for s in (-2 * step, -step, step, 2 * step)]
    expected = (8 * (slope[2] - slope[1]) - (slope[3] - slope[0])) / (12 * step)
    value = scipy.special.gammaincinv(concentration, quantile)
    a = aj.tensor(concentration, dtype=aj.float64)
    found = derivative_by_concentration(a, aj.tensor(value, dtype=aj.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gamma_numbers_have_two_derivatives() -> None:
    a = aj.tensor([0.4, 2.5], dtype=aj.float64, requires_grad=True)

    def drawn(a: aj.Tensor) -> aj.Tensor:
        aj.manual_seed(5)
        return standard_gamma(a)

    z = drawn(a)
    (first,) = aj.autograd.grad(z.sum(), a, create_graph=True)
    (second,) = aj.autograd.grad(first.sum(), a)
    quantiles = scipy.special.gammainc(a.detach().numpy(), z.detach().numpy())
    step = 1e-3
    ends = [scipy.special.gammaincinv(a.detach().numpy() + s, quantiles) for s in (-step, 0, step)]
    np.testing.assert_allclose(first.detach(), (ends[2] - ends[0]) / (2 * step), rtol=1e-4)
    np.testing.assert_allclose(second, (ends[2] - 2 * ends[1] + ends[0]) / step**2, rtol=1e-3)
    z_dot = aj.func.jvp(drawn, (a.detach(),), (aj.ones_like(a.detach()),))[1]
    np.testing.assert_allclose(z_dot, first.detach())


@pytest.mark.parametrize("rate", [0.3, 9.9, 10.1, 300.0])
def test_poisson_numbers_follow_the_poisson_distribution(rate: float) -> None:
    aj.manual_seed(13)
    _assert_counts(poisson_counts(aj.full((20_000,), rate, dtype=aj.float64)), scipy.stats.poisson(rate))


@pytest.mark.parametrize(("n", "p"), [(5, 0.3), (200, 0.02), (200, 0.3), (200, 0.97), (1000, 0.5)])
def test_binomial_numbers_follow_the_binomial_distribution(n: int, p: float) -> None:
    aj.manual_seed(17)
    size = (20_000,)
    drawn = binomial_counts(aj.full(size, float(n), dtype=aj.float64), aj.full(size, p, dtype=aj.float64))
    _assert_counts(drawn, scipy.stats.binom(n, p))


def _assert_counts(drawn: aj.Tensor, reference: Any) -> None:
    """A chi-squared test over the counts that are expected at least ten times."""
    values = np.arange(int(reference.ppf(1e-9)), int(reference.ppf(1 - 1e-9)) + 1)
    expected = reference.pmf(values) * drawn.numel()
    found = np.array([(drawn.numpy() == value).sum() for value in values])
    kept = expected >= 10
    statistic = ((found - expected)[kept] ** 2 / expected[kept]).sum()
    assert scipy.stats.chi2(kept.sum()).sf(statistic) > 1e-4


def test_draws_are_differentiable_where_they_say_so() -> None:
    loc = aj.tensor([0.5], requires_grad=True)
    scale = aj.tensor([2.0], requires_grad=True)
    aj.manual_seed(0)
    x = d.Normal(loc, scale).rsample()
    x.sum().backward()
    assert loc.grad.item() == 1.0
    np.testing.assert_allclose(scale.grad, (x.detach() - 0.5) / 2.0, rtol=1e-6)
    assert not d.Normal(loc, scale).sample().requires_grad
    assert not d.Poisson(1.0).has_rsample
    with pytest.raises(NotImplementedError, match="rsample"):
        d.Poisson(1.0).rsample()


def test_the_gradient_of_a_beta_mean_is_found_by_sampling() -> None:
    a = aj.tensor(2.0, dtype=aj.float64, requires_grad=True)
    aj.manual_seed(0)
    d.Beta(a, aj.tensor(3.0, dtype=aj.float64)).rsample((20_000,)).mean().backward()
    np.testing.assert_allclose(a.grad, 3.0 / 25.0, rtol=0.05)


def test_log_probabilities_pass_gradcheck() -> None:
    p = [aj.tensor([0.7, 1.8], dtype=aj.float64, requires_grad=True) for _ in range(2)]
    x = aj.tensor([0.3, 0.6], dtype=aj.float64, requires_grad=True)
    for family in (d.Normal, d.Gamma, d.Beta, d.Laplace, d.Weibull, d.Gumbel, d.Kumaraswamy):
        assert aj.autograd.gradcheck(lambda a, b, x, family=family: family(a, b).log_prob(x), (*p, x))
        assert aj.autograd.gradgradcheck(lambda a, b, x, family=family: family(a, b).log_prob(x), (*p, x))


def test_a_training_step_with_draws_compiles_to_one_native_call() -> None:
    loc = aj.zeros(3, requires_grad=True)
    raw = aj.zeros(3, requires_grad=True)

    def step() -> Any:
        loc.grad = raw.grad = None
        q = d.Independent(d.Normal(loc, raw.exp()), 1)
        z = q.rsample((8,))
        loss = (q.log_prob(z) - d.Normal(1.0, 0.5).log_prob(z).sum(-1)).mean()
        loss.backward()
        return loss.detach(), loc.grad, raw.grad

    compiled = aj.jit(step)
    for _ in range(3):
        aj.manual_seed(1)
        expected = [each.clone() for each in step()]
        aj.manual_seed(1)
        for found, wanted in zip(compiled(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    for _ in range(3):
        compiled()
    assert compiled.stats()["fallbacks"] == 0
    assert compiled.stats()["native_calls"] > 0


def test_gamma_draws_have_their_gradient_inside_a_compiled_step() -> None:
    def slope(a: aj.Tensor) -> Any:
        a = a.detach().requires_grad_()
        return aj.autograd.grad(d.Gamma(a, 2.0).rsample((6,)).sum(), a)[0]

    compiled = aj.jit(slope)
    a = aj.tensor([0.4, 2.5])
    for seed in range(3):
        aj.manual_seed(seed)
        expected = slope(a)
        aj.manual_seed(seed)
        np.testing.assert_allclose(compiled(a), expected, rtol=1e-4)
    assert compiled.stats()["fallbacks"] == 0


def test_a_policy_gradient_step_compiles() -> None:
    def step(logits: aj.Tensor) -> Any:
        logits = logits.detach().requires_grad_()
        policy = d.Categorical(logits=logits)
        action = policy.sample()
        loss = -(policy.log_prob(action) * action).sum() - 0.01 * policy.entropy().mean()
        return action, aj.autograd.grad(loss, logits)[0]

    compiled = aj.jit(step)
    logits = aj.randn(5, 3)
    for seed in range(3):
        aj.manual_seed(seed)
        action, slope = step(logits)
        aj.manual_seed(seed)
        found = compiled(logits)
        assert found[0].tolist() == action.tolist()
        np.testing.assert_allclose(found[1], slope, rtol=1e-5, atol=1e-7)
    assert compiled.stats()["captures"] == 1


def test_distributions_work_along_a_batch_of_vmap() -> None:
    loc = aj.tensor([0.0, 1.0, 2.0])
    found = aj.vmap(lambda m: d.Normal(m, 1.0).log_prob(aj.tensor(0.5)))(loc)
    np.testing.assert_allclose(found, d.Normal(loc, 1.0).log_prob(aj.tensor(0.5)))
    drawn = aj.vmap(lambda a: d.Gamma(a, 1.0).rsample(), randomness="different")(loc + 1)
    assert drawn.shape == (3,)
