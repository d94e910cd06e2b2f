"""Divergences between distributions, transforms, constraints, and what wrong arguments raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit import distributions as d

PAIRS: dict[str, Any] = {
    "normal": lambda: (d.Normal(0.3, 1.5), d.Normal(0.0, 2.0)),
    "laplace": lambda: (d.Laplace(0.3, 1.5), d.Laplace(0.0, 2.0)),
    "cauchy": lambda: (d.Cauchy(0.3, 1.5), d.Cauchy(0.0, 2.0)),
    "gumbel": lambda: (d.Gumbel(0.3, 1.5), d.Gumbel(0.0, 2.0)),
    "gamma": lambda: (d.Gamma(1.5, 1.5), d.Gamma(2.0, 1.0)),
    "beta": lambda: (d.Beta(1.5, 1.5), d.Beta(2.0, 1.0)),
    "dirichlet": lambda: (d.Dirichlet(aj.tensor([1.0, 2.0])), d.Dirichlet(aj.tensor([2.0, 2.0]))),
    "exponential": lambda: (d.Exponential(1.5), d.Exponential(2.0)),
    "exponential_gamma": lambda: (d.Exponential(1.5), d.Gamma(2.0, 1.0)),
    "log_normal": lambda: (d.LogNormal(0.3, 1.0), d.LogNormal(0.0, 2.0)),
    "bernoulli": lambda: (d.Bernoulli(0.3), d.Bernoulli(0.6)),
    "poisson": lambda: (d.Poisson(3.0), d.Poisson(4.0)),
    "bernoulli_poisson": lambda: (d.Bernoulli(0.3), d.Poisson(0.5)),
    "geometric": lambda: (d.Geometric(0.3), d.Geometric(0.6)),
    "categorical": lambda: (d.Categorical(aj.tensor([0.3, 0.7])), d.Categorical(aj.tensor([0.5, 0.5]))),
    "multivariate": lambda: (
        d.MultivariateNormal(aj.zeros(2), aj.tensor([[2.0, 0.3], [0.3, 1.0]])),
        d.MultivariateNormal(aj.ones(2), 2 * aj.eye(2)),
    ),
    "independent": lambda: (
        d.Independent(d.Normal(aj.zeros(2), 1.0), 1),
        d.Independent(d.Normal(aj.ones(2), 2.0), 1),
    ),
    "gumbel_normal": lambda: (d.Gumbel(0.3, 1.0), d.Normal(0.0, 2.0)),
    "normal_laplace": lambda: (d.Normal(0.3, 1.0), d.Laplace(0.0, 2.0)),
    "pareto": lambda: (d.Pareto(1.0, 3.0), d.Pareto(0.5, 2.0)),
    "uniform": lambda: (d.Uniform(0.0, 1.0), d.Uniform(-1.0, 2.0)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_divergence_is_the_mean_log_ratio(name: str) -> None:
    p, q = PAIRS[name]()
    aj.manual_seed(1)
    x = p.sample((40_000,))
    ratio = p.log_prob(x) - q.log_prob(x)
    error = 5 * ratio.std().item() / 200 + 1e-5
    assert abs(d.kl_divergence(p, q).item() - ratio.mean().item()) < error


def test_divergence_is_infinite_where_the_second_has_no_values() -> None:
    assert d.kl_divergence(d.Uniform(0.0, 2.0), d.Uniform(0.0, 1.0)).item() == float("inf")
    assert d.kl_divergence(d.Normal(0.0, 2.0), d.Exponential(1.0)).item() == float("inf")
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\)"):
        d.kl_divergence(d.StudentT(1.0), d.Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="type_q"):
        d.register_kl(d.Normal, 3)


TRANSFORMS: dict[str, Any] = {
    "exp": lambda: d.ExpTransform(),
    "sigmoid": lambda: d.SigmoidTransform(),
    "tanh": lambda: d.TanhTransform(),
    "softplus": lambda: d.SoftplusTransform(),
    "affine": lambda: d.AffineTransform(1.0, -2.0),
    "power": lambda: d.PowerTransform(2.0),
    "composed": lambda: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.5, 3.0)]),
    "inverse": lambda: d.ExpTransform().inv,
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_inverts_and_knows_its_slope(name: str) -> None:
    transform = TRANSFORMS[name]()
    x = aj.tensor([0.3, 0.9, 1.7], dtype=aj.float64, requires_grad=True)
    y = transform(x)
    np.testing.assert_allclose(transform.inv(y).detach(), x.detach(), rtol=1e-9)
    (slope,) = aj.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(x, y).detach(), slope.abs().log(), rtol=1e-9, atol=1e-12)


def test_stick_breaking_and_triangles_invert() -> None:
    x = aj.tensor([0.3, -0.9], dtype=aj.float64)
    t = d.StickBreakingTransform()
    np.testing.assert_allclose(t.inv(t(x)), x)
    jacobian = aj.func.jacrev(lambda x: t(x)[:-1])(x)
    np.testing.assert_allclose(t.log_abs_det_jacobian(x, t(x)), aj.linalg.slogdet(jacobian).logabsdet)
    matrix = aj.tensor([[0.1, 9.0], [2.0, -0.3]])
    assert d.constraints.lower_cholesky.check(d.LowerCholeskyTransform()(matrix)).item()
    assert d.AffineTransform(aj.tensor(1.0), 2.0) == d.AffineTransform(aj.tensor(1.0), 2.0)
    assert d.AffineTransform(aj.tensor(1.0), 2.0) != d.AffineTransform(aj.tensor(1.5), 2.0)


def test_constraints_say_which_values_they_hold() -> None:
    c = d.constraints
    assert c.positive.check(aj.tensor([-1.0, 1.0])).tolist() == [False, True]
    assert c.real.check(aj.tensor([1.0, float("nan")])).tolist() == [True, False]
    assert c.simplex.check(aj.tensor([[0.5, 0.5], [0.5, 0.6]])).tolist() == [True, False]
    assert c.integer_interval(0, 2).check(aj.tensor([1.0, 1.5, 3.0])).tolist() == [True, False, False]
    assert c.positive_definite.check(aj.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]])).tolist() == [
        True,
        False,
    ]
    assert c.cat([c.positive, c.real], lengths=[1, 2]).check(aj.tensor([-1.0, -1.0, 2.0])).tolist() == [
        False,
        True,
        True,
    ]
    assert repr(c.positive) == "GreaterThan(lower_bound=0.0)"


def test_wrong_parameters_and_values_raise_as_in_torch() -> None:
    with pytest.raises(ValueError, match=r"Expected parameter scale .* to satisfy the constraint GreaterThan"):
        d.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="within the support"):
        d.Exponential(1.0).log_prob(aj.tensor(-1.0))
    with pytest.raises(ValueError, match="must be a Tensor"):
        d.Normal(0.0, 1.0).log_prob(0.5)
    with pytest.raises(ValueError, match="not broadcastable"):
        d.Normal(aj.zeros(3), 1.0).log_prob(aj.zeros(2))
    with pytest.raises(ValueError, match="Either `probs` or `logits`"):
        d.Bernoulli()
    with pytest.raises(ValueError, match="low>= high"):
        d.Uniform(1.0, 0.0)
    with pytest.raises(ValueError, match="at least one-dimensional"):
        d.Categorical(aj.tensor(1.0))
    assert d.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0
    assert repr(d.Normal(0.0, aj.ones(2))).startswith("Normal(loc: ")


def test_free_numbers_are_brought_into_a_constraint() -> None:
    c = d.constraints
    x = aj.tensor([[0.3, -2.0], [1.0, 4.0]])
    wanted = (c.real, c.positive, c.greater_than(3.0), c.less_than(-1.0), c.unit_interval, c.interval(2.0, 5.0))
    for constraint in (*wanted, c.simplex, c.lower_cholesky, c.independent(c.positive, 1)):
        for registry in (d.biject_to, d.transform_to):
            transform = registry(constraint)
            assert constraint.check(transform(x)).all()
    y = d.biject_to(c.interval(2.0, 5.0))(x)
    np.testing.assert_allclose(d.biject_to(c.interval(2.0, 5.0)).inv(y), x, rtol=1e-4)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        d.biject_to(c.boolean)
