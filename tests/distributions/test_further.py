"""Distributions of angles, matrices and intervals, normals of low rank, and their transforms and divergences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import autojit as aj
from autojit import distributions as d
from autojit.autograd import gradcheck


def t(*values: Any) -> aj.Tensor:
    return aj.tensor(np.asarray(values if len(values) > 1 else values[0], dtype=float))


def covariance(n: int = 3) -> Any:
    a = np.random.RandomState(0).standard_normal((n, n))
    return a @ a.T + n * np.eye(n)


CASES: list[tuple[Any, Any, list[float]]] = [
    (d.VonMises(t(0.5), t(2.0)), stats.vonmises(2.0, 0.5), [-2.0, 0.3, 3.0]),
    (d.VonMises(t(0.5), t(1e-3)), stats.vonmises(1e-3, 0.5), [-2.0, 0.3, 3.0]),
    (d.GeneralizedPareto(t(0.5), t(2.0), t(0.3)), stats.genpareto(0.3, 0.5, 2.0), [0.6, 2.0, 9.0]),
    (d.GeneralizedPareto(t(0.5), t(2.0), t(-0.3)), stats.genpareto(-0.3, 0.5, 2.0), [0.6, 2.0, 7.0]),
    (d.GeneralizedPareto(t(0.5), t(2.0), t(0.0)), stats.expon(0.5, 2.0), [0.6, 2.0, 9.0]),
]


@pytest.mark.parametrize(("ours", "theirs", "values"), CASES)
def test_densities_agree_with_scipy(ours: Any, theirs: Any, values: list[float]) -> None:
    np.testing.assert_allclose(ours.log_prob(t(*values)).numpy(), theirs.logpdf(values), rtol=1e-9)
    if isinstance(ours, d.GeneralizedPareto):
        np.testing.assert_allclose(ours.cdf(t(*values)).numpy(), theirs.cdf(values), rtol=1e-9)
        np.testing.assert_allclose(ours.icdf(ours.cdf(t(*values))).numpy(), values, rtol=1e-9)
        np.testing.assert_allclose([ours.mean.item(), ours.variance.item()], theirs.stats("mv"), rtol=1e-9)
        np.testing.assert_allclose(ours.entropy().item(), theirs.entropy(), rtol=1e-9)


@pytest.mark.parametrize("p", [0.1, 0.4985, 0.5, 0.9])
def test_the_continuous_bernoulli_is_a_density_with_its_moments(p: float) -> None:
    one = d.ContinuousBernoulli(probs=t(p))

    def mean_of(f: Any) -> float:
        return integrate.quad(lambda x: f(x) * np.exp(one.log_prob(t(x)).item()), 0, 1)[0]

    assert mean_of(lambda x: 1.0) == pytest.approx(1.0)
    assert mean_of(lambda x: x) == pytest.approx(one.mean.item(), abs=1e-6)
    assert mean_of(lambda x: (x - one.mean.item()) ** 2) == pytest.approx(one.variance.item(), abs=1e-6)
    assert mean_of(lambda x: -one.log_prob(t(x)).item()) == pytest.approx(one.entropy().item(), abs=1e-6)
    np.testing.assert_allclose(one.icdf(one.cdf(t(0.3))).item(), 0.3, atol=1e-6)


def test_wishart_agrees_with_scipy_however_its_scale_is_given() -> None:
    scale, value = covariance(), covariance() * 2
    theirs = stats.wishart(5.5, scale)
    for name, matrix in (
        ("covariance_matrix", scale),
        ("precision_matrix", np.linalg.inv(scale)),
        ("scale_tril", np.linalg.cholesky(scale)),
    ):
        ours = d.Wishart(t(5.5), **{name: t(matrix)})
        np.testing.assert_allclose(ours.log_prob(t(value)).item(), theirs.logpdf(value), rtol=1e-9)
        np.testing.assert_allclose(ours.entropy().item(), theirs.entropy(), rtol=1e-9)
        np.testing.assert_allclose(ours.mean.numpy(), theirs.mean(), rtol=1e-9)
        np.testing.assert_allclose(ours.variance.numpy(), theirs.var(), rtol=1e-9)
    with pytest.raises(ValueError, match="df"):
        d.Wishart(t(1.0), t(scale))
    with pytest.warns(UserWarning, match="Low df"):
        d.Wishart(t(2.5), t(scale))


def test_a_normal_of_low_rank_is_the_normal_of_its_covariance() -> None:
    drawn = np.random.RandomState(0).standard_normal
    factor, diagonal, loc, value = drawn((4, 2)), np.exp(drawn(4)), drawn(4), drawn(4)
    low = d.LowRankMultivariateNormal(t(loc), t(factor), t(diagonal))
    full = d.MultivariateNormal(t(loc), t(factor @ factor.T + np.diag(diagonal)))
    theirs = stats.multivariate_normal(loc, full.covariance_matrix.numpy())
    np.testing.assert_allclose(low.log_prob(t(value)).item(), theirs.logpdf(value), rtol=1e-9)
    np.testing.assert_allclose(low.entropy().item(), theirs.entropy(), rtol=1e-9)
    for name in ("covariance_matrix", "precision_matrix", "scale_tril", "variance"):
        np.testing.assert_allclose(getattr(low, name).numpy(), getattr(full, name).numpy(), rtol=1e-8, atol=1e-12)
    other = d.LowRankMultivariateNormal(t(value), t(factor * 2), t(diagonal + 1))
    alike = d.MultivariateNormal(t(value), other.covariance_matrix)
    expected = d.kl_divergence(full, alike).item()
    for p, q in ((low, other), (low, alike), (full, other)):
        assert d.kl_divergence(p, q).item() == pytest.approx(expected)


def test_lkj_is_a_density_over_correlations() -> None:
    """For two rows the correlation has a beta density, and the factor's element below the diagonal is it."""
    for concentration in (0.7, 1.0, 2.5):
        one = d.LKJCholesky(2, t(concentration))
        r = 0.4
        factor = t([[1.0, 0.0], [r, np.sqrt(1 - r * r)]])
        expected = stats.beta(concentration, concentration, loc=-1, scale=2).logpdf(r)
        assert one.log_prob(factor).item() == pytest.approx(expected)
    drawn = d.LKJCholesky(3, t(2.0)).sample((4,))
    np.testing.assert_allclose((drawn @ drawn.mT).diagonal(dim1=-2, dim2=-1).numpy(), 1.0, rtol=1e-12)


DRAWN = [
    d.VonMises(t(1.0), t(0.7)),
    d.ContinuousBernoulli(t(0.8)),
    d.LowRankMultivariateNormal(t(1.0, 2.0), t([[1.0], [-0.5]]), t(0.3, 0.4)),
    d.Wishart(t(4.5), t(covariance(2))),
]


@pytest.mark.parametrize("one", DRAWN, ids=lambda one: type(one).__name__)
def test_means_of_draws_come_near_the_mean(one: Any) -> None:
    aj.manual_seed(0)
    drawn = one.sample((20000,))
    if isinstance(one, d.VonMises):
        angles = np.exp(1j * drawn.numpy()).mean()
        assert np.angle(angles) == pytest.approx(one.mean.item(), abs=0.05)
        assert 1 - abs(angles) == pytest.approx(one.variance.item(), abs=0.02)
        return
    error = (drawn.mean(0) - one.mean) / (one.variance / 20000).sqrt()
    assert float(error.abs().max()) < 5
    assert one.expand((3, *one.batch_shape)).sample().shape == (3, *one.batch_shape, *one.event_shape)


def test_logistic_normals_lie_on_the_simplex_and_differentiate() -> None:
    loc = t(0.2, -0.3).requires_grad_()
    one = d.LogisticNormal(loc, t(1.0, 0.5))
    drawn = one.rsample((5,))
    np.testing.assert_allclose(drawn.sum(-1).detach().numpy(), 1.0)
    assert gradcheck(lambda loc: d.LogisticNormal(loc, t(1.0, 0.5)).log_prob(drawn.detach()), loc)


@pytest.mark.parametrize(
    ("transform", "x", "chosen"),
    [
        (d.CorrCholeskyTransform(), t(0.3, -0.5, 1.2), np.tril_indices(3, -1)),
        (d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 3.0)], lengths=[1, 2]), t(0.3, -0.5, 1.2), None),
        (d.StackTransform([d.ExpTransform(), d.SigmoidTransform()]), t(0.3, -0.5), None),
        (d.CumulativeDistributionTransform(d.Normal(t(0.0), t(1.0))), t(0.3, -0.5), None),
    ],
)
def test_transforms_invert_and_know_their_volume(transform: Any, x: aj.Tensor, chosen: Any) -> None:
    y = transform(x)
    np.testing.assert_allclose(transform.inv(y).numpy(), x.numpy(), rtol=1e-6)
    jacobian = aj.func.jacrev(transform)(x).numpy()
    matrix = jacobian[chosen] if chosen is not None else jacobian
    expected = np.log(np.abs(np.linalg.det(matrix)))
    assert float(transform.log_abs_det_jacobian(x, y).sum()) == pytest.approx(expected, rel=1e-6)


def test_constraints_have_transforms_onto_them() -> None:
    c = d.constraints
    for constraint, x in (
        (c.corr_cholesky, t(0.3, -0.5, 1.2)),
        (c.positive_definite, t([[0.1, 0.0], [2.0, -0.3]])),
        (c.positive_semidefinite, t([[0.1, 0.0], [2.0, -0.3]])),
        (c.cat([c.positive, c.real], lengths=[1, 2]), t(-0.3, 0.5, -1.2)),
        (c.stack([c.positive, c.unit_interval]), t(-0.3, 0.5)),
    ):
        assert constraint.check(d.transform_to(constraint)(x)).all()
    mixture = d.constraints.MixtureSameFamilyConstraint(c.interval(t(0.0, 1.0), t(2.0, 3.0)))
    assert mixture.check(t(1.5, 0.5)).tolist() == [True, False]


PAIRS = [
    (d.Beta(t(2.0), t(3.0)), d.Gamma(t(1.5), t(2.0)), (0, 1)),
    (d.Beta(t(2.0), t(3.0)), d.Exponential(t(2.0)), (0, 1)),
    (d.Beta(t(2.0), t(3.0)), d.Uniform(t(-1.0), t(2.0)), (0, 1)),
    (d.Beta(t(2.0), t(3.0)), d.ContinuousBernoulli(t(0.3)), (0, 1)),
    (d.ContinuousBernoulli(t(0.7)), d.ContinuousBernoulli(t(0.3)), (0, 1)),
    (d.ContinuousBernoulli(t(0.7)), d.Normal(t(0.3), t(2.0)), (0, 1)),
    (d.ContinuousBernoulli(t(0.7)), d.Exponential(t(0.3)), (0, 1)),
    (d.Uniform(t(0.2), t(0.9)), d.Beta(t(2.0), t(3.0)), (0.2, 0.9)),
    (d.Uniform(t(0.2), t(0.9)), d.Gamma(t(1.5), t(2.0)), (0.2, 0.9)),
    (d.Uniform(t(0.2), t(0.9)), d.Pareto(t(0.1), t(2.0)), (0.2, 0.9)),
    (d.Uniform(t(0.2), t(0.9)), d.Gumbel(t(0.1), t(2.0)), (0.2, 0.9)),
    (d.Uniform(t(0.2), t(0.9)), d.ContinuousBernoulli(t(0.3)), (0.2, 0.9)),
    (d.Normal(t(0.2), t(0.9)), d.Gumbel(t(0.1), t(2.0)), (-9, 9)),
    (d.Exponential(t(1.2)), d.Gumbel(t(0.1), t(2.0)), (0, 40)),
    (d.Gamma(t(1.2), t(2.0)), d.Gumbel(t(0.1), t(2.0)), (0, 30)),
    (d.Pareto(t(0.5), t(4.0)), d.Exponential(t(1.5)), (0.5, np.inf)),
    (d.Pareto(t(0.5), t(4.0)), d.Gamma(t(1.5), t(2.0)), (0.5, np.inf)),
]


@pytest.mark.parametrize(("p", "q", "ends"), PAIRS, ids=[f"{type(p).__name__}-{type(q).__name__}" for p, q, _ in PAIRS])
def test_divergences_are_the_integrals_they_stand_for(p: Any, q: Any, ends: tuple[float, float]) -> None:
    def integrand(x: float) -> float:
        ours = p.log_prob(t(x)).item()
        return float(np.exp(ours) * (ours - q.log_prob(t(x)).item())) if np.isfinite(ours) else 0.0

    expected = integrate.quad(integrand, *ends, limit=200)[0]
    assert d.kl_divergence(p, q).item() == pytest.approx(expected, rel=1e-5)


def test_where_the_second_has_no_values_the_divergence_is_infinite() -> None:
    for p, q in (
        (d.Normal(0.0, 1.0), d.ContinuousBernoulli(0.3)),
        (d.Beta(1.0, 1.0), d.Pareto(2.0, 1.0)),
        (d.Uniform(-1.0, 1.0), d.Exponential(1.0)),
        (d.Pareto(1.0, 0.5), d.Exponential(1.0)),
    ):
        assert d.kl_divergence(p, q).item() == float("inf")


def test_divergence_of_wishart_matrices_of_one_row_is_that_of_gamma_numbers() -> None:
    p, q = d.Wishart(t(3.0), t([[2.0]])), d.Wishart(t(4.5), t([[0.7]]))
    alike = [d.Gamma(t(n / 2), t(1 / (2 * v))) for n, v in ((3.0, 2.0), (4.5, 0.7))]
    assert d.kl_divergence(p, q).item() == pytest.approx(d.kl_divergence(*alike).item())


def test_an_exponential_family_has_entropy_and_divergence_from_its_normaliser() -> None:
    class Rate(d.ExponentialFamily):
        """The exponential distribution, given by nothing but its natural parameter."""

        def __init__(self, rate: aj.Tensor) -> None:
            self.rate = rate
            super().__init__(rate.shape, validate_args=False)

        _mean_carrier_measure = 0

        @property
        def _natural_params(self) -> tuple[aj.Tensor, ...]:
            return (-self.rate,)

        def _log_normalizer(self, *natural_params: aj.Tensor) -> aj.Tensor:
            return -(-natural_params[0]).log()

    p, q = Rate(t(0.5, 2.0)), Rate(t(1.5, 0.7))
    known = d.Exponential(p.rate), d.Exponential(q.rate)
    np.testing.assert_allclose(p.entropy().detach().numpy(), known[0].entropy().numpy())
    np.testing.assert_allclose(d.kl_divergence(p, q).detach().numpy(), d.kl_divergence(*known).numpy())


def test_log_densities_compile_with_their_derivatives() -> None:
    factor, diagonal = t([[1.0], [-0.5]]), t(0.3, 0.4)

    def loss(loc: aj.Tensor, p: aj.Tensor) -> Any:
        low = d.LowRankMultivariateNormal(loc, factor, diagonal).log_prob(loc * 0 + 1)
        total = low + d.ContinuousBernoulli(p).log_prob(p * 0 + 0.3) + d.VonMises(p, p + 1).log_prob(p)
        return aj.autograd.grad(total, (loc, p))

    args = (t(0.1, 0.2).requires_grad_(), t(0.3).requires_grad_())
    compiled = aj.jit(loss)
    compiled(*args)
    for found, expected in zip(compiled(*args), loss(*args), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9)
    assert compiled.stats()["captures"] == 1  # LAPACK and Bessel functions are called back from the step


def test_users_write_distributions_of_their_own() -> None:
    class Shifted(d.Distribution):
        arg_constraints = {"loc": d.constraints.real}  # noqa: RUF012
        support = d.constraints.real
        has_rsample = True

        def __init__(self, loc: Any, validate_args: bool | None = None) -> None:
            (self.loc,) = d.utils.broadcast_all(loc)
            super().__init__(self.loc.shape, validate_args=validate_args)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Shifted, _instance)
            new.loc = self.loc.expand(batch_shape)
            super(Shifted, new).__init__(batch_shape, validate_args=False)
            return new

        def rsample(self, sample_shape: Any = ()) -> aj.Tensor:
            return self.loc + d.utils._standard_normal(self._extended_shape(sample_shape), self.loc.dtype, None)

    class Renamed(Shifted):
        def __init__(self, mean: Any) -> None:
            super().__init__(mean)

    assert Shifted(aj.zeros(3)).expand((2, 3)).sample((4,)).shape == (4, 2, 3)
    with pytest.raises(NotImplementedError, match="expand"):
        Renamed(aj.zeros(3)).expand((2, 3))
