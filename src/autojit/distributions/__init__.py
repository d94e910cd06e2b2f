"""Probability distributions with torch.distributions' names: densities, differentiable draws, divergences."""

from autojit.distributions import constraints, kl, transforms
from autojit.distributions import torch_paths as torch_paths
from autojit.distributions.categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from autojit.distributions.circular import VonMises
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
from autojit.distributions.independent import Independent
from autojit.distributions.kl import kl_divergence, register_kl
from autojit.distributions.location_scale import Cauchy, Gumbel, Laplace, Normal, Uniform
from autojit.distributions.low_rank import LowRankMultivariateNormal
from autojit.distributions.matrices import LKJCholesky, Wishart
from autojit.distributions.mixture import MixtureSameFamily
from autojit.distributions.multivariate import MultivariateNormal
from autojit.distributions.on_intervals import ContinuousBernoulli, GeneralizedPareto
from autojit.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from autojit.distributions.transformed import (
    HalfCauchy,
    HalfNormal,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    TransformedDistribution,
    Weibull,
)
from autojit.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy",
    "Chi2", "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "Dirichlet", "Distribution", "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform",
    "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson",
    "PositiveDefiniteTransform", "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform",
    "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
    "biject_to", "constraints", "identity_transform", "kl", "kl_divergence", "register_kl", "transform_to",
    "transforms",
]  # fmt: skip
