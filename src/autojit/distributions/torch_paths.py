"""The distributions under the paths of torch's files, such as ``distributions.normal`` and ``distributions.utils``."""

from __future__ import annotations

from autojit.core.lazy_modules import provide as _provide

_HOMES = {
    "bernoulli": "counts",
    "beta": "gamma_family",
    "binomial": "counts",
    "cauchy": "location_scale",
    "chi2": "gamma_family",
    "continuous_bernoulli": "on_intervals",
    "dirichlet": "gamma_family",
    "exp_family": "distribution",
    "exponential": "gamma_family",
    "fishersnedecor": "gamma_family",
    "gamma": "gamma_family",
    "generalized_pareto": "on_intervals",
    "geometric": "counts",
    "gumbel": "location_scale",
    "half_cauchy": "transformed",
    "half_normal": "transformed",
    "independent": "transformed",
    "inverse_gamma": "gamma_family",
    "kumaraswamy": "transformed",
    "laplace": "location_scale",
    "lkj_cholesky": "matrices",
    "log_normal": "transformed",
    "logistic_normal": "transformed",
    "lowrank_multivariate_normal": "low_rank",
    "mixture_same_family": "mixture",
    "multinomial": "categorical",
    "multivariate_normal": "multivariate",
    "negative_binomial": "counts",
    "normal": "location_scale",
    "one_hot_categorical": "categorical",
    "pareto": "transformed",
    "poisson": "counts",
    "relaxed_bernoulli": "relaxed",
    "relaxed_categorical": "relaxed",
    "studentT": "gamma_family",
    "transformed_distribution": "transformed",
    "uniform": "location_scale",
    "utils": "parameters matrix_transforms",
    "von_mises": "circular",
    "weibull": "transformed",
    "wishart": "matrices",
}
_OTHERS = {
    "utils": {
        "_sum_rightmost": "parameters:sum_rightmost",
        "euler_constant": "parameters:EULER_CONSTANT",
        "lazy_property": "parameters:derived",
        "_standard_normal": "parameters:standard_normal",
    },
}
_provide("autojit.distributions", _HOMES, _OTHERS)
