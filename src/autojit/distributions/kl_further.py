"""Divergences of the pairs that ``kl.py`` leaves out: low-rank normals, Wishart, continuous Bernoulli; to Gumbel."""

from __future__ import annotations

from autojit.core.errors import UnsupportedError
from autojit.distributions.distribution import Distribution
from autojit.distributions.gamma_family import Beta, Exponential, Gamma
from autojit.distributions.kl import AnyNormal, between_normals, outside, register_kl, to_normal
from autojit.distributions.location_scale import Gumbel, Laplace, Normal, Uniform
from autojit.distributions.low_rank import LowRankMultivariateNormal
from autojit.distributions.matrices import Wishart, multivariate_digamma, multivariate_lgamma
from autojit.distributions.multivariate import MultivariateNormal
from autojit.distributions.on_intervals import ContinuousBernoulli
from autojit.distributions.transformed import Pareto
from autojit.functions.comparison import where
from autojit.functions.elementwise import exp, log, log1p, xlogy
from autojit.functions.special import digamma, lgamma
from autojit.tensor.tensor import Tensor


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _normals(p: AnyNormal, q: AnyNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed"
        )
    return between_normals(p, q)


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    if p.event_shape != q.event_shape:
        raise UnsupportedError("kl_divergence: Wishart distributions of matrices of different extents")
    rows = p.event_shape[-1]
    trace = (q._whitened(p._unbroadcasted_scale_tril) ** 2).sum((-2, -1))
    scales = 0.5 * (q.df * (q._log_det() - p._log_det()) + p.df * (trace - rows))
    shapes = multivariate_lgamma(q.df / 2, rows) - multivariate_lgamma(p.df / 2, rows)
    return scales + shapes + 0.5 * (p.df - q.df) * multivariate_digamma(p.df / 2, rows)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    own = p._log_norm() + log1p(-p.probs)
    return p.mean * (p.logits - q.logits) + own - q._log_norm() - log1p(-q.probs)


def _cross_continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - log1p(-q.probs) - q._log_norm()


register_kl(Beta, ContinuousBernoulli)(_cross_continuous_bernoulli)
register_kl(ContinuousBernoulli, Normal)(to_normal)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return where((p.high >= 1) | (p.low <= 0), float("inf"), _cross_continuous_bernoulli(p, q))


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: ContinuousBernoulli, q: Uniform) -> Tensor:
    found = log(q.high - q.low) - p.entropy()
    return where((q.low >= 0) | (q.high <= 1), float("inf"), found)


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> Tensor:
    found = log(q.high - q.low) - p.entropy()
    return where((q.low > 0) | (q.high < 1), float("inf"), found)


@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Beta, Exponential)
def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate * p.mean - p.entropy() - log(q.rate)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return where(p.low < 0, float("inf"), _to_exponential(p, q))


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> Tensor:
    return where(p.alpha > 1, _to_exponential(p, q), float("inf"))


def _to_gamma(p: Distribution, mean_of_log: Tensor, q: Gamma) -> Tensor:
    a = q.concentration
    return lgamma(a) - a * log(q.rate) - (a - 1) * mean_of_log + q.rate * p.mean - p.entropy()


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Tensor:
    return _to_gamma(p, digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0), q)


def _mean_of_log(low: Tensor, high: Tensor) -> Tensor:
    """Of a uniform number."""
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    is_outside = p.low < 0
    low = where(is_outside, 0.0, p.low)
    return where(is_outside, float("inf"), _to_gamma(p, _mean_of_log(low, p.high.clamp(min=0.0)), q))


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    return where(p.alpha > 1, _to_gamma(p, log(p.scale) + 1 / p.alpha, q), float("inf"))


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    low, high = p.low.clamp(min=0.0, max=1.0), p.high.clamp(min=0.0, max=1.0)
    logs = (a - 1) * _mean_of_log(low, high) + (b - 1) * _mean_of_log(1 - high, 1 - low)
    found = lgamma(a) + lgamma(b) - lgamma(a + b) - logs - p.entropy()
    return where((p.high > 1) | (p.low < 0), float("inf"), found)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    low = p.low.clamp(min=0.0)
    found = (q.alpha + 1) * _mean_of_log(low, p.high) - log(q.alpha) - q.alpha * log(q.scale) - p.entropy()
    return where(p.low < q.scale, float("inf"), found)


def _to_gumbel(p: Distribution, mean_of_exp: Tensor, q: Gumbel) -> Tensor:
    """``mean_of_exp`` is that of exp(-x / scale) under p."""
    return log(q.scale) + (p.mean - q.loc) / q.scale + exp(q.loc / q.scale) * mean_of_exp - p.entropy()


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    return _to_gumbel(p, exp(0.5 * (p.scale / q.scale) ** 2 - p.loc / q.scale), q)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    product = p.rate * q.scale
    return _to_gumbel(p, product / (product + 1), q)


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    return _to_gumbel(p, (1 + 1 / (p.rate * q.scale)) ** (-p.concentration), q)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    gap = exp(-p.low / q.scale) - exp(-p.high / q.scale)
    return _to_gumbel(p, gap * q.scale / (p.high - p.low), q)


for _wider in (Normal, Laplace, Gumbel, Exponential, Gamma, Pareto):
    register_kl(_wider, ContinuousBernoulli)(outside)
for _narrower in (Beta, ContinuousBernoulli):
    register_kl(_narrower, Pareto)(outside)
