"""Derivatives of mathematical functions as LLVM text: what `tangents` writes for a call of each.

A rule gets the writer, the type and the operands of a call, and gives the slope: the partial derivative with respect to
one operand. Slopes are computed with the functions of the same vocabulary, so that they can be differentiated again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Protocol

from autojit.codegen.numba_text.instruction_text import scalar_of
from autojit.codegen.scalar import literal
from autojit.core.dtypes import float32, float64

CONSTANT = frozenset(["floor", "ceil", "trunc", "rint", "nearbyint", "round", "roundeven"])
"""Functions that are constant almost everywhere."""

_NUMBAS = {"numba_gamma": "tgamma", "numba_gammaf": "tgammaf", "numba_ldexp": "ldexp", "numba_ldexpf": "ldexpf"}
_LIBRARY = {"fmin": "minnum", "fmax": "maxnum", "fabs": "fabs"}  # C's name -> LLVM's, where they differ


class Writer(Protocol):
    """Appends instructions and gives the names of their results."""

    def line(self, text: str) -> str: ...


def constant(kind: str, value: float) -> str:
    """A number as a constant of a type, float or double or a vector of them."""
    scalar = scalar_of(kind)
    text = literal(value, float64 if scalar == "double" else float32)
    return text if scalar == kind else f"splat ({scalar} {text})"


def _arithmetic(opcode: str) -> Callable[[Maths, str, str], str]:
    return lambda self, a, b: self.writer.line(f"{opcode} {self.kind} {a}, {b}")


class Maths:
    """Arithmetic on values of one type, float or double or a vector of them."""

    def __init__(self, writer: Writer, kind: str) -> None:
        self.writer = writer
        self.kind = kind
        found = re.fullmatch(r"<(\d+) x (\w+)>", kind)
        self.lanes, self.scalar = (int(found.group(1)), found.group(2)) if found else (0, kind)
        self.condition = f"<{self.lanes} x i1>" if self.lanes else "i1"

    def constant(self, value: float) -> str:
        return constant(self.kind, value)

    add, sub, mul, div = map(_arithmetic, ("fadd", "fsub", "fmul", "fdiv"))

    def neg(self, a: str) -> str:
        return self.writer.line(f"fneg {self.kind} {a}")

    def scaled(self, a: str, factor: float) -> str:
        return self.mul(a, self.constant(factor))

    def reciprocal(self, a: str) -> str:
        return self.div(self.constant(1.0), a)

    def call(self, name: str, *operands: str) -> str:
        """A function of `vector_math` or an LLVM intrinsic, by its plain name."""
        suffix = {"double": "f64", "float": "f32"}[self.scalar]
        suffix = f"v{self.lanes}{suffix}" if self.lanes else suffix
        listed = ", ".join(f"{self.kind} {x}" for x in operands)
        return self.writer.line(f"call {self.kind} @llvm.{name}.{suffix}({listed})")

    def compare(self, predicate: str, a: str, b: str) -> str:
        return self.writer.line(f"fcmp {predicate} {self.kind} {a}, {b}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.writer.line(f"select {self.condition} {condition}, {self.kind} {a}, {self.kind} {b}")

    def sign(self, x: str) -> str:
        """-1 or 1; 0 at 0."""
        ones = self.call("copysign", self.constant(1.0), x)
        zero = self.constant(0.0)
        return self.select(self.compare("oeq", x, zero), zero, ones)


Unary = Callable[[Maths, str, str], str]  # (maths, x, y) -> slope


def _root_of(m: Maths, x: str, sign: float, shift: float) -> str:
    """1 / sqrt(sign * x^2 + shift)."""
    inside = m.add(m.scaled(m.mul(x, x), sign), m.constant(shift))
    return m.reciprocal(m.call("sqrt", inside))


def _gaussian(m: Maths, x: str, factor: float) -> str:
    return m.scaled(m.call("exp", m.neg(m.mul(x, x))), factor * 2.0 / math.sqrt(math.pi))


def _trigamma(m: Maths, x: str, y: str) -> str:
    """The derivative of digamma: its recurrence up to where the asymptotic series is exact, reflected left of 1/2.

    Source: DLMF 5.5.2, 5.5.4 and 5.15.8.
    """
    is_left = m.compare("olt", x, m.constant(0.5))
    t = m.select(is_left, m.sub(m.constant(1.0), x), x)
    total = m.constant(0.0)
    for step in range(_SHIFT):
        term = m.reciprocal(m.add(t, m.constant(float(step))))
        total = m.add(total, m.mul(term, term))
    z = m.reciprocal(m.add(t, m.constant(float(_SHIFT))))
    square = m.mul(z, z)
    series = m.constant(_BERNOULLI[-1])
    for coefficient in reversed(_BERNOULLI[:-1]):
        series = m.add(m.mul(series, square), m.constant(coefficient))
    tail = m.add(m.scaled(square, 0.5), m.add(z, m.mul(m.mul(z, square), series)))
    right = m.add(total, tail)
    sine = m.call("sin", m.scaled(x, math.pi))
    left = m.sub(m.div(m.constant(math.pi**2), m.mul(sine, sine)), right)
    return m.select(is_left, left, right)


_SHIFT = 8
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)

UNARY: dict[str, Unary] = {
    "exp": lambda m, x, y: y,
    "exp2": lambda m, x, y: m.scaled(y, math.log(2.0)),
    "expm1": lambda m, x, y: m.add(y, m.constant(1.0)),
    "log": lambda m, x, y: m.reciprocal(x),
    "log2": lambda m, x, y: m.reciprocal(m.scaled(x, math.log(2.0))),
    "log10": lambda m, x, y: m.reciprocal(m.scaled(x, math.log(10.0))),
    "log1p": lambda m, x, y: m.reciprocal(m.add(x, m.constant(1.0))),
    "sqrt": lambda m, x, y: m.div(m.constant(0.5), y),
    "cbrt": lambda m, x, y: m.reciprocal(m.scaled(m.mul(y, y), 3.0)),
    "sin": lambda m, x, y: m.call("cos", x),
    "cos": lambda m, x, y: m.neg(m.call("sin", x)),
    "tan": lambda m, x, y: m.add(m.mul(y, y), m.constant(1.0)),
    "asin": lambda m, x, y: _root_of(m, x, -1.0, 1.0),
    "acos": lambda m, x, y: m.neg(_root_of(m, x, -1.0, 1.0)),
    "atan": lambda m, x, y: m.reciprocal(m.add(m.mul(x, x), m.constant(1.0))),
    "sinh": lambda m, x, y: m.call("cosh", x),
    "cosh": lambda m, x, y: m.call("sinh", x),
    "tanh": lambda m, x, y: m.sub(m.constant(1.0), m.mul(y, y)),
    "asinh": lambda m, x, y: _root_of(m, x, 1.0, 1.0),
    "acosh": lambda m, x, y: _root_of(m, x, 1.0, -1.0),
    "atanh": lambda m, x, y: m.reciprocal(m.sub(m.constant(1.0), m.mul(x, x))),
    "erf": lambda m, x, y: _gaussian(m, x, 1.0),
    "erfc": lambda m, x, y: _gaussian(m, x, -1.0),
    "lgamma": lambda m, x, y: m.call("digamma", x),
    "tgamma": lambda m, x, y: m.mul(y, m.call("digamma", x)),
    "digamma": _trigamma,
    "fabs": lambda m, x, y: m.sign(x),
}

Binary = Callable[[Maths, str, str, str, int], str]  # (maths, a, b, y, which operand) -> slope


def _pow(m: Maths, a: str, b: str, y: str, which: int) -> str:
    one, zero = m.constant(1.0), m.constant(0.0)
    if which == 0:
        slope = m.mul(b, m.call("pow", a, m.sub(b, one)))
        return m.select(m.compare("oeq", b, zero), zero, slope)
    slope = m.mul(y, m.call("log", a))
    return m.select(m.compare("oeq", y, zero), zero, slope)  # 0 * log(0)


def _atan2(m: Maths, a: str, b: str, y: str, which: int) -> str:
    square = m.add(m.mul(a, a), m.mul(b, b))
    return m.div(b, square) if which == 0 else m.neg(m.div(a, square))


def _hypot(m: Maths, a: str, b: str, y: str, which: int) -> str:
    return m.div((a, b)[which], y)


def _fmod(m: Maths, a: str, b: str, y: str, which: int) -> str:
    return m.constant(1.0) if which == 0 else m.neg(m.call("trunc", m.div(a, b)))


def _copysign(m: Maths, a: str, b: str, y: str, which: int) -> str:
    if which == 1:
        return m.constant(0.0)
    return m.mul(m.sign(a), m.call("copysign", m.constant(1.0), b))


def _extremum(m: Maths, a: str, b: str, y: str, which: int) -> str:
    """1 for the operand that is the result; the first one where both are."""
    one, zero = m.constant(1.0), m.constant(0.0)
    is_first = m.compare("oeq", y, a)
    return m.select(is_first, *((one, zero) if which == 0 else (zero, one)))


BINARY: dict[str, Binary] = {
    "pow": _pow,
    "atan2": _atan2,
    "hypot": _hypot,
    "fmod": _fmod,
    "copysign": _copysign,
    **dict.fromkeys(("minnum", "maxnum", "minimum", "maximum", "minimumnum", "maximumnum"), _extremum),
}


def plain_name(callee: str) -> str:
    """What a mathematical function is called here: ``llvm.exp.f64``, ``exp`` and ``expf`` are all ``exp``.

    Names that are not a mathematical function's are given back as they are.
    """
    callee = _NUMBAS.get(callee, callee)
    found = re.fullmatch(r"llvm\.([a-z0-9]+)\.(?:v\d+)?f(?:32|64)(?:\.i32)?", callee)
    if found:
        return found.group(1)
    known = UNARY.keys() | BINARY.keys() | CONSTANT | _LIBRARY.keys() | {"fma", "ldexp", "digamma"}
    for name in (callee, callee.removesuffix("f")):
        if name in known:
            return _LIBRARY.get(name, name)
    return callee


_MATHEMATICAL = UNARY.keys() | BINARY.keys() | CONSTANT | {"fma", "fmuladd", "ldexp", "powi", "digamma", "sincos"}


def is_mathematical(callee: str) -> bool:
    """Whether a name is that of a mathematical function."""
    return plain_name(callee) in _MATHEMATICAL
