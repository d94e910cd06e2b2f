"""The distributions under the paths of torch's files, such as ``distributions.normal`` and ``distributions.utils``."""

from __future__ import annotations

from autojit.core.lazy_modules import provide as _provide

_PATHS = {  # by file of ours, those of torch
    "categorical": "multinomial one_hot_categorical",
    "circular": "von_mises",
    "counts": "bernoulli binomial geometric negative_binomial poisson",
    "distribution": "exp_family",
    "gamma_family": "beta chi2 dirichlet exponential fishersnedecor gamma inverse_gamma studentT",
    "location_scale": "cauchy gumbel laplace normal uniform",
    "low_rank": "lowrank_multivariate_normal",
    "matrices": "lkj_cholesky wishart",
    "mixture": "mixture_same_family",
    "multivariate": "multivariate_normal",
    "on_intervals": "continuous_bernoulli generalized_pareto",
    "relaxed": "relaxed_bernoulli relaxed_categorical",
    "transformed": "half_cauchy half_normal kumaraswamy log_normal "
    "logistic_normal pareto transformed_distribution weibull",
}
_HOMES = {path: home for home, paths in _PATHS.items() for path in paths.split()}
_OTHERS = {
    "utils": {
        "_sum_rightmost": "parameters:sum_rightmost",
        "euler_constant": "parameters:EULER_CONSTANT",
        "lazy_property": "parameters:derived",
        "_standard_normal": "parameters:standard_normal",
    },
}
_provide("autojit.distributions", {**_HOMES, "utils": "parameters matrix_transforms"}, _OTHERS)
