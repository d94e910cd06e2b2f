"""The error function and its relatives, and the gamma function's logarithm and its derivatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.core.errors import ArgumentError
from autojit.core.records import record
from autojit.ir.op import Ndarray, O, bind
from autojit.ops.elementwise_arithmetic import mul, neg, square
from autojit.ops.elementwise_base import Slope, Ufunc, sample_inputs, unary
from autojit.ops.elementwise_exponential import exp
from autojit.ops.samples import Samples

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Digamma", "Erf", "Erfc", "Erfinv", "Lgamma", "Polygamma", "digamma", "erf", "erfc", "erfinv", "lgamma",
    "polygamma",
]  # fmt: skip

_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)


@functools.cache
def _reference() -> Any:
    """``special_reference``, imported when a function of it is first evaluated."""
    from autojit.ops import special_reference

    return special_reference


_FEW = 1024  # numbers: erf of these takes 44 us one by one, 83 by arrays; of 64 3 and 66


def _rounded(name: str, of_number: Callable[[float], float] | None = None) -> Ufunc:
    """A float64 function of ``special_reference``, its result rounded to the operand's dtype.

    ``of_number`` is the C library's function. A few numbers of a narrower dtype go through it, which is faster; both
    are exact to an ulp of float64, so they round to the same number.
    """

    def compute(x: Ndarray) -> Ndarray:
        if of_number is not None and x.size <= _FEW and x.dtype.itemsize < 8:
            return np.fromiter(map(of_number, x.ravel().tolist()), x.dtype, x.size).reshape(x.shape)
        return np.asarray(getattr(_reference(), name)(x)).astype(x.dtype)

    return staticmethod(compute)


class Special(Slope, abstract=True):
    """A function of real floats."""

    accepts: ClassVar[tuple[str, ...]] = ("float",)


class Erf(Special):
    """The error function."""

    ufunc = _rounded("erf", math.erf)

    def slope(self, x: O, y: O) -> O:
        return mul(exp(neg(square(x))), _TWO_OVER_ROOT_PI)


class Erfc(Special):
    """``1 - erf(x)``, accurate in the tail."""

    ufunc = _rounded("erfc", math.erfc)

    def slope(self, x: O, y: O) -> O:
        return mul(exp(neg(square(x))), -_TWO_OVER_ROOT_PI)


class Erfinv(Special):
    """The inverse of ``erf``; NaN outside [-1, 1]."""

    ufunc = _rounded("erfinv")
    domain: ClassVar[tuple[float, float]] = (-0.8, 0.8)

    def slope(self, x: O, y: O) -> O:
        return mul(exp(square(erfinv(x))), 1 / _TWO_OVER_ROOT_PI)  # of ``x``: the result may be written to, as in torch


class Lgamma(Special):
    """``log |gamma(x)|``."""

    ufunc = _rounded("lgamma")
    domain: ClassVar[tuple[float, float]] = (0.3, 4.0)

    def slope(self, x: O, y: O) -> O:
        return digamma(x)


class Digamma(Special):
    """The derivative of ``lgamma``."""

    ufunc = _rounded("digamma")
    domain: ClassVar[tuple[float, float]] = (0.3, 4.0)

    def slope(self, x: O, y: O) -> O:
        return polygamma(1, x)


@record
class Polygamma(Special):
    """The ``n``-th derivative of ``digamma``, n at least 1."""

    n: int

    domain: ClassVar[tuple[float, float]] = (0.6, 4.0)

    def eager(self, *arrays: Ndarray) -> Any:
        (x,) = arrays
        return np.asarray(_reference().polygamma(self.n, x)).astype(x.dtype)

    def slope(self, x: O, y: O) -> O:
        return polygamma(self.n + 1, x)

    def lower(self, emit: Emitter[S], x: S) -> S:
        return emit.polygamma(self.n, x)

    @classmethod
    def samples(cls, dtype: DType) -> Samples:
        if dtype.kind not in cls.accepts:
            return []
        return [(cls(n), arrays) for n in (1, 3) for arrays in sample_inputs(1, cls.domain, dtype)]


erf = unary(Erf())
erfc = unary(Erfc())
erfinv = unary(Erfinv())
lgamma = unary(Lgamma())
digamma = unary(Digamma())


def polygamma(n: int, x: O) -> O:
    """The ``n``-th derivative of ``digamma``; ``digamma`` itself for n = 0.

    Raises:
        ArgumentError: ``n`` is negative.
    """
    if n < 0:
        raise ArgumentError("polygamma(n, x) does not support negative n.", {"n": n})
    return digamma(x) if n == 0 else bind(Polygamma(n), x)
