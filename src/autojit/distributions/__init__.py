"""Probability distributions with torch.distributions' names: densities, differentiable draws, divergences."""

from autojit.distributions import constraints, kl, transforms
from autojit.distributions.categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from autojit.distributions.constraint_registry import biject_to, transform_to
from autojit.distributions.counts import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from autojit.distributions.distribution import Distribution, ExponentialFamily
from autojit.distributions.gamma_family import (
    Beta,
    Chi2,
    Dirichlet,
    Exponential,
    FisherSnedecor,
    Gamma,
    InverseGamma,
    StudentT,
)
from autojit.distributions.kl import kl_divergence, register_kl
from autojit.distributions.location_scale import Cauchy, Gumbel, Laplace, Normal, Uniform
from autojit.distributions.mixture import MixtureSameFamily
from autojit.distributions.multivariate import MultivariateNormal
from autojit.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from autojit.distributions.transformed import (
    HalfCauchy,
    HalfNormal,
    Independent,
    Kumaraswamy,
    LogNormal,
    Pareto,
    TransformedDistribution,
    Weibull,
)
from autojit.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential", "ExponentialFamily",
    "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "IndependentTransform", "InverseGamma", "Kumaraswamy", "Laplace", "LogNormal", "LowerCholeskyTransform",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PowerTransform", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform",
    "StickBreakingTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform",
    "Weibull", "biject_to", "constraints", "identity_transform", "kl", "kl_divergence", "register_kl", "transform_to",
    "transforms",
]  # fmt: skip
