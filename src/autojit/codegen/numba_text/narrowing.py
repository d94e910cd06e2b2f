"""float64 arithmetic turned into float32: Python's literals are float64 for Numba, and one of them widens all it meets.

``narrowed(function)`` computes the same in float32 throughout, as torch does, for which a literal takes the operands'
dtype. Results keep their places in memory.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace

from autojit.codegen.numba_text.instruction_text import read_call, read_instruction
from autojit.codegen.numba_text.module_text import Function, canonical
from autojit.codegen.numba_text.scalar_function import ScalarFunction
from autojit.codegen.numba_text.tangent_rules import is_mathematical, plain_name
from autojit.codegen.scalar import literal
from autojit.core.dtypes import float32
from autojit.core.errors import UnsupportedError

_NUMBER = re.compile(r"(?<![\w.%@-])(?:0x[0-9A-Fa-f]{16}|[-+]?\d+\.\d+(?:e[-+]?\d+)?)(?![\w.])")
_COPY = f"fadd float {{}}, {literal(-0.0, float32)}"


def narrowed(function: ScalarFunction) -> ScalarFunction:
    """The function with every float64 a float32.

    Raises:
        UnsupportedError: it reads the bits of a float64, or a table of them.
    """
    if any(re.search(r"\bdouble\b", text) for text in function.code.globals.values()):
        raise _impossible("a table of float64")
    functions = [_function(part) for part in function.code.functions]
    code = canonical(functions, function.code.globals, function.code.externals)
    code = replace(code, failures=function.code.failures)
    return ScalarFunction(code, tuple((at, "float" if kind == "double" else kind) for at, kind in function.results))


def _function(function: Function) -> Function:
    parameters = [(_kind(kind), name) for kind, name in function.parameters]
    blocks = [(label, [_line(line) for line in lines]) for label, lines in function.blocks]
    return Function(function.name, _kind(function.returns), parameters, blocks)


def _kind(kind: str) -> str:
    return re.sub(r"\bdouble\b", "float", kind)


def _line(line: str) -> str:
    if re.search(r"\bbitcast\b.*\bdouble\b", line):
        raise _impossible("the bits of a float64")
    instruction = read_instruction(line)
    if instruction.opcode in ("fpext", "fptrunc") and "<" not in line:
        value = instruction.rest.split(" to ")[0].split()[-1]
        return f"{instruction.result} = {_COPY.format(_NUMBER.sub(_rounded, value))}"
    if instruction.opcode == "call":
        return _call(instruction.result, instruction.rest)
    return _NUMBER.sub(_rounded, _kind(line)) if "double" in line else line


def _call(result: str, rest: str) -> str:
    call = read_call(rest)
    callee = call.callee
    if is_mathematical(callee):
        callee = f"llvm.{plain_name(callee)}.f32" if callee.startswith("llvm.") else _single_name(callee)
        callee = f"{callee}.i32" if plain_name(callee) in ("powi", "ldexp") and not callee.endswith(".i32") else callee
    operands = [(_kind(k), _NUMBER.sub(_rounded, v) if k == "double" else v) for k, v in call.operands]
    text = call._replace(type=_kind(call.type), callee=callee, operands=operands).text()
    return f"{result} = {text}" if result else text


def _single_name(callee: str) -> str:
    """The C library's name of a function for float32: ``exp`` and ``expf`` both give ``expf``."""
    return callee if callee.endswith("f") and callee not in ("erf",) else f"{callee}f"


def _rounded(found: re.Match[str]) -> str:
    """A literal of a float64 as that of the nearest float32."""
    text = found.group()
    value = struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0] if text.startswith("0x") else float(text)
    return literal(value, float32)


def _impossible(what: str) -> UnsupportedError:
    return UnsupportedError(
        "op: a function cannot be computed in float32 throughout", {"it reads": what}, "leave out single_precision=True"
    )
