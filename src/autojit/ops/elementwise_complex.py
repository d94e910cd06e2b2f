"""Magnitude, sign and angle; the parts of complex numbers.

Complex derivatives follow torch: the cotangent of ``x`` is the conjugate Wirtinger derivative, so a real-linear map
``dy = Re(conj(a) dx)`` has the VJP ``x_bar = a * y_bar``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType
from autojit.ir.op import Ndarray, O, Op, Operands, bind, linear_jvp
from autojit.ops.elementwise_arithmetic import cast, guarded_div, mul, sub, where
from autojit.ops.elementwise_base import Binary, Pointwise, binary, is_complex, unary
from autojit.ops.elementwise_logic import lt, ne
from autojit.ops.sources import literal, zeros_like

if TYPE_CHECKING:
    from autojit.ir.emitter import Emitter, S

__all__ = [
    "Abs", "Angle", "Complex", "Conj", "Imag", "Real", "Sign", "abs", "angle", "complex", "conj", "imag", "real",
    "sign",
]  # fmt: skip


class Conj(Pointwise):
    """The complex conjugate."""

    ufunc = np.conjugate
    accepts: ClassVar[tuple[str, ...]] = ("complex",)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: conj(y_bar),)

    jvp = linear_jvp


class Part(Pointwise, abstract=True):
    """The real or the imaginary part: a view of the complex numbers' memory."""

    is_view: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("complex",)

    def result_dtype(self, dtype: DType) -> DType:
        return dtype.to_real()

    jvp = linear_jvp

    def shifted(self, extent: int) -> Op:
        """The same op on an operand with a leading batch axis."""
        return self


class Real(Part):
    """The real part."""

    ufunc = staticmethod(lambda x: x.real)

    def unview(self, base: O, piece: O) -> O:
        """The base with another real part."""
        return complex(piece, imag(base))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: cast(y_bar, x.spec.dtype),)


class Imag(Part):
    """The imaginary part."""

    ufunc = staticmethod(lambda x: x.imag)

    def unview(self, base: O, piece: O) -> O:
        """The base with another imaginary part."""
        return complex(real(base), piece)

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return (lambda: complex(literal(y_bar, 0), y_bar),)


def _complex(re: Any, im: Any) -> Any:
    shape = np.broadcast_shapes(re.shape, im.shape)
    made = np.empty(shape, np.complex64 if re.dtype == np.float32 else np.complex128)
    made.real, made.imag = re, im  # re + 1j * im would turn an infinite part into NaN
    return made


class Complex(Binary):
    """``re + i im`` of two float32 or float64 operands."""

    operand_names: ClassVar[tuple[str, ...]] = ("real", "imag")

    accepts: ClassVar[tuple[str, ...]] = ("float",)
    ufunc = staticmethod(_complex)

    def result_dtype(self, dtype: DType) -> DType:
        return dtype.to_complex()

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        return lambda: real(y_bar), lambda: imag(y_bar)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        re_dot, im_dot = tangents
        if re_dot is None and im_dot is None:
            return None
        present = im_dot if re_dot is None else re_dot
        zero = literal(present, 0)
        return complex(zero if re_dot is None else re_dot, zero if im_dot is None else im_dot)

    def lower(self, emit: Emitter[S], re: S, im: S) -> S:
        return emit.paired(re, im)

    @classmethod
    def samples(cls, dtype: DType) -> Any:
        return super().samples(dtype) if dtype.size_bytes >= 4 else []


def _sign(x: Ndarray) -> Any:
    found = np.sign(x)
    if x.dtype.kind in "biuc":
        return found
    return np.where(np.isnan(found) | (found == 0), found.dtype.type(0), found)  # bfloat16 is of another kind than "f"


def _except_at_zero(x: O, change: O, divisor: O) -> O:
    """``change / divisor``, and 0 where ``x`` is 0: what has no direction does not turn, as in torch."""
    is_zero = bind(Op.registry["eq"](), x, literal(x, 0))
    return where(is_zero, 0, guarded_div(change, where(is_zero, 1, divisor)))


class Sign(Pointwise):
    """-1, 0 or 1; 0 of NaN, as in torch. For complex numbers ``x / |x|``, and 0 at 0."""

    ufunc = staticmethod(_sign)
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: self._turn(x, result, y_bar),) if is_complex(x) else (None,)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        return None if x_dot is None or not is_complex(x) else self._turn(x, result, x_dot)

    def _turn(self, x: O, result: O, change: O) -> O:
        """The part of a change across the direction of ``x``, over ``|x|``: a self-adjoint map."""
        along = cast(real(mul(conj(result), change)), x.spec.dtype)
        return _except_at_zero(x, sub(change, mul(result, along)), cast(abs(x), x.spec.dtype))


class Abs(Pointwise):
    """The magnitude; its derivative at 0 is 0."""

    ufunc = np.absolute
    accepts: ClassVar[tuple[str, ...]] = ("uint", "int", "float", "complex")

    def result_dtype(self, dtype: DType) -> DType:
        return dtype.to_real()

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: mul(cast(y_bar, x.spec.dtype), sign(x)),)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        if x_dot is None:
            return None
        return real(mul(conj(sign(x)), x_dot))


class Angle(Pointwise):
    """The argument of complex numbers, in radians."""

    ufunc = np.angle
    accepts: ClassVar[tuple[str, ...]] = ("complex",)

    def result_dtype(self, dtype: DType) -> DType:
        return dtype.to_real()

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        (x,) = primals
        return (lambda: _except_at_zero(x, complex(literal(y_bar, 0), y_bar), conj(x)),)  # i y_bar x / |x|**2

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        (x,), (x_dot,) = primals, tangents
        return None if x_dot is None else imag(_except_at_zero(x, x_dot, x))


ANGLE = Angle()

conj = unary(Conj(), is_complex)
real = unary(Real(), is_complex)
imag = unary(Imag(), is_complex, zeros_like)
complex = binary(Complex())
sign = unary(Sign())
abs = unary(Abs())


def angle(x: O) -> O:
    """The argument in radians; for reals pi below 0, else 0, and NaN for NaN."""
    if is_complex(x):
        return bind(ANGLE, x)
    return where(lt(x, 0), math.pi, where(ne(x, x), x, 0))
