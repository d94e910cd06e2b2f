"""ScalarEmitter: the expression emitter that op lowerings speak to, on the CPU and on CUDA.

It adds to `InstructionEmitter` what takes more than a few instructions: integer division, integer powers and the
mathematical functions of `vector_math`, which are called here and defined in ``definitions``; the module that holds
the kernel must contain those texts once. float16 and bfloat16 are computed in float32 and rounded after every op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from autojit.codegen import division, gamma_functions, neighbours, philox, rare_calls, vector_math
from autojit.codegen.instructions import InstructionEmitter, Value
from autojit.codegen.scalar import Scalar, is_half, literal, register_type
from autojit.core.dtypes import DType, float32, float64, int64, uint64
from autojit.core.sizes import is_symbolic

__all__ = ["Scalar", "ScalarEmitter"]


def _function(name: str) -> Callable[[ScalarEmitter, Scalar], Scalar]:
    """The method of a function of `vector_math`."""
    return lambda self, x: self.call(name, x)


def _function_of_two(name: str) -> Callable[[ScalarEmitter, Value, Value], Scalar]:
    return lambda self, a, b: self.call(name, *self._pair(a, b))


class ScalarEmitter(InstructionEmitter):
    """The complete emitter. Methods named after a function document its accuracy only where it exceeds 2 ulp."""

    number: Callable[[int], str] = staticmethod(str)
    """How a size is written; a kernel that takes symbolic sizes sets it."""

    constant_kind: ClassVar[str] = "private unnamed_addr constant"
    """How the module says that a table does not change."""

    constant_space: ClassVar[str] = ""
    """In front of the addresses of tables: the space they are in, with a blank behind it."""

    def size(self, n: int, dtype: DType) -> Scalar:
        """A size, perhaps symbolic, as a number."""
        return self.cast(Scalar(self.number(n), int64), dtype) if is_symbolic(n) else self.constant(n, dtype)

    def call(self, name: str, *operands: Scalar) -> Scalar:
        """Apply a function of `vector_math`; operands are floats of one dtype."""
        dtype = operands[0].dtype
        assert dtype.kind == "float", f"{name} of {dtype}; cast first"
        if is_half(dtype):
            wide = self.call(name, *(Scalar(x.text, float32) for x in operands))
            return self.rounded(wide, dtype)
        found = vector_math.definition(name, dtype, type(self))
        self.definitions.update(found.texts)
        kind = register_type(dtype)
        arguments = ", ".join(f"{kind} {x.text}" for x in operands)
        return self.instruction(f"call {kind} {found.symbol}({arguments})", dtype)

    def table(self, name: str, row: Scalar, columns: int) -> tuple[Scalar, ...]:
        """Load one row of a table of `vector_math`."""
        self.definitions[f"@aj.{name}"] = vector_math.table_definition(name, self.constant_kind)
        first = self.mul(row, columns)
        loaded = []
        for column in range(columns):
            place = self.add(first, column)
            pointer = self.instruction(
                f"getelementptr inbounds double, ptr {self.constant_space}@aj.{name}, i64 {place.text}", uint64
            )
            loaded.append(self.load(self.constant_space + pointer.text, float64, ", align 8"))
        return tuple(loaded)

    def call_rarely(self, name: str, limit: float, *operands: Scalar) -> Scalar:
        """A function of `vector_math` where |operands[0]| > limit, zero elsewhere."""
        dtype = operands[0].dtype
        found = vector_math.rare_definition(name, dtype, limit, type(self), rare_calls.definitions)
        self.definitions.update(found.texts)
        return self.instruction(rare_calls.call_text(found.symbol, operands), dtype)

    # ---- division and powers -------------------------------------------------------------------------------------

    def trunc_div(self, a: Value, b: Value) -> Scalar:
        """a / b towards zero; integers by zero give 0."""
        a, b = self._pair(a, b)
        if a.dtype.kind == "float":
            return self.trunc(self.div(a, b))
        return division.integer_quotient(self, a, b)

    def floor_div(self, a: Value, b: Value) -> Scalar:
        """Python's ``//``; integers by zero give 0."""
        return division.floor_div(self, *self._pair(a, b))

    def remainder(self, a: Value, b: Value) -> Scalar:
        """Python's ``%``, with the sign of b; exact. Integers by zero give 0."""
        return division.remainder(self, *self._pair(a, b))

    def fmod(self, a: Value, b: Value) -> Scalar:
        """C's ``fmod``, with the sign of a; exact. Integers by zero give 0."""
        return division.fmod(self, *self._pair(a, b))

    def pow(self, x: Value, y: Value) -> Scalar:
        """x ** y with C's special values; a few literal exponents become cheaper arithmetic, as in torch."""
        x, y = self._pair(x, y)
        if x.dtype.kind != "float":
            return division.integer_power(self, x, y)
        simple = self._simple_powers().get(y.text) if y.is_literal else None
        return self.call("pow", x, y) if simple is None else simple(x)

    def _simple_powers(self) -> dict[str, Callable[[Scalar], Scalar]]:
        """By the exponent's literal, which float32 and float64 spell alike."""
        powers: dict[float, Callable[[Scalar], Scalar]] = {
            0.0: self.one,
            1.0: lambda x: x,
            2.0: lambda x: self.mul(x, x),
            3.0: lambda x: self.mul(self.mul(x, x), x),
            -1.0: self.reciprocal,
            -2.0: lambda x: self.reciprocal(self.mul(x, x)),
            0.5: self.sqrt,
            -0.5: self.rsqrt,
        }
        return {literal(exponent, float64): make for exponent, make in powers.items()}

    hypot = _function_of_two("hypot")
    atan2 = _function_of_two("atan2")  # the angle of the point (second operand, first operand)

    # ---- random numbers ------------------------------------------------------------------------------------------

    def philox(self, counter: philox.Words, key: tuple[Scalar, Scalar]) -> philox.Words:
        """Four random uint32 words from four counter words and two key words: Philox-4x32-10."""
        return philox.philox(self, counter, key)

    def uniform(self, dtype: DType, high: Scalar, low: Scalar | None = None) -> Scalar:
        """A float in [0, 1) from one random word, for float64 from two."""
        return philox.uniform(self, dtype, high, low)

    # ---- functions of one operand: what they are off by, and where they are not defined, say their builders ------

    exp = _function("exp")
    exp2 = _function("exp2")
    expm1 = _function("expm1")
    log = _function("log")
    log2 = _function("log2")
    log10 = _function("log10")
    log1p = _function("log1p")
    sin = _function("sin")
    cos = _function("cos")
    tan = _function("tan")
    asin = _function("asin")
    acos = _function("acos")
    atan = _function("atan")
    sinh = _function("sinh")
    cosh = _function("cosh")
    tanh = _function("tanh")
    asinh = _function("asinh")
    acosh = _function("acosh")
    atanh = _function("atanh")
    sigmoid = _function("sigmoid")
    erf = _function("erf")
    erfc = _function("erfc")
    erfcx = _function("erfcx")
    erfinv = _function("erfinv")
    ndtri = _function("ndtri")
    lgamma = _function("lgamma")
    digamma = _function("digamma")

    def nextafter(self, a: Value, b: Value) -> Scalar:
        """The number beside a in the direction of b."""
        return neighbours.nextafter(self, *self._pair(a, b))

    def bessel(self, kind: str, x: Scalar) -> Scalar:
        """A Bessel function, in float64: see `bessel_functions`."""
        return self.call(f"bessel_{kind}", x)

    def polygamma(self, n: int, x: Scalar) -> Scalar:
        """The ``n``-th derivative of digamma, n at least 1, in float64."""
        return self.cast(gamma_functions.polygamma(self, n, self.cast(x, float64)), x.dtype)
