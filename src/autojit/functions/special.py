"""Special functions (the error function, the gamma family, steps) and linear algebra under torch's top-level names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from autojit import ops
from autojit.core.dtypes import bfloat16, float16, float32
from autojit.core.errors import ShapeError, UsageError
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.dispatch.kernels import in_one_pass
from autojit.dispatch.promotion import Operand, cast, floating, floating_together, together
from autojit.functions.autocast import in_full_precision, in_full_precision_on_devices, in_lower_precision
from autojit.functions.comparison import eq, where
from autojit.functions.elementwise import div, mul
from autojit.functions.elementwise import pow as power
from autojit.functions.matrix_forms import one_triangle
from autojit.functions.own_memory import own_memory
from autojit.functions.refused_dtypes import refuses
from autojit.tensor.tensor import Tensor, type_of

_IN_PLACE, _IN_ALL_FORMS = declared(in_place="values", out=True), declared(in_place="values", out=True, lists=True)


def _of_floats(name: str, compute: Callable[[Tensor], Tensor], doc: str) -> Callable[[Operand], Tensor]:
    def function(input: Operand) -> Tensor:
        return compute(floating(input, name))

    return refuses("complex")(named(function, name, doc))


erf = _IN_ALL_FORMS(_of_floats("erf", ops.erf, "The error function."))
erfc = _IN_ALL_FORMS(_of_floats("erfc", ops.erfc, "``1 - erf(x)``, accurate for large ``x``."))
erfinv = _IN_PLACE(in_full_precision_on_devices(_of_floats("erfinv", ops.erfinv, "The inverse of ``erf``.")))
lgamma = _IN_ALL_FORMS(_of_floats("lgamma", ops.lgamma, "Logarithm of the absolute value of the gamma function."))
digamma = _IN_PLACE(_of_floats("digamma", ops.digamma, "Derivative of ``lgamma``."))


@declared(in_place="values", out=True, numpy="sinc")
def sinc(input: Tensor) -> Tensor:
    """``sin(pi x) / (pi x)``, 1 at 0."""
    given = floating(input, "sinc")
    dtype = type_of(given).dtype
    if dtype.is_complex:
        angle = given * math.pi
        is_zero = eq(angle.detach(), 0)
        return where(is_zero, 1.0, div(angle.sin(), where(is_zero, 1.0, angle)))
    x = cast(given, float32) if dtype in (bfloat16, float16) else given
    return cast(in_one_pass("sinc", (), x, node="SincBackward0"), dtype)


@declared(in_place="values", out=True, numbers="none")
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2 ** other``, also where ``2 ** other`` alone is beyond the dtype's range."""
    x, exponent = floating_together(input, other, "ldexp")
    if type_of(x).dtype.is_complex:
        return mul(x, power(2.0, exponent))
    return in_one_pass("ldexp", (), x, exponent, node="LdexpBackward0")


@declared(out=True, numbers="none")
@refuses("complex")
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """``log2(2 ** x + 2 ** y)`` without overflow."""
    return ops.logaddexp2(*floating_together(input, other, "logaddexp2"))


def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of ``digamma``."""
    return polygamma(n, self)


@declared(method=_polygamma_method, in_place="values", out=True)
def polygamma(n: int, input: Operand) -> Tensor:
    """The n-th derivative of ``digamma``."""
    return ops.polygamma(n, floating(input, "polygamma"))


@declared(in_place="values", out=True, numbers="none")
@refuses("complex")
def igamma(input: Operand, other: Operand) -> Tensor:
    """The regularised lower incomplete gamma function ``P(input, other)``; differentiable in ``other``.

    Example:
        >>> import autojit as aj
        >>> aj.igamma(aj.tensor(1.0), aj.tensor(1.0))
        tensor(0.6321)
    """
    return ops.igamma(*floating_together(input, other, "igamma"))


@declared(in_place="values", out=True, numbers="none")
@refuses("complex")
def igammac(input: Operand, other: Operand) -> Tensor:
    """The regularised upper incomplete gamma function ``Q(input, other) = 1 - P``; differentiable in ``other``."""
    return ops.igammac(*floating_together(input, other, "igammac"))


@declared()
def det(input: Tensor) -> Tensor:
    """The determinant of square matrices."""
    return ops.det(input)


@declared()
@refuses("bool int")
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant."""
    return ops.logdet(input)


class Slogdet(NamedTuple):
    """Sign and log of the absolute value of a determinant."""

    sign: Tensor
    logabsdet: Tensor


@declared()
def slogdet(input: Tensor) -> Slogdet:
    """(sign, log of the absolute value) of the determinant."""
    if type_of(input).dtype.category < 2:
        raise UsageError(
            f"linalg.slogdet: Expected a floating point or complex tensor as input. Got {type_of(input).dtype}",
            {"input": input},
            "convert: x.float()",
        )
    return Slogdet(*ops.slogdet(input))


@declared(out=True)
@in_full_precision
def inverse(input: Tensor) -> Tensor:
    """The inverse of square matrices."""
    return ops.inv(input)


@declared()
@refuses("bool int")
@in_full_precision
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose inverse."""
    return ops.pinv(input, rcond)


@declared(out=True)
@refuses("bool int")
@in_full_precision
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The triangular factor of Hermitian positive definite matrices."""
    return ops.cholesky(one_triangle(input, upper), upper)


@declared(out=True)
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """Solve with a Cholesky factor."""
    return ops.cholesky_solve(input, input2, upper)


@declared(out=True)
@refuses("bool int")
def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse from a Cholesky factor."""
    if type_of(input).ndim < 2:
        raise ShapeError("cholesky_inverse: The input tensor A must have at least 2 dimensions.", {"input": input})
    return ops.cholesky_inverse(input, upper)


@declared(out=True)
@own_memory
@in_lower_precision
def matrix_power(input: Tensor, n: int) -> Tensor:
    """A square matrix multiplied ``n`` times with itself."""
    return ops.matrix_power(input, n)


@declared(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector as columns."""
    if type_of(x).ndim != 1:
        raise UsageError("x must be a one-dimensional tensor.", {"x": x})
    if N is not None and N < 0:
        raise UsageError("N must be non-negative.", {"N": N})
    whole = type_of(x).dtype.category < 2  # products of whole numbers are of int64
    return ops.vander(x.long() if whole else x, type_of(x).size if N is None else N, increasing)


@declared(in_place="values", out=True, numbers="none")
@refuses("complex")
def heaviside(input: Operand, values: Operand) -> Tensor:
    """0 below 0, 1 above, ``values`` at 0."""
    x, y = together(input, values, "heaviside")
    if len({type_of(t).dtype for t in (input, values) if isinstance(t, Tensor)}) == 2:
        raise UsageError("heaviside is not yet implemented for tensors with different dtypes.", {"values": values})
    return ops.heaviside(x, y)
