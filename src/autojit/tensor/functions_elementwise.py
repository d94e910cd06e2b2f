"""Elementwise functions: operators, comparison, logic, rounding, transcendental functions, selection.

Each takes Tensors, arrays or Python numbers, promotes as torch does and applies one op or a composite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from autojit import ops
from autojit.core.dtypes import bool_, complex128, float16, float32, float64, int64, promote_with_number
from autojit.core.errors import ArgumentError, DTypeError, UnsupportedDTypeError, UsageError
from autojit.ir.op import Op
from autojit.ops.elementwise_exponential import PowNumber, power_of
from autojit.tensor.dispatch import apply, apply_single, in_range, number
from autojit.tensor.kernels import in_one_pass
from autojit.tensor.op_node import rename_node
from autojit.tensor.promotion import (
    NUMBERS,
    all_together,
    as_operand,
    cast,
    converted,
    floating,
    floating_together,
    refuse_numbers,
    together,
)  # fmt: skip
from autojit.tensor.state import state
from autojit.tensor.tensor import Tensor, type_of

_LITERALS = (int, float)
WHERE = Op.registry["where"]()

Unary = Callable[[Any], Tensor]
Binary = Callable[[Any, Any], Tensor]


def _op(name: str) -> Op:
    return Op.registry[name]()


_ALL_KINDS = ("bool", "uint", "int", "float", "complex")


def _unary(op_name: str, name: str, floats: bool, doc: str) -> Unary:
    op = _op(op_name)
    accepted = _ALL_KINDS if floats else getattr(op, "accepts", _ALL_KINDS)

    def plain(input: Any) -> Tensor:
        return apply_single(op, floating(input, name) if floats else as_operand(input, name))

    def picky(input: Any) -> Tensor:
        x = as_operand(input, name)
        if type_of(x).dtype.kind not in accepted:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {type_of(x).dtype}', {"input": x})
        return apply_single(op, x)

    function = plain if accepted == _ALL_KINDS else picky

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {doc}, in the operand's shape" + (
        "; integers become the default float." if floats else " and dtype."
    )
    return function


def _binary(op_name: str, name: str, doc: str, floats: bool = False) -> Binary:
    op = _op(op_name)
    bring = floating_together if floats else together
    accepted = getattr(op, "accepts", _ALL_KINDS)
    is_picky = accepted != _ALL_KINDS  # NumPy takes more, or converts

    def function(input: Any, other: Any) -> Tensor:
        x, y = bring(input, other, name)
        if is_picky and type_of(x).dtype.kind not in accepted:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {type_of(x).dtype}', {"input": x, "other": y})
        found: Tensor = apply(op, x, y)
        return found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {doc}; operands broadcast and are promoted."
    return function


def scaled(other: Any, alpha: Any, beside: Any = None) -> Any:
    """``alpha * other``, where torch's functions take a factor, which must fit; ``beside``: another operand."""
    if type(alpha) in _LITERALS and alpha == 1:  # a number of a step is 1 for this call only
        return other
    kind = type_of(other).dtype if isinstance(other, Tensor) else complex128
    if kind.category < 2 and isinstance(alpha, float):
        if isinstance(beside, Tensor) and type_of(beside).dtype.category >= 2:
            return mul(other.to(type_of(beside).dtype), alpha)
        raise UsageError("For integral input tensors, argument alpha must not be a floating point number.")
    return mul(other, number(alpha, kind) if kind.category == 1 and type(alpha) is int else alpha)


_ADD, _SUB, _MUL, _DIV = _op("add"), _op("sub"), _op("mul"), _op("div")


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``, elementwise; operands broadcast and are promoted."""
    x, y = together(input, scaled(other, alpha, input), "add")
    return apply(_ADD, x, y)


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``, elementwise; bools are refused, as in torch."""
    x, y = together(input, scaled(other, alpha, input), "sub")
    if type_of(x).dtype is bool_ or ((x is not input or y is not other) and _is_bool(input, other)):
        raise DTypeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported.",
            {"input": x, "other": y},
            "use the `^` or `logical_xor()` operator instead",
        )
    found: Tensor = apply(_SUB, x, y)
    return found


def _is_bool(*operands: Any) -> bool:
    """Whether a tensor of bools is among the operands, as they were given."""
    return any(isinstance(t, Tensor) and type_of(t).dtype is bool_ for t in operands)


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``."""
    if isinstance(input, NUMBERS):
        refuse_numbers("rsub", input, other)
    return sub(other, input, alpha=alpha)


def mul(input: Any, other: Any) -> Tensor:
    """``input * other``, elementwise; operands broadcast and are promoted."""
    x, y = together(input, other, "mul")
    found: Tensor = apply(_MUL, x, y)
    return found


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``: true division (integers give floats), or rounded to ``"trunc"`` or ``"floor"``."""
    if rounding_mode is None:
        x, y = floating_together(input, other, "div")
        found: Tensor = apply(_DIV, x, y)
        return found
    if rounding_mode not in ("trunc", "floor"):
        raise UsageError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '" + str(rounding_mode) + "'"
        )
    x, y = _not_bools(input, other, "div")
    rounded: Tensor = ops.floor_divide(x, y) if rounding_mode == "floor" else ops.trunc_divide(x, y)
    return rename_node(rounded, "DivBackward2", rounding_mode=rounding_mode)


def _not_bools(input: Any, other: Any, name: str) -> tuple[Tensor, Tensor]:
    x, y = together(input, other, name)
    if type_of(x).dtype is bool_:
        raise UnsupportedDTypeError(f'"{name}" not implemented for {bool_}', {"input": x, "other": y})
    return x, y


def floor_divide(input: Any, other: Any) -> Tensor:
    """The floor of the quotient."""
    x, y = _not_bools(input, other, "floor_divide")
    found: Tensor = ops.floor_divide(x, y)
    return found


def remainder(input: Any, other: Any) -> Tensor:
    """Python's modulus: the sign of the divisor."""
    x, y = _not_bools(input, other, "remainder")
    found: Tensor = ops.remainder(x, y)
    return found


def fmod(input: Any, other: Any) -> Tensor:
    """C's modulus: the sign of the dividend."""
    x, y = _not_bools(input, other, "fmod")
    found: Tensor = ops.fmod(x, y)
    return found


def pow(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent``, elementwise. Integers to negative integer powers are refused, as in torch."""
    if isinstance(exponent, NUMBERS) and isinstance(input, Tensor) and not hasattr(type(exponent), "as_operand"):
        if type(exponent) is int and exponent == 2 and input._array is not None and input._array.dtype.kind == "f":
            return square_op(input)
        dtype = promote_with_number(type_of(input).dtype, exponent)
        if dtype.category < 2 and exponent < 0:  # type: ignore[operator]
            raise UsageError("Integers to negative integer powers are not allowed.")
        x = cast(input, dtype)
        in_range(exponent, dtype)  # else refused, as a base is not
        if exponent == 1:
            return mul(x, 1)
        if exponent == 0:
            return apply_single(PowNumber(0), x)
        is_kept = dtype.is_floating_point and state.grad_enabled and x.requires_grad  # by history: the base, no result
        return power_of(x, exponent) if is_kept else ops.pow(x, exponent)
    x, y = _not_bools(input, exponent, "pow")
    power: Tensor = ops.pow(x, y)
    return power


def float_power(input: Any, exponent: Any) -> Tensor:
    """``pow`` in float64 (complex128 for complex operands)."""
    refuse_numbers("float_power", input, exponent, ("input", "exponent"))
    from_complex = any(isinstance(v, Tensor) and type_of(v).dtype.is_complex for v in (input, exponent))
    wide = complex128 if from_complex else float64
    return pow(cast(as_operand(input), wide), cast(as_operand(exponent), wide))


neg_op = _unary("neg", "neg", False, "negative")
exp = _unary("exp", "exp", True, "exponential")
exp2 = _unary("exp2", "exp2", True, "power of two")
expm1 = _unary("expm1", "expm1", True, "``exp(x) - 1``, accurate near 0")
log = _unary("log", "log", True, "natural logarithm")
log2 = _unary("log2", "log2", True, "logarithm to base 2")
log10 = _unary("log10", "log10", True, "logarithm to base 10")
log1p = _unary("log1p", "log1p", True, "``log(1 + x)``, accurate near 0")
sqrt = _unary("sqrt", "sqrt", True, "square root")
rsqrt = _unary("rsqrt", "rsqrt", True, "reciprocal square root")
sigmoid = _unary("sigmoid", "sigmoid", True, "logistic function")
sin = _unary("sin", "sin", True, "sine")
cos = _unary("cos", "cos", True, "cosine")
tan = _unary("tan", "tan", True, "tangent")
asin = _unary("asin", "asin", True, "inverse sine")
acos = _unary("acos", "acos", True, "inverse cosine")
atan = _unary("atan", "atan", True, "inverse tangent")
sinh = _unary("sinh", "sinh", True, "hyperbolic sine")
cosh = _unary("cosh", "cosh", True, "hyperbolic cosine")
tanh = _unary("tanh", "tanh", True, "hyperbolic tangent")
asinh = _unary("asinh", "asinh", True, "inverse hyperbolic sine")
acosh = _unary("acosh", "acosh", True, "inverse hyperbolic cosine")
atanh = _unary("atanh", "atanh", True, "inverse hyperbolic tangent")
reciprocal = _unary("reciprocal", "reciprocal", True, "reciprocal")
square_op = _unary("square", "square", False, "square")
abs = _unary("abs", "abs", False, "absolute value")
relu = _unary("relu", "relu", False, "``max(x, 0)``")
_real_logaddexp = _binary("logaddexp", "logaddexp", "``log(exp(x) + exp(y))`` without overflow")
atan2 = _binary("atan2", "atan2", "angle of the point (y, x)", floats=True)
hypot = _binary("hypot", "hypot", "``sqrt(x*x + y*y)`` without overflow")
maximum = _binary("maximum", "maximum", "larger element; NaN wins")
minimum = _binary("minimum", "minimum", "smaller element; NaN wins")
fmax = _binary("fmax", "fmax", "larger element; NaN loses")
fmin = _binary("fmin", "fmin", "smaller element; NaN loses")
copysign = _binary("copysign", "copysign", "``x`` with the sign of ``y``", floats=True)
nextafter = _binary("nextafter", "nextafter", "next representable number after ``x`` towards ``y``")
eq = _binary("eq", "eq", "equality")
ne = _binary("ne", "ne", "inequality")
lt = _binary("lt", "lt", "``<``")
le = _binary("le", "le", "``<=``")
gt = _binary("gt", "gt", "``>``")
ge = _binary("ge", "ge", "``>=``")
bitwise_and = _binary("bitwise_and", "bitwise_and", "bitwise and")
bitwise_or = _binary("bitwise_or", "bitwise_or", "bitwise or")
bitwise_xor = _binary("bitwise_xor", "bitwise_xor", "bitwise exclusive or")
bitwise_left_shift = _binary("shift_left", "bitwise_left_shift", "shift to the left")
bitwise_right_shift = _binary("shift_right", "bitwise_right_shift", "arithmetic shift to the right")


def logaddexp(input: Any, other: Any) -> Tensor:
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


def neg(input: Any) -> Tensor:
    """Elementwise negative; bools are refused, as in torch."""
    t = as_operand(input, "neg")
    if type_of(t).dtype is bool_:
        raise DTypeError(
            "Negation, the `-` operator, on a bool tensor is not supported.",
            {"input": t},
            "use the `~` or `logical_not()` operator instead",
        )
    return neg_op(t)


def _through_ops(name: str, function: Callable[..., Any], floats: bool = False, refuses_bool: bool = False) -> Unary:
    """A unary function whose composite lives in ``ops``."""

    def wrapper(input: Any) -> Tensor:
        x = floating(input, name) if floats else as_operand(input, name)
        if refuses_bool and type_of(x).dtype is bool_:
            raise UnsupportedDTypeError(f'"{name}" not implemented for {bool_}', {"input": x})
        found: Tensor = function(x)
        return found

    wrapper.__name__ = wrapper.__qualname__ = name
    wrapper.__doc__ = function.__doc__
    return wrapper


bitwise_not = _through_ops("bitwise_not", ops.bitwise_not)
isnan = _through_ops("isnan", ops.isnan)
isinf = _through_ops("isinf", ops.isinf)
isfinite = _through_ops("isfinite", ops.isfinite)
signbit = _through_ops("signbit", ops.signbit)
floor = _through_ops("floor", ops.floor, refuses_bool=True)
ceil = _through_ops("ceil", ops.ceil, refuses_bool=True)
trunc = _through_ops("trunc", ops.trunc, refuses_bool=True)
sign_op = _through_ops("sign", ops.sign)
angle = _through_ops("angle", ops.angle, floats=True)
conj = _through_ops("conj", ops.conj)
logical_not = _through_ops("logical_not", ops.logical_not)


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign.

    Raises:
        RuntimeError: the operand is complex: ``sgn`` takes these.
    """
    t = as_operand(input, "sign")
    if type_of(t).dtype.is_complex:
        raise UnsupportedDTypeError("sign is not defined for complex tensors", {"input": t}, "use sgn: x / abs(x)")
    return sgn(t)


def square(input: Tensor) -> Tensor:
    """The square of each element; bools become int64."""
    t = as_operand(input, "square")
    return square_op(cast(t, int64) if type_of(t).dtype is bool_ else t)


def sgn(input: Any) -> Tensor:
    """``x / abs(x)``, 0 at 0; the sign for real operands."""
    t = as_operand(input, "sgn")
    return clone(t) if type_of(t).dtype is bool_ else sign_op(t)


def positive(input: Tensor) -> Tensor:
    """``input`` itself; bools are refused."""
    if type_of(input).dtype is bool_:
        raise UsageError("The `+` operator, on a bool tensor is not supported.")
    return input


def real(input: Tensor) -> Tensor:
    """The real part; real operands are returned as they are."""
    return ops.real(input) if type_of(input).dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex operand."""
    if not type_of(input).dtype.is_complex:
        raise UsageError("imag is not implemented for tensors with non-complex dtypes.")
    return ops.imag(input)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """A complex tensor of its parts, both float16, float32 or float64."""
    refuse_numbers("complex", real, imag, ("real", "imag"))
    parts = [type_of(v).dtype for v in (real, imag)]
    if any(dtype not in (float16, float32, float64) for dtype in parts):
        names = " and ".join(dtype.name for dtype in parts)
        raise UsageError(f"Expected both inputs to be Half, Float or Double tensors but got {names}")
    if parts[0] is not parts[1]:
        raise UsageError(
            f"Expected object of scalar type {parts[0].name} but got scalar type {parts[1].name} for second argument"
        )
    return ops.complex(real, imag)


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """A complex tensor of absolute value and angle."""
    if state.autocast is not None:
        return state.autocast.full(polar, abs, angle)
    refuse_numbers("polar", abs, angle, ("abs", "angle"))
    if type_of(abs).dtype is not type_of(angle).dtype or not type_of(abs).dtype.is_floating_point:
        return complex(abs, angle)  # which says what is wrong
    return complex(mul(abs, cos(angle)), mul(abs, sin(angle)))


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """To the nearest, halves to even."""
    x = as_operand(input, "round")
    if type_of(x).dtype.kind in ("bool", "complex"):
        raise UnsupportedDTypeError(f'"round" not implemented for {type_of(x).dtype}', {"input": x})
    return ops.round(x, decimals)


def isposinf(input: Tensor) -> Tensor:
    """Whether an element is plus infinity."""
    return eq(input, float("inf"))


def isneginf(input: Tensor) -> Tensor:
    """Whether an element is minus infinity."""
    return eq(input, float("-inf"))


def isreal(input: Tensor) -> Tensor:
    """Whether an element's imaginary part is 0."""
    if type_of(input).dtype.is_complex:
        return eq(imag(input), 0)
    return eq(mul(input, 0) if type_of(input).dtype.category < 2 else number(0, bool_), 0).expand(input.shape)


def logical_and(input: Any, other: Any) -> Tensor:
    """Elementwise and of truth values."""
    return ops.logical_and(*_any_pair(input, other, "logical_and"))


def logical_or(input: Any, other: Any) -> Tensor:
    """Elementwise or of truth values."""
    return ops.logical_or(*_any_pair(input, other, "logical_or"))


def logical_xor(input: Any, other: Any) -> Tensor:
    """Elementwise exclusive or of truth values."""
    return ops.logical_xor(*_any_pair(input, other, "logical_xor"))


def _any_pair(x: Any, y: Any, what: str) -> tuple[Tensor, Tensor]:
    refuse_numbers(what, x, y)
    return as_operand(x, what), as_operand(y, what)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Any, other: Any) -> Tensor: ...
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """``input`` where the condition holds, else ``other``; with the condition alone, ``nonzero(as_tuple=True)``."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if type(input) is Tensor and type(other) is Tensor and type(condition) is Tensor:
        c, a, b = condition._array, input._array, other._array
        if c is not None and a is not None and b is not None and a.dtype is b.dtype and c.dtype.kind == "b":
            return apply(WHERE, condition, input, other)
    if type_of(condition).dtype is not bool_:
        if type_of(condition).dtype.name != "uint8":
            raise UsageError(
                f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
            )
        condition = cast(condition, bool_)
    x, y = together(input, other, "where")
    return ops.where(condition, x, y)


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Limit the elements to [min, max]; bounds are numbers or tensors, at least one is given."""
    if isinstance(input, NUMBERS):
        refuse_numbers("clamp", input, min)
    input = as_operand(input, "clamp")
    if isinstance(input, Tensor) and type_of(input).dtype.is_complex:
        raise UnsupportedDTypeError("clamp is not supported for complex types", {"input": input})
    if min is None and max is None:
        raise ArgumentTypeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    by_numbers = type(input) is Tensor and all(v is None or isinstance(v, NUMBERS) for v in (min, max))
    if by_numbers and type_of(input).dtype.is_floating_point:
        return in_one_pass("clamp", (min, max), input, node="ClampBackward1")
    values = all_together([v for v in (input, min, max) if v is not None], "clamp")
    rest = iter(values[1:])
    low: Any = None if min is None else next(rest)
    high: Any = None if max is None else next(rest)
    low = min if isinstance(min, NUMBERS) else low
    high = max if isinstance(max, NUMBERS) else high
    return ops.clamp(values[0], low, high)


class ArgumentTypeError(ArgumentError, RuntimeError):
    """A missing argument that torch reports as RuntimeError."""


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Limit from below."""
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Limit from above."""
    return clamp(input, max=max)


def xlogy(input: Any, other: Any) -> Tensor:
    """``x * log(y)``, 0 where ``x`` is 0 (and ``y`` is not NaN)."""
    return ops.xlogy(*floating_together(input, other, "xlogy"))


def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A differentiable copy."""
    return rename_node(converted(input, type_of(input).dtype), "CloneBackward0")
