"""Special functions under torch.special's names; each is the function that ``autojit`` and Tensor have too."""

from autojit.functions.argument_errors import name_arguments_in_errors
from autojit.functions.derived import logit
from autojit.functions.elementwise import exp2, expm1, log1p, round, xlogy
from autojit.functions.elementwise import sigmoid as expit
from autojit.functions.reduction import log_softmax, logsumexp, softmax
from autojit.functions.refused_dtypes import refused_kinds
from autojit.functions.special import digamma, erf, erfc, erfinv, polygamma
from autojit.functions.special import digamma as psi
from autojit.functions.special import igamma as gammainc
from autojit.functions.special import igammac as gammaincc
from autojit.functions.special import lgamma as gammaln
from autojit.special.functions import *
from autojit.special.functions import SCIPYS as SCIPYS
from autojit.special.functions import __all__ as _functions
from autojit.special.polynomials import *
from autojit.special.polynomials import __all__ as _polynomials

__all__ = [
    *_functions, *_polynomials, "digamma", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc",
    "gammaln", "log1p", "log_softmax", "logit", "logsumexp", "polygamma", "psi", "round", "softmax", "xlogy",
]  # fmt: skip

name_arguments_in_errors(globals(), [name for name in __all__ if refused_kinds(globals()[name])])
