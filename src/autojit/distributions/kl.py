"""Kullback-Leibler divergences between distributions, by the pair of their classes.

How to read: ``kl_divergence`` finds the rule of the closest pair; every rule below is one formula.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as log_of
from math import pi
from typing import Any

from autojit.core.errors import UnsupportedError
from autojit.distributions.categorical import Categorical, OneHotCategorical
from autojit.distributions.counts import Bernoulli, Binomial, Geometric, Poisson
from autojit.distributions.distribution import Distribution, ExponentialFamily
from autojit.distributions.gamma_family import Beta, Dirichlet, Exponential, Gamma, InverseGamma
from autojit.distributions.independent import Independent
from autojit.distributions.location_scale import Cauchy, Gumbel, Laplace, Normal, Uniform
from autojit.distributions.low_rank import LowRankMultivariateNormal
from autojit.distributions.matrices import Wishart, multivariate_digamma, multivariate_lgamma
from autojit.distributions.multivariate import MultivariateNormal
from autojit.distributions.on_intervals import ContinuousBernoulli
from autojit.distributions.parameters import EULER_CONSTANT, sum_rightmost
from autojit.distributions.transformed import HalfCauchy, HalfNormal, LogNormal, Pareto, TransformedDistribution
from autojit.functions.comparison import where
from autojit.functions.elementwise import abs as absolute
from autojit.functions.elementwise import exp, log, log1p, xlogy
from autojit.functions.special import digamma, lgamma
from autojit.nn.functional import softplus
from autojit.tensor.tensor import Tensor

Rule = Callable[[Any, Any], Tensor]
AnyNormal = MultivariateNormal | LowRankMultivariateNormal

_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[[Rule], Rule]:
    """Make the decorated function the divergence of a pair of classes, and of their subclasses without a closer one.

    Raises:
        TypeError: one of the two is no class; it may be one that distributions have beside `Distribution`.

    Example:
        >>> import autojit as aj
        >>> @aj.distributions.register_kl(aj.distributions.Chi2, aj.distributions.Laplace)
        ... def never(p, q):
        ...     return p.concentration + float("inf")
        >>> aj.distributions.kl_divergence(aj.distributions.Chi2(1.0), aj.distributions.Laplace(0.0, 1.0))
        tensor(inf)
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(rule: Rule) -> Rule:
        _RULES[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean under p of log p - log q, in nats. Shape: the batch shape.

    Raises:
        NotImplementedError: no rule is registered for the pair.

    Example:
        >>> import autojit as aj
        >>> d = aj.distributions
        >>> d.kl_divergence(d.Normal(1.0, 1.0), d.Normal(0.0, 1.0))
        tensor(0.5000)
    """
    found = [
        (type(p).__mro__.index(a) + type(q).__mro__.index(b), rule)
        for (a, b), rule in _RULES.items()
        if isinstance(p, a) and isinstance(q, b)
    ]
    if not found:
        raise UnsupportedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return min(found, key=lambda each: each[0])[1](p, q)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log-normaliser."""
    if type(p) is not type(q):
        raise UnsupportedError(
            f"The cross KL-divergence between different exponential families cannot be computed: {type(p).__name__} "
            f"and {type(q).__name__}"
        )
    normalizer, ours, slopes = p._normalizer_with_slopes()
    theirs = q._natural_params
    found = q._log_normalizer(*theirs) - normalizer
    for mine, other, slope in zip(ours, theirs, slopes, strict=True):
        found = found - sum_rightmost((other - mine) * slope, len(q.event_shape))
    return found


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - log(ratio))


@register_kl(HalfNormal, HalfNormal)
@register_kl(HalfCauchy, HalfCauchy)
def _folded(p: HalfNormal | HalfCauchy, q: HalfNormal | HalfCauchy) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(LogNormal, LogNormal)
@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise UnsupportedError("kl_divergence: the two transformed distributions have different transforms")
    found = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(found, found.ndim - len(p.batch_shape))


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError("kl_divergence: the two independent distributions take in different numbers of axes")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event shapes is undefined")
    return _between_normals(p, q)


def _between_normals(p: AnyNormal, q: AnyNormal) -> Tensor:
    """The divergence of normal vectors of one length; their covariances may be of low rank."""
    columns = *p._columns(), (p.loc - q.loc).unsqueeze(-1)
    distance = sum(map(q._squared_length, columns), q._log_det() - p._log_det())
    return 0.5 * (distance - p.event_shape[0])


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    is_outside = (q.low > p.low) | (q.high < p.high)
    return where(is_outside, float("inf"), log((q.high - q.low) / (p.high - p.low)))


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    gap = absolute(p.loc - q.loc)
    return log(q.scale / p.scale) + gap / q.scale + p.scale / q.scale * exp(-gap / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return log(((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4 * p.scale * q.scale))


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    gap = (q.loc - p.loc) / q.scale
    return -log(ratio) - gap + ratio * EULER_CONSTANT + exp(gap + lgamma(1 + ratio)) - (1 + EULER_CONSTANT)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - log(ratio) - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = lgamma(b) - lgamma(a) + (a - b) * digamma(a)
    return shapes + b * log(p.rate / q.rate) + a * (q.rate / p.rate - 1)


@register_kl(InverseGamma, InverseGamma)
def _inverse_gamma(p: InverseGamma, q: InverseGamma) -> Tensor:
    return _gamma(p.of_reciprocals(), q.of_reciprocals())


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet(), q._dirichlet())


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    constants = lgamma(a.sum(-1)) - lgamma(b.sum(-1)) + (lgamma(b) - lgamma(a)).sum(-1)
    return constants + ((a - b) * (digamma(a) - digamma(a.sum(-1, keepdim=True)))).sum(-1)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1
    return where(p.scale < q.scale, float("inf"), found)


@register_kl(Bernoulli, Bernoulli)
def _of_success(p: Any, q: Any) -> Tensor:
    chance = p.probs
    own = xlogy(chance, chance) + xlogy(1 - chance, 1 - chance)
    gain = chance * softplus(-q.logits) + (1 - chance) * softplus(q.logits)
    outside = ((q.probs == 0) & (chance > 0)) | ((q.probs == 1) & (chance < 1))
    return where(outside, float("inf"), own + gain)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    found = where(p.total_count > q.total_count, float("inf"), p.total_count * _of_success(p, q))
    if not bool((p.total_count >= q.total_count).all()):
        raise UnsupportedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    return found


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return _of_success(p, q) / p.probs


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return xlogy(p.rate, p.rate / q.rate) - (p.rate - q.rate)


@register_kl(OneHotCategorical, OneHotCategorical)
@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    each = where(p.probs == 0, 0.0, p.probs * (p.logits - q.logits))
    return where((q.probs == 0) & (p.probs > 0), float("inf"), each).sum(-1)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    unit = Normal(p.loc * 0, p.scale * 0 + 1, validate_args=False)
    gap = p.loc - q.loc
    spread = 2 * p.scale * exp(unit.log_prob(gap / p.scale)) + gap * (2 * unit.cdf(gap / p.scale) - 1)
    return spread / q.scale + log(2 * q.scale) - p.entropy()


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    return _gamma(Gamma(p.rate * 0 + 1, p.rate, validate_args=False), q)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> Tensor:
    return _gamma(p, Gamma(q.rate * 0 + 1, q.rate, validate_args=False))


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * log(q.rate) - q.rate)


@register_kl(Uniform, Normal)
@register_kl(Laplace, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Beta, Normal)
@register_kl(Pareto, Normal)
@register_kl(ContinuousBernoulli, Normal)
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    """-log q is a parabola, so the mean and the variance of p decide."""
    parabola = (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale**2)
    return 0.5 * log_of(2 * pi) + log(q.scale) + parabola - p.entropy()


def outside(p: Distribution, q: Distribution) -> Tensor:
    """Infinite: p has values where q has none."""
    return p.entropy() * 0 + q.entropy() * 0 + float("inf")


for _of_all_numbers in (Normal, Laplace, Gumbel):
    for _of_some_numbers in (Uniform, Exponential, Gamma, Beta, Pareto):
        register_kl(_of_all_numbers, _of_some_numbers)(outside)
for _unbounded in (Exponential, Gamma, Pareto):
    for _bounded in (Uniform, Beta):
        register_kl(_unbounded, _bounded)(outside)
for _from_zero in (Exponential, Gamma):
    register_kl(_from_zero, Pareto)(outside)
register_kl(Poisson, Bernoulli)(lambda p, q: p.rate * 0 + q.probs * 0 + float("inf"))
register_kl(Poisson, Binomial)(lambda p, q: p.rate * 0 + q.probs * 0 + float("inf"))


# ---- of low rank, of matrices, on intervals, to a Gumbel distribution


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _normals(p: AnyNormal, q: AnyNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed"
        )
    return _between_normals(p, q)


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


@register_kl(Beta, ContinuousBernoulli)
def _cross_continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - log1p(-q.probs) - q._log_norm()


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
