"""What NumPy's and SciPy's ufuncs are in autojit: by name, functions of tensors of one dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autojit as aj

Function = Callable[..., Any]


def _same(name: str) -> Function:
    found: Function = getattr(aj, name)
    return found


def _special(name: str) -> Function:
    return lambda *operands: getattr(aj.special, name)(*operands)


def _cbrt(x: Any) -> Any:
    size = aj.where(x == 0, 1, aj.abs(x))
    root = aj.exp(aj.log(size) / 3)
    root = root - (root - size / (root * root)) / 3  # one step of Newton's method takes the error of exp and log away
    root = aj.where(aj.isfinite(size), root, size)
    return aj.where(x == 0, aj.pow(aj.where(x == 0, x, 1), 1 / 3), aj.copysign(root, x))  # with an infinite slope at 0


def _vecdot(x: Any, y: Any) -> Any:
    return aj.sum(aj.conj(x) * y, -1, dtype=x.dtype)


def _matvec(x: Any, y: Any) -> Any:
    return aj.matmul(x, y[..., None])[..., 0]


def _vecmat(x: Any, y: Any) -> Any:
    return aj.matmul(aj.conj(x)[..., None, :], y)[..., 0, :]


def _divmod(x: Any, y: Any) -> Any:
    quotient = aj.floor_divide(x, y)
    return quotient, aj.remainder(x, y)


def _modf(x: Any) -> Any:
    whole = aj.trunc(x)
    part = aj.where(aj.isinf(x), aj.zeros_like(x), x - whole)
    return aj.copysign(part, x), whole


def _spacing(x: Any) -> Any:
    x = x.detach()
    return aj.copysign(aj.nextafter(aj.abs(x), aj.full_like(x, aj.inf)) - aj.abs(x), x)


def _bit_count(x: Any) -> Any:
    bits = aj.abs(x)
    count = aj.zeros_like(x, dtype=aj.uint8)
    for place in range(8 * x.element_size()):
        count = count + ((bits >> place) & 1).to(aj.uint8)
    return count


def _ldexp(x: Any, exponent: Any) -> Any:
    return aj.ldexp(x if x.dtype.category > 1 else x.to(aj.float64), exponent)


def _rint(x: Any) -> Any:
    return aj.round(x)


def _absolute_float(x: Any) -> Any:
    return aj.abs(x)


_SAME_NAME = """
negative positive absolute sign exp exp2 log log2 log10 expm1 log1p sqrt square reciprocal sin cos tan arcsin arccos
arctan sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg floor ceil trunc isfinite isinf isnan signbit
logical_not add subtract multiply true_divide floor_divide remainder fmod float_power arctan2 hypot logaddexp
logaddexp2 maximum minimum fmax fmin copysign nextafter bitwise_and bitwise_or bitwise_xor logical_and logical_or
logical_xor greater greater_equal less less_equal not_equal heaviside ldexp matmul gcd lcm frexp
"""
UFUNCS: dict[str, Function] = {
    **{name: _same(name) for name in _SAME_NAME.split() if hasattr(aj, name)},
    "divide": _same("true_divide"),
    "sign": _same("sgn"),
    "abs": _same("abs"),
    "fabs": _absolute_float,
    "rint": _rint,
    "conjugate": _same("conj"),
    "cbrt": _cbrt,
    "degrees": _same("rad2deg"),
    "radians": _same("deg2rad"),
    "invert": _same("bitwise_not"),
    "left_shift": _same("bitwise_left_shift"),
    "right_shift": _same("bitwise_right_shift"),
    "power": _same("pow"),
    "equal": _same("eq"),
    "vecdot": _vecdot,
    "matvec": _matvec,
    "vecmat": _vecmat,
    "divmod": _divmod,
    "ldexp": _ldexp,
    "modf": _modf,
    "spacing": _spacing,
    "bitwise_count": _bit_count,
}
"""By the name of a NumPy ufunc."""

_SAME_SPECIAL = """
erf erfc erfinv expit logit gammaln psi entr ndtr ndtri log_ndtr xlogy xlog1py zeta i0 i0e i1 i1e gammainc gammaincc
exp2 expm1 log1p erfcx
"""
SPECIAL: dict[str, Function] = {
    **{name: _special(name) for name in _SAME_SPECIAL.split()},
    "digamma": _special("digamma"),
    "j0": _special("bessel_j0"),
    "j1": _special("bessel_j1"),
    "y0": _special("bessel_y0"),
    "y1": _special("bessel_y1"),
    "k0": _special("modified_bessel_k0"),
    "k1": _special("modified_bessel_k1"),
    "k0e": _special("scaled_modified_bessel_k0"),
    "k1e": _special("scaled_modified_bessel_k1"),
    "loggamma": _special("gammaln"),
    "rel_entr": lambda x, y: aj.special.xlogy(x, x / y),
    "kl_div": lambda x, y: aj.special.xlogy(x, x / y) - x + y,
    "log_expit": lambda x: aj.nn.functional.logsigmoid(x),
    "huber": lambda delta, r: aj.where(aj.abs(r) <= delta, r * r / 2, delta * (aj.abs(r) - delta / 2)),
    "exprel": lambda x: aj.where(x == 0, aj.ones_like(x), aj.expm1(x) / aj.where(x == 0, aj.ones_like(x), x)),
    "cosdg": lambda x: aj.cos(aj.deg2rad(x)),
    "sindg": lambda x: aj.sin(aj.deg2rad(x)),
    "cbrt": _cbrt,
}
"""By the name of a ufunc of ``scipy.special``."""
