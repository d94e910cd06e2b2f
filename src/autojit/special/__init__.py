"""Special functions under torch.special's names; each is the function that ``autojit`` and Tensor have too."""

from autojit.tensor.functions_elementwise import exp2, expm1, log1p, logit, round, xlogy
from autojit.tensor.functions_elementwise import sigmoid as expit
from autojit.tensor.functions_reduction import log_softmax, logsumexp, softmax
from autojit.tensor.functions_special import digamma, erf, erfc, erfinv, polygamma
from autojit.tensor.functions_special import digamma as psi
from autojit.tensor.functions_special import igamma as gammainc
from autojit.tensor.functions_special import igammac as gammaincc
from autojit.tensor.functions_special import lgamma as gammaln

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln", "log1p",
    "log_softmax", "logit", "logsumexp", "polygamma", "psi", "round", "softmax", "xlogy",
]  # fmt: skip
