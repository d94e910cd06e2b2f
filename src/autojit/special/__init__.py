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
from autojit.special.functions import (
    SCIPYS as SCIPYS,
)  # fmt: skip
from autojit.special.functions import (
    airy_ai,
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    entr,
    erfcx,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    modified_bessel_i0,
    modified_bessel_i1,
    modified_bessel_k0,
    modified_bessel_k1,
    multigammaln,
    ndtr,
    ndtri,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    sinc,
    spherical_bessel_j0,
    xlog1py,
    zeta,
)
from autojit.special.polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)  # fmt: skip

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1",
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1",
    "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
    "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr",
    "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

name_arguments_in_errors(globals(), [name for name in __all__ if refused_kinds(globals()[name])])
