"""Gamma numbers below every float, and what distributions check of arguments that they compute."""

from __future__ import annotations

from typing import Any

import pytest

import autojit as aj
from autojit import distributions as d
from autojit.distributions.gamma_sampling import derivative_by_concentration, log_of_standard_gamma, slope_of_log


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [aj.float32, aj.float64])
@pytest.mark.parametrize("a", [1e-4, 1e-2, 0.3])
def test_beta_numbers_are_inside_and_at_their_ends_as_often(a: float, dtype: aj.dtype, compiled: bool) -> None:
    aj.manual_seed(0)
    concentration = aj.tensor(a, dtype=dtype, requires_grad=True)

    def draw(c: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        beta = d.Beta(c, c)
        drawn = beta.rsample((20_000,))
        (slope,) = aj.autograd.grad(drawn.sum() + beta.log_prob(drawn.detach()).sum(), (c,))
        return drawn.detach(), slope

    drawn, slope = (aj.jit(draw) if compiled else draw)(concentration)
    assert drawn.dtype is dtype and drawn.gt(0).all() and drawn.lt(1).all() and slope.isfinite()
    middle = 1 - d.Beta(0.3, 0.3).sample((20_000,)).sub(0.5).abs().gt(0.4).float().mean().item() if a == 0.3 else 0.03
    assert abs(drawn.lt(0.5).double().mean().item() - 0.5) < 0.02
    assert drawn.sub(0.5).abs().lt(0.4).double().mean().item() < middle + 0.05


def test_the_slope_of_a_logarithm_is_that_of_the_number_divided_by_it() -> None:
    aj.manual_seed(1)
    a = aj.tensor([0.2, 1.0, 3.0, 40.0], dtype=aj.float64)
    logs = log_of_standard_gamma(a)
    aj.testing.assert_close(slope_of_log(a, logs), derivative_by_concentration(a, logs.exp()) / logs.exp())
    tiny = aj.tensor(1e-3, dtype=aj.float64)
    far = aj.tensor(-5000.0, dtype=aj.float64)  # log P = a log z - lgamma(a + 1) there, and P stays
    aj.testing.assert_close(slope_of_log(tiny, far), (aj.digamma(tiny + 1) - far) / tiny)


BAD: dict[str, Any] = {
    "Chi2": lambda: d.Chi2(aj.tensor([-2.0])),
    "NaN": lambda: d.MultivariateNormal(aj.zeros(2), covariance_matrix=aj.full((2, 2), float("nan"))),
    "not positive definite": lambda: d.MultivariateNormal(aj.zeros(2), covariance_matrix=aj.ones(2, 2)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_parameter_is_an_error_though_it_is_computed_or_nan(name: str) -> None:
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        BAD[name]()


def test_a_class_without_constraints_is_told_of() -> None:
    class Delta(d.Distribution):
        def log_prob(self, value: aj.Tensor) -> aj.Tensor:
            self._validate_sample(value)
            return value * 0

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        made = Delta()
    with pytest.warns(UserWarning, match="does not define `support`"):
        made.log_prob(aj.tensor(0.0))
    for kind in (d.Independent, d.MixtureSameFamily):
        with pytest.raises(NotImplementedError, match="statically"):
            _ = kind.support.event_dim  # type: ignore[attr-defined]


def test_what_is_computed_of_a_parameter_is_recorded_without_gradients_too() -> None:
    cov = aj.eye(2).requires_grad_()
    normal = d.MultivariateNormal(aj.zeros(2), cov)
    with aj.no_grad():
        factor = normal.scale_tril
    factor.sum().backward()
    assert cov.grad is not None


def test_a_number_has_a_density_among_gamma_numbers() -> None:
    assert d.Gamma(1.0, 1.0).log_prob(0).item() == 0.0
    assert aj.slogdet(aj.eye(2)).logabsdet.item() == 0.0
