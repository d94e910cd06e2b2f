"""The mathematical functions by name, and their LLVM definitions.

A function is built once per dtype as an ``alwaysinline internal`` LLVM function: kernels call it, LLVM inlines it
before it vectorises, so kernel text stays short and every kernel of a module shares one copy of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from autojit.codegen import (
    bessel_functions,
    division,
    error_functions,
    exponentials,
    gamma_functions,
    inverse_hyperbolics,
    inverse_trigonometry,
    logarithms,
    powers,
    trigonometry,
)
from autojit.codegen.instructions import InstructionEmitter
from autojit.codegen.quarter_turns import QUARTER_TURNS
from autojit.codegen.scalar import Scalar, literal, register_type
from autojit.core.dtypes import DType, float32, float64

Builder = Callable[..., Scalar]

RareDefinitions = Callable[[str, Sequence[Scalar], float, InstructionEmitter, Scalar], dict[str, str]]
"""From the symbol, the operands, the limit, the body that computes the result, and the result: texts by symbol."""


class Function(NamedTuple):
    """How a function is made: its builder, its number of operands, whether float32 is computed in float64."""

    build: Builder
    arity: int = 1
    widened: bool = False


FUNCTIONS: dict[str, Function] = {
    "exp": Function(exponentials.exp),
    "exp2": Function(exponentials.exp2),
    "expm1": Function(exponentials.expm1),
    "sinh": Function(exponentials.sinh),
    "cosh": Function(exponentials.cosh),
    "tanh": Function(exponentials.tanh),
    "sigmoid": Function(exponentials.sigmoid),
    "log": Function(logarithms.log),
    "log2": Function(logarithms.log2),
    "log10": Function(logarithms.log10),
    "log1p": Function(logarithms.log1p),
    "asinh": Function(inverse_hyperbolics.asinh),
    "acosh": Function(inverse_hyperbolics.acosh),
    "atanh": Function(inverse_hyperbolics.atanh),
    "sin": Function(trigonometry.sin),
    "cos": Function(trigonometry.cos),
    "tan": Function(trigonometry.tan),
    "sin_large": Function(trigonometry.sin_large, widened=True),
    "cos_large": Function(trigonometry.cos_large, widened=True),
    "tan_large": Function(trigonometry.tan_large, widened=True),
    "asin": Function(inverse_trigonometry.asin),
    "acos": Function(inverse_trigonometry.acos),
    "atan": Function(inverse_trigonometry.atan),
    "atan2": Function(inverse_trigonometry.atan2, arity=2),
    "erf": Function(error_functions.erf),
    "erfc": Function(error_functions.erfc),
    "erfcx": Function(error_functions.erfcx, widened=True),
    "erfinv": Function(error_functions.erfinv),
    "ndtri": Function(error_functions.ndtri, widened=True),
    "pow": Function(powers.pow, arity=2),
    "hypot": Function(powers.hypot, arity=2),
    "lgamma": Function(gamma_functions.lgamma),
    "digamma": Function(gamma_functions.digamma, widened=True),
    "fmod": Function(division.float_fmod, arity=2),
    "fmod_large": Function(division.float_fmod_large, arity=3),
    "floor_divide": Function(division.float_floor_divide, arity=2),
    **{
        f"bessel_{kind}": Function(partial(bessel_functions.bessel, kind=kind), widened=True)
        for kind in bessel_functions.KINDS
    },
}

TABLES: dict[str, tuple[tuple[float, ...], ...]] = {"quarter_turns": QUARTER_TURNS}


def symbol(name: str, dtype: DType) -> str:
    """The LLVM name of a function for one dtype."""
    return f"@aj.{name}.{dtype.short}"


class Definition(NamedTuple):
    """Module-level text of one function and of everything it calls, by symbol, callees first."""

    symbol: str
    texts: dict[str, str]


@cache
def definition(name: str, dtype: DType, emitter: type[InstructionEmitter]) -> Definition:
    """The LLVM definition of function ``name`` for float32 or float64, emitted by a class of emitters."""
    operands = _parameters(name, dtype)
    body = emitter(flags="")
    result = _build(name, body, operands)
    kind = register_type(dtype)
    parameters = ", ".join(f"{kind} {x.text}" for x in operands)
    text = [f"define internal {kind} {symbol(name, dtype)}({parameters}) alwaysinline nounwind {{", *body.lines]
    text += [f"  ret {kind} {result.text}", "}"]
    return Definition(symbol(name, dtype), {**body.definitions, symbol(name, dtype): "\n".join(text)})


@cache
def rare_definition(
    name: str, dtype: DType, limit: float, emitter: type[InstructionEmitter], define: RareDefinitions
) -> Definition:
    """Function ``name`` only for |first operand| > limit; ``define`` writes the texts of a target: see `rare_calls`."""
    operands = _parameters(name, dtype)
    body = emitter(flags="")
    result = _build(name, body, operands)
    texts = define(symbol(name, dtype), operands, limit, body, result)
    return Definition(symbol(name, dtype), texts)


def _parameters(name: str, dtype: DType) -> list[Scalar]:
    return [Scalar(f"%x{i}", dtype) for i in range(FUNCTIONS[name].arity)]


def _build(name: str, body: InstructionEmitter, operands: list[Scalar]) -> Scalar:
    function = FUNCTIONS[name]
    dtype = operands[0].dtype
    if function.widened and dtype is float32:
        wide = [body.cast(x, float64) for x in operands]
        return body.cast(body.call(name, *wide), dtype)
    return function.build(body, *operands)


@cache
def table_definition(name: str, kind: str = "private unnamed_addr constant") -> str:
    """The constant array of float64 that `InstructionEmitter.table` reads, row after row."""
    values = [value for row in TABLES[name] for value in row]
    items = ", ".join(f"double {literal(value, float64)}" for value in values)
    array = f"[{len(values)} x double] [{items}]"
    return f"; {name}, row by row\n@aj.{name} = {kind} {array}, align 64"
