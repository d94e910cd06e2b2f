"""Elementwise functions: operators, comparison, logic, rounding, transcendental functions, selection.

Each takes Tensors, arrays or Python numbers, promotes as torch does and applies one op or a composite.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from autojit import ops
from autojit.core.dtypes import (
    HALVES,
    DType,
    bool_,
    complex128,
    float16,
    float32,
    float64,
    int64,
    promote_with_number,
    result_type,
)  # fmt: skip
from autojit.core.errors import DTypeError, UnsupportedDTypeError, UsageError
from autojit.core.number_ranges import in_range
from autojit.dispatch.declared import EXACT_OUT, declared
from autojit.dispatch.dispatch import apply, apply_single, number
from autojit.dispatch.kernels import in_one_pass
from autojit.dispatch.op_functions import binary, op_of, through_ops, unary
from autojit.dispatch.promotion import (
    NUMBERS,
    Number,
    Operand,
    as_operand,
    cast,
    converted,
    floating_together,
    refuse_numbers,
    together,
)  # fmt: skip
from autojit.functions.comparison import eq, ge, isinf, logical_and, lt, where
from autojit.functions.refused_dtypes import refuses
from autojit.history.lasting import with_lasting_constants
from autojit.history.op_node import rename_node
from autojit.ops.elementwise_arithmetic import keeps_digits
from autojit.ops.elementwise_exponential import PowNumber, power_of
from autojit.ops.sources import is_one
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

_LITERALS = (int, float)
_COMPLEX = builtins.complex  # ``complex`` is a function here
_IN_ALL_FORMS = declared(in_place="values", out=True, lists=True)
_WIDE = True  # on torch's list of what CUDA computes in float32 in mixed precision
_OF_TENSORS = declared(in_place="values", out=True, numbers="none")


def scaled(other: Operand, alpha: Number, beside: Operand | None = None) -> Any:
    """``alpha * other``, where torch's functions take a factor, which must fit; ``beside``: another operand."""
    if type(alpha) in _LITERALS and alpha == 1:  # a number of a step is 1 for this call only
        return other
    if type(alpha) is bool and not (_is_bool(other) and (beside is None or _is_bool(beside))):
        raise UsageError("Boolean alpha only supported for Boolean results.")
    if isinstance(other, Tensor) and isinstance(beside, Tensor) and type_of(other).dtype is not type_of(beside).dtype:
        other = cast(other, result_type([(type_of(t).dtype, type_of(t).ndim) for t in (beside, other)]))  # as in torch
    kind = type_of(other).dtype if isinstance(other, Tensor) else complex128
    if isinstance(alpha, _COMPLEX) and not any(is_complex_operand(x) for x in (other, beside)):
        raise UsageError("For non-complex input tensors, argument alpha must not be a complex number.")
    if isinstance(other, Tensor) and kind.category < 2 and isinstance(alpha, float):
        raise UsageError("For integral input tensors, argument alpha must not be a floating point number.")
    product = mul(other, number(alpha, kind) if kind.category < 2 and type(alpha) is int else alpha)
    return with_lasting_constants(product, other)


def is_complex_operand(x: Operand | None) -> bool:
    """Whether an operand, a tensor or a number, is complex."""
    return type_of(x).dtype.is_complex if isinstance(x, Tensor) else isinstance(x, _COMPLEX)


def times(x: Tensor, factor: Number) -> Tensor:
    """``x`` times a number, in the dtype of ``x``: of a fraction integers see the whole part, as in torch."""
    dtype = type_of(x).dtype
    if is_one(factor):
        return x
    fitting = number(factor, dtype) if dtype.category < 2 or isinstance(factor, _COMPLEX) else factor
    return with_lasting_constants(mul(x, fitting), x)


def _scaled_halves(x: Operand, y: Operand, alpha: Number) -> Tensor | None:
    """``x + alpha * y`` of halves of one dtype, rounded once; a literal ``alpha`` is a half too, as in torch."""
    if (type(alpha) in _LITERALS and alpha in (1, -1)) or not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return None
    dtype = type_of(x).dtype
    if dtype in HALVES and type(alpha) is float:
        alpha = float(np.asarray(alpha, dtype.numpy))
    return ops.add_scaled(x, y, alpha) if dtype in HALVES and dtype is type_of(y).dtype else None


def _is_bool(x: Operand) -> bool:
    return type_of(x).dtype is bool_ if isinstance(x, Tensor) else type(x) is bool


_ADD, _SUB, _MUL, _DIV = op_of("add"), op_of("sub"), op_of("mul"), op_of("div")


@declared(in_place="values", out=True, lists=True, numbers="both", wraps_around=True)
def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input + alpha * other``, elementwise; operands broadcast and are promoted."""
    if (once := _scaled_halves(input, other, alpha)) is not None:
        return rename_node(once, "AddBackward0")
    x, y = together(input, scaled(other, alpha, input), "add")
    return apply(_ADD, x, y)


@declared(aliases="subtract", in_place="values", out=True, lists=True, numbers="both", wraps_around=True)
def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input - alpha * other``, elementwise; bools are refused, as in torch."""
    if (once := _scaled_halves(input, other, -alpha)) is not None:
        return rename_node(once, "SubBackward0")
    x, y = together(input, scaled(other, alpha, input), "sub")
    is_cast = x is not input or y is not other
    if type_of(x).dtype is bool_ or (
        is_cast and any(isinstance(t, Tensor) and type_of(t).dtype is bool_ for t in (input, other))
    ):
        raise DTypeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported.",
            {"input": x, "other": y},
            "use the `^` or `logical_xor()` operator instead",
        )
    return apply(_SUB, x, y)


@declared(numbers="second", wraps_around=True)
def rsub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``other - alpha * input``."""
    if isinstance(input, NUMBERS):
        refuse_numbers("rsub", input, other)
    return sub(other, input, alpha=alpha)


def _wide(x: Operand, y: Operand) -> tuple[Any, Any, DType] | None:
    """Factors of halves and their dtype, if one is a number, or a tensor of rank 0, with more digits than halves have.

    It is not rounded, as in torch: the halves are float32 until the product is.
    """
    if isinstance(y, Tensor) and isinstance(x, Tensor):
        a, b = type_of(x), type_of(y)
        if a.dtype is b.dtype or a.dtype.kind != "float" != b.dtype.kind or bool(a.ndim) is bool(b.ndim):
            return None
        many, single = (a.dtype, b.dtype) if a.ndim else (b.dtype, a.dtype)
        is_mixed = many in HALVES and single in (float32, float64)
        return (cast(x, float32), cast(y, float32), many) if is_mixed else None
    if isinstance(x, Tensor):
        dtype = type_of(x).dtype
        return (cast(x, float32), y, dtype) if keeps_digits(dtype, y) else None
    if isinstance(y, Tensor):
        dtype = type_of(y).dtype
        return (x, cast(y, float32), dtype) if keeps_digits(dtype, x) else None
    return None


@declared(aliases="multiply", in_place="values", out=True, lists=True, numbers="both", wraps_around=True)
def mul(input: Operand, other: Operand) -> Tensor:
    """``input * other``, elementwise; operands broadcast and are promoted."""
    if (wide := _wide(input, other)) is not None:
        return rename_node(cast(mul(*wide[:2]), wide[2]), "MulBackward0")
    x, y = together(input, other, "mul")
    return apply(_MUL, x, y)


@declared(aliases="divide true_divide", in_place="values", out=True, lists=True, numbers="both", wraps_around=True)
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``: true division (integers give floats), or rounded to ``"trunc"`` or ``"floor"``."""
    if rounding_mode is None:
        if (wide := _wide(input, other)) is not None:
            return rename_node(cast(div(*wide[:2]), wide[2]), "DivBackward0")
        x, y = floating_together(input, other, "div")
        return apply(_DIV, x, y)
    if rounding_mode not in ("trunc", "floor"):
        raise UsageError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '" + str(rounding_mode) + "'"
        )
    x, y = _not_bools(input, other, "div")
    if rounding_mode == "trunc" and type_of(x).dtype in HALVES:
        rounded: Tensor = ops.trunc(apply(_DIV, x, y))  # of the quotient that is a half, as in torch
    else:
        rounded = ops.floor_divide(x, y) if rounding_mode == "floor" else ops.trunc_divide(x, y)
    return rename_node(rounded, "DivBackward2", rounding_mode=rounding_mode)


def _not_bools(input: Operand, other: Operand, name: str) -> tuple[Tensor, Tensor]:
    x, y = together(input, other, name)
    if type_of(x).dtype is bool_:
        raise UnsupportedDTypeError(f'"{name}" not implemented for {bool_}', {"input": x, "other": y})
    return x, y


@declared(in_place="values", out=True, numbers="both", wraps_around=True)
def floor_divide(input: Operand, other: Operand) -> Tensor:
    """The floor of the quotient."""
    return ops.floor_divide(*_not_bools(input, other, "floor_divide"))


@declared(in_place="values", out=True, wraps_around=True)
def remainder(input: Operand, other: Operand) -> Tensor:
    """Python's modulus: the sign of the divisor."""
    return ops.remainder(*_not_bools(input, other, "remainder"))


@declared(in_place="values", out=True, numbers="second", wraps_around=True)
def fmod(input: Operand, other: Operand) -> Tensor:
    """C's modulus: the sign of the dividend."""
    return ops.fmod(*_not_bools(input, other, "fmod"))


@declared(in_place="values", out=True, lists=True, wraps_around=True)
def pow(input: Operand, exponent: Operand) -> Tensor:
    """``input ** exponent``, elementwise. Integers to negative integer powers are refused, as in torch."""
    if state.autocast is not None and state.autocast.is_on_device(input, exponent):
        return state.autocast.full(pow, input, exponent)
    if isinstance(exponent, NUMBERS) and isinstance(input, Tensor) and not hasattr(type(exponent), "as_operand"):
        if type(exponent) is int and exponent == 2 and input._array is not None and input._array.dtype.kind == "f":
            return square_op(input)
        dtype = promote_with_number(type_of(input).dtype, exponent)
        if dtype.category < 2 and exponent < 0:  # type: ignore[operator]
            raise UsageError("Integers to negative integer powers are not allowed.")
        x = cast(input, dtype)
        in_range(exponent, dtype)  # else refused, as a base is not
        if exponent == 1:
            return mul(x, exponent)  # a copy of its dtype: True keeps bools
        if exponent == 0:
            return ops.eq(x, x) if dtype is bool_ else apply_single(PowNumber(0), x)
        is_kept = dtype.is_floating_point and state.grad_enabled and x.requires_grad  # by history: the base, no result
        return power_of(x, exponent) if is_kept else ops.pow(x, exponent)
    return ops.pow(*_not_bools(input, exponent, "pow"))


@declared(in_place="values", out=True)
def float_power(input: Operand, exponent: Operand) -> Tensor:
    """``pow`` in float64 (complex128 for complex operands)."""
    refuse_numbers("float_power", input, exponent, ("input", "exponent"))
    from_complex = any(type_of(as_operand(v)).dtype.is_complex for v in (input, exponent))
    wide = complex128 if from_complex else float64
    return pow(cast(as_operand(input), wide), cast(as_operand(exponent), wide))


neg_op = unary("neg", False, "negative")
exp = _IN_ALL_FORMS(unary("exp", True, "exponential", _WIDE))
exp2 = declared(in_place="values", out=True)(unary("exp2", True, "power of two"))
expm1 = _IN_ALL_FORMS(unary("expm1", True, "``exp(x) - 1``, accurate near 0", _WIDE))
log = _IN_ALL_FORMS(unary("log", True, "natural logarithm", _WIDE))
log2 = _IN_ALL_FORMS(unary("log2", True, "logarithm to base 2", _WIDE))
log10 = _IN_ALL_FORMS(unary("log10", True, "logarithm to base 10", _WIDE))
log1p = _IN_ALL_FORMS(unary("log1p", True, "``log(1 + x)``, accurate near 0", _WIDE))
sqrt = _IN_ALL_FORMS(unary("sqrt", True, "square root"))
rsqrt = _IN_ALL_FORMS(unary("rsqrt", True, "reciprocal square root", _WIDE))
sigmoid = _IN_ALL_FORMS(unary("sigmoid", True, "logistic function"))
sin = _IN_ALL_FORMS(unary("sin", True, "sine"))
cos = _IN_ALL_FORMS(unary("cos", True, "cosine"))
tan = _IN_ALL_FORMS(unary("tan", True, "tangent", _WIDE))
asin = declared(aliases="arcsin", in_place="values", out=True, lists=True)(unary("asin", True, "inverse sine", _WIDE))
acos = declared(aliases="arccos", in_place="values", out=True, lists=True)(unary("acos", True, "inverse cosine", _WIDE))
atan = declared(aliases="arctan", in_place="values", out=True, lists=True)(unary("atan", True, "inverse tangent"))
sinh = _IN_ALL_FORMS(unary("sinh", True, "hyperbolic sine", _WIDE))
cosh = _IN_ALL_FORMS(unary("cosh", True, "hyperbolic cosine", _WIDE))
tanh = _IN_ALL_FORMS(unary("tanh", True, "hyperbolic tangent"))
asinh = declared(aliases="arcsinh", in_place="values", out=True)(unary("asinh", True, "inverse hyperbolic sine"))
acosh = declared(aliases="arccosh", in_place="values", out=True)(unary("acosh", True, "inverse hyperbolic cosine"))
atanh = declared(aliases="arctanh", in_place="values", out=True)(unary("atanh", True, "inverse hyperbolic tangent"))
reciprocal = _IN_ALL_FORMS(unary("reciprocal", True, "reciprocal", _WIDE))
square_op = unary("square", False, "square")
abs = declared(aliases="absolute", in_place="values", out=True, lists=True, numpy="fabs")(
    unary("abs", False, "absolute value")
)
relu = declared(in_place="values")(unary("relu", False, "``max(x, 0)``"))
_real_logaddexp = binary("logaddexp", "``log(exp(x) + exp(y))`` without overflow")
atan2 = declared(aliases="arctan2", in_place="values", out=True, numbers="none")(
    binary("atan2", "angle of the point (y, x)", floats=True)
)
hypot = _OF_TENSORS(binary("hypot", "``sqrt(x*x + y*y)`` without overflow"))
copysign = declared(in_place="values", out=True, numbers="second")(
    binary("copysign", "``x`` with the sign of ``y``", floats=True)
)
nextafter = _OF_TENSORS(binary("nextafter", "next representable number after ``x`` towards ``y``"))


@declared(out=True, numbers="none")
def logaddexp(input: Operand, other: Operand) -> Tensor:
    """``log(exp(x) + exp(y))`` without overflow; operands broadcast and are promoted."""
    if any(isinstance(v, Tensor) and type_of(v).dtype.is_complex for v in (input, other)):
        x, y = together(input, other, "logaddexp")
        return _complex_logaddexp(x, y)
    return _real_logaddexp(input, other)


def _complex_logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """From the operand with the greater real part, whose imaginary part keeps its turns."""
    first = ge(real(x), real(y))
    large, small = where(first, x, y), where(first, y, x)
    found: Tensor = add(large, log1p(exp(sub(small, large))))
    ends = logical_and(eq(real(x), real(y)), isinf(real(x)))  # both infinitely small or large: no difference of them
    return where(ends, where(lt(real(x), 0), small, log(add(exp(large), exp(small)))), found)


@declared(aliases="negative", in_place="values", out=EXACT_OUT, lists=True)
def neg(input: Operand) -> Tensor:
    """Elementwise negative; bools are refused, as in torch."""
    t = as_operand(input, "neg")
    if type_of(t).dtype is bool_:
        raise DTypeError(
            "Negation, the `-` operator, on a bool tensor is not supported.",
            {"input": t},
            "use the `~` or `logical_not()` operator instead",
        )
    return neg_op(t)


def _new(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, with a copy where it gives its operand back: whole numbers have nothing to round."""

    @wraps(compute)
    def computed(x: Tensor, *parameters: Any) -> Tensor:
        found = compute(x, *parameters)
        return clone(x) if found is x else found

    return computed


_rounds = declared(in_place="values", out=EXACT_OUT, lists=True)
floor = _rounds(through_ops("floor", _new(ops.floor), refuses_bool=True))
ceil = _rounds(through_ops("ceil", _new(ops.ceil), refuses_bool=True))
trunc = declared(aliases="fix", in_place="values", out=EXACT_OUT, lists=True)(
    through_ops("trunc", _new(ops.trunc), refuses_bool=True)
)
sign_op = through_ops("sign", ops.sign)
angle = declared(out=True)(through_ops("angle", ops.angle, floats=True))
conj = declared()(through_ops("conj", ops.conj))
declared(name="conj_physical", in_place="values", out=EXACT_OUT)(conj)


@declared(in_place="values", out=EXACT_OUT, lists=True)
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign.

    Raises:
        RuntimeError: the operand is complex: ``sgn`` takes these.
    """
    t = as_operand(input, "sign")
    if type_of(t).dtype.is_complex:
        raise UnsupportedDTypeError("sign is not defined for complex tensors", {"input": t}, "use sgn: x / abs(x)")
    return sgn(t)


@declared(in_place="values", out=True)
def square(input: Tensor) -> Tensor:
    """The square of each element; bools become int64."""
    t = as_operand(input, "square")
    return square_op(cast(t, int64) if type_of(t).dtype is bool_ else t)


@declared(in_place="values", out=EXACT_OUT, numpy="sign")
def sgn(input: Operand) -> Tensor:
    """``x / abs(x)``, 0 at 0; the sign for real operands."""
    t = as_operand(input, "sgn")
    return clone(t) if type_of(t).dtype is bool_ else sign_op(t)


@declared()
def positive(input: Tensor) -> Tensor:
    """``input`` itself; bools are refused."""
    if type_of(input).dtype is bool_:
        raise UsageError("The `+` operator, on a bool tensor is not supported.")
    return input


@declared(method=False)
def real(input: Tensor) -> Tensor:
    """The real part; real operands are returned as they are."""
    return ops.real(input) if type_of(input).dtype.is_complex else input


@declared(method=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex operand."""
    if not type_of(input).dtype.is_complex:
        raise UsageError("imag is not implemented for tensors with non-complex dtypes.")
    return ops.imag(input)


@declared(method=False, out=EXACT_OUT, numbers="none")
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """A complex tensor of its parts, both float16, float32 or float64."""
    refuse_numbers("complex", real, imag, ("real", "imag"))
    parts = [type_of(v).dtype for v in (real, imag)]
    if any(dtype not in (float16, float32, float64) for dtype in parts):
        names = " and ".join(dtype.scalar_type for dtype in parts)
        raise UsageError(f"Expected both inputs to be Half, Float or Double tensors but got {names}")
    if parts[0] is not parts[1]:
        raise UsageError(
            f"Expected object of scalar type {parts[0].scalar_type} but got scalar type "
            f"{parts[1].scalar_type} for second argument"
        )
    if parts[0] is float16:  # complex32 is absent
        real, imag = cast(real, float32), cast(imag, float32)
    return ops.complex(real, imag)


@declared(method=False, out=True, numbers="none")
@refuses("bool int")
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """A complex tensor of absolute value and angle."""
    if state.autocast is not None:
        return state.autocast.full(polar, abs, angle)
    refuse_numbers("polar", abs, angle, ("abs", "angle"))
    if type_of(abs).dtype is not type_of(angle).dtype or not type_of(abs).dtype.is_floating_point:
        return complex(abs, angle)  # which says what is wrong
    return complex(mul(abs, cos(angle)), mul(abs, sin(angle)))


@declared(in_place="values", out=EXACT_OUT, lists=True, numpy="rint")
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest, halves to even."""
    x = as_operand(input, "round")
    if type_of(x).dtype.kind in ("bool", "complex"):
        raise UnsupportedDTypeError(f'"round" not implemented for {type_of(x).dtype}', {"input": x})
    return with_lasting_constants(_new(ops.round)(x, decimals), x) if decimals else _new(ops.round)(x)


@declared()
def isreal(input: Tensor) -> Tensor:
    """Whether an element's imaginary part is 0."""
    if type_of(input).dtype.is_complex:
        return eq(imag(input), 0)
    return eq(mul(input, 0) if type_of(input).dtype.category < 2 else number(0, bool_), 0).expand(input.shape)


@declared(in_place="values", out=True)
@refuses("complex")
def xlogy(input: Operand, other: Operand) -> Tensor:
    """``x * log(y)``, 0 where ``x`` is 0 (and ``y`` is not NaN)."""
    return in_one_pass("xlogy", (), *floating_together(input, other, "xlogy"), node="XlogyBackward0")


def clone(input: Tensor) -> Tensor:
    """A differentiable copy, its axes in memory as they are; what users call is `memory.clone`."""
    return rename_node(converted(input, type_of(input).dtype), "CloneBackward0")
