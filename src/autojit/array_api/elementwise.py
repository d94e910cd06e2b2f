"""Elementwise functions of the standard: NumPy's ufuncs over tensors, under the standard's names and promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit.array_api.promotion import computed, together
from autojit.core.wrapping import named
from autojit.interop.ufunc_calls import call
from autojit.tensor import Tensor

__all__ = ["clip", "imag", "real", "round"]

_UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor isfinite isinf isnan log log1p
log2 log10 logical_not negative positive reciprocal sign signbit sin sinh square sqrt tan tanh trunc
"""
_BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide
greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply
nextafter not_equal pow remainder subtract
"""


def _unary(name: str) -> Callable[..., Tensor]:
    ufunc = getattr(np, name)

    def function(x: Tensor, /) -> Tensor:
        found: Tensor = call(ufunc, "__call__", (x,), {})
        return found

    return named(function, name, f"Elementwise ``{name}``, as the array API standard defines it.")


def _binary(name: str) -> Callable[..., Tensor]:
    ufunc = getattr(np, name)

    def function(x1: Any, x2: Any, /) -> Tensor:
        found: Tensor = call(ufunc, "__call__", tuple(together(x1, x2)), {})
        return found

    return named(function, name, f"Elementwise ``{name}`` of two operands, one of which may be a Python number.")


ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    **{name: _unary(name) for name in _UNARY.split()},
    **{name: _binary(name) for name in _BINARY.split()},
}


def _sign(x: Tensor, /) -> Tensor:
    """Elementwise ``sign``, which is not a number where ``x`` is none."""
    found = aj.sgn(x)
    if x.dtype.is_complex:
        return aj.where(x.isnan(), complex(np.nan, np.nan), found)
    return aj.where(x.isnan(), x, found) if x.dtype.is_floating_point else found


def _remainder(x1: Any, x2: Any, /) -> Tensor:
    """Elementwise ``remainder``, of the sign of ``x2`` where it is zero, too."""
    x, y = together(x1, x2)
    found: Tensor = call(np.remainder, "__call__", (x, y), {})
    return aj.where(found == 0, aj.copysign(found, y), found) if found.dtype.is_floating_point else found


def _floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """Elementwise ``floor_divide``; infinity over a finite number is infinite."""
    x, y = together(x1, x2)
    found: Tensor = call(np.floor_divide, "__call__", (x, y), {})
    if not found.dtype.is_floating_point:
        return found
    quotient: Tensor = call(np.divide, "__call__", (x, y), {})
    return aj.where(aj.isinf(quotient) & aj.isnan(found), quotient, found)


def _expm1(x: Tensor, /) -> Tensor:
    """Elementwise ``expm1``; of complex numbers with an infinite part, what C's ``cexp`` has less 1."""
    found: Tensor = call(np.expm1, "__call__", (x,), {})
    if not x.dtype.is_complex:
        return found
    a, b = aj.real(x), aj.imag(x)
    odd = ~aj.isfinite(b)
    real, imaginary = aj.real(found), aj.imag(found)
    real = aj.where(a == -np.inf, -1.0, aj.where(odd & (a == np.inf), np.inf, real))
    imaginary = aj.where(odd & (a == -np.inf), 0.0, aj.where((b == 0) & ~aj.isfinite(a), b, imaginary))
    return aj.complex(real, imaginary)


for _own in (_sign, _floor_divide, _expm1, _remainder):
    _name = _own.__name__.removeprefix("_")
    ELEMENTWISE[_name] = named(_own, _name, _own.__doc__)


def real(x: Tensor, /) -> Tensor:
    """The real parts."""
    return aj.real(x)


def imag(x: Tensor, /) -> Tensor:
    """The imaginary parts.

    Raises:
        TypeError: the dtype is not complex.
    """
    if not x.dtype.is_complex:
        raise TypeError(f"imag: expected a complex dtype, got {x.dtype}")
    return aj.imag(x)


def round(x: Tensor, /) -> Tensor:
    """The nearest whole numbers, halves to even ones."""
    if x.dtype.is_complex:
        return aj.complex(aj.round(aj.real(x)), aj.round(aj.imag(x)))
    return computed(np.round, x)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Elements not below ``min`` and not above ``max``, in the dtype of ``x``."""
    given = {
        name: bound.to(x.dtype) if isinstance(bound, Tensor) else bound
        for name, bound in (("a_min", min), ("a_max", max))
        if bound is not None
    }
    if not given:
        return x.clone()
    return computed(np.clip, x, **given).to(x.dtype)
