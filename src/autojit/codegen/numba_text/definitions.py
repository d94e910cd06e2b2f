"""What a kernel's module contains of a linked function: its text, with autojit's mathematical functions in it.

A kernel calls ``{results, i32} value(operands...)`` on values in registers: the results with the number of the failure,
0 if there was none. Everything is inlined before LLVM vectorises the loop around it, so the memory that the function's
ABI writes results to is gone by then. The text names mathematical functions as LLVM or the C library does; here they
become those of `vector_math`, which LLVM can vectorise.
"""

from __future__ import annotations

import hashlib
import re

from autojit.codegen import vector_math
from autojit.codegen.emitter import ScalarEmitter
from autojit.codegen.numba_text.instruction_text import binary, read_call, read_instruction
from autojit.codegen.numba_text.module_text import Function, Linked
from autojit.codegen.numba_text.scalar_function import ScalarFunction
from autojit.codegen.numba_text.tangent_rules import plain_name
from autojit.codegen.numba_text.unrolling import unrolled_latches
from autojit.core.dtypes import float32, float64

_INTRINSICS = frozenset(
    {
        "sqrt", "fabs", "floor", "ceil", "trunc", "rint", "nearbyint", "round", "roundeven", "copysign", "minnum",
        "maxnum", "fma",
    }
)  # fmt: skip
_BY_TYPE = {"double": float64, "float": float32}
_CALL = re.compile(r"^(?:%\S+ = )?(?:(?:tail|musttail|notail) )?call ")
_PURE = "nounwind willreturn memory(none)"


def definitions(function: ScalarFunction, emitter: type[ScalarEmitter]) -> tuple[str, dict[str, str]]:
    """The symbol of the function that kernels call, and all texts it needs by symbol, printed by a target's emitter."""
    texts = function_texts(function.code, emitter, "alwaysinline nounwind")
    symbol = f"@{function.symbol}.value"
    texts[symbol] = _value_text(function, symbol)
    return symbol, texts


def needs_host(code: Linked) -> bool:
    """Whether only the host can run a function: it calls itself, or what the host's libraries have (``frexp``).

    A thread of a device has a stack of some hundred bytes, so a recursion of unknown depth is none of its.
    """
    own = {part.name: _callees(part) for part in code.functions}
    return any(not _has_own_text(name) for names in own.values() for name in names - own.keys()) or _recurs(own)


def _callees(function: Function) -> set[str]:
    lines = [line for _, block in function.blocks for line in block if _CALL.match(line)]
    return {read_call(read_instruction(line).rest).callee for line in lines}


def _has_own_text(callee: str) -> bool:
    name = plain_name(callee)
    return callee.startswith("llvm.") or name in vector_math.FUNCTIONS or name in _INTRINSICS


def _recurs(calls: dict[str, set[str]]) -> bool:
    """Whether one of some functions reaches itself."""
    reached = {name: names & calls.keys() for name, names in calls.items()}
    for _ in calls:  # one more call in between each time
        reached = {name: names.union(*(reached[each] for each in names)) for name, names in reached.items()}
    return any(name in names for name, names in reached.items())


def function_texts(code: Linked, emitter: type[ScalarEmitter], attributes: str) -> dict[str, str]:
    """The texts of a function and of what it refers to, by symbol."""
    texts: dict[str, str] = {f"@{name}": text for name, text in code.globals.items()}
    for part in code.functions:
        texts[f"@{part.name}"] = _text(part, emitter, texts, attributes)
    return texts


def _text(function: Function, emitter: type[ScalarEmitter], texts: dict[str, str], attributes: str) -> str:
    parameters = ", ".join(f"{kind} {name}" for kind, name in function.parameters)
    lines = [f"define internal {function.returns} @{function.name}({parameters}) {attributes} {{"]
    latches = unrolled_latches(function)
    for label, block in function.blocks:
        lines.append(f"{label}:")
        lines += [f"  {_with_our_functions(line, emitter, texts)}" for line in block]
        if label in latches:
            lines[-1] += _unrolled(function, label, texts)
    return "\n".join([*lines, "}"])


def _unrolled(function: Function, latch: str, texts: dict[str, str]) -> str:
    """The attachment that has a loop unrolled; ``texts`` gets its metadata, under numbers no kernel uses."""
    digest = hashlib.sha256(f"{function.name} {latch}".encode()).digest()
    number = (1 << 24) + 2 * int.from_bytes(digest[:3], "little")
    texts[f"!{number}"] = (
        f'!{number} = distinct !{{!{number}, !{number + 1}}}\n!{number + 1} = !{{!"llvm.loop.unroll.full"}}'
    )
    return f", !llvm.loop !{number}"


def _with_our_functions(line: str, emitter: type[ScalarEmitter], texts: dict[str, str]) -> str:
    if " frem " in line:
        instruction = read_instruction(line)
        _, kind, a, b = binary(instruction.rest)
        if kind in _BY_TYPE:
            symbol = _ours("fmod", kind, emitter, texts)
            return f"{instruction.result} = call {kind} {symbol}({kind} {a}, {kind} {b})"
        return line
    if not _CALL.match(line):
        return line
    instruction = read_instruction(line)
    call = read_call(instruction.rest)
    result = f"{instruction.result} = " if instruction.result else ""
    name = plain_name(call.callee)
    if call.type in _BY_TYPE and name in vector_math.FUNCTIONS:
        call = call._replace(callee=_ours(name, call.type, emitter, texts)[1:])
    elif call.type in _BY_TYPE and name in _INTRINSICS:
        call = call._replace(callee=f"llvm.{name}.{_BY_TYPE[call.type].short}")
    elif not call.callee.startswith(("llvm.", "aj.op.")):
        listed = ", ".join(kind for kind, _ in call.operands)
        is_pure = call.type in _BY_TYPE and "ptr" not in listed
        texts[f"@{call.callee}"] = f"declare {call.type} @{call.callee}({listed}) {_PURE if is_pure else 'nounwind'}"
    return result + call.text()


def _ours(name: str, kind: str, emitter: type[ScalarEmitter], texts: dict[str, str]) -> str:
    found = vector_math.definition(name, _BY_TYPE[kind], emitter)
    texts.update(found.texts)
    return found.symbol


def _cleared(function: ScalarFunction) -> list[str]:
    """Results that a failing call leaves alone are zero, not those of the element before."""
    lines = []
    for k, (offset, kind) in enumerate(function.results if function.may_fail else ()):
        lines.append(f"  %clear{k} = getelementptr i8, ptr %results, i64 {offset}")
        lines.append(f"  store {kind} zeroinitializer, ptr %clear{k}")
    return lines


def _value_text(function: ScalarFunction, symbol: str) -> str:
    """The function that kernels call: operands and results in registers."""
    operands = ", ".join(f"{kind} %x{k}" for k, kind in enumerate(function.operands))
    kinds = [kind for _, kind in function.results]
    returned = "{ " + ", ".join([*kinds, "i32"]) + " }"
    lines = [
        f"define internal {returned} {symbol}({operands}) alwaysinline nounwind {{",
        f"  %results = alloca [{function.result_bytes} x i8], align 16",
        "  %failure = alloca i64, align 8",
        *_cleared(function),
        "  store i64 0, ptr %failure",
        f"  %status = call i32 @{function.symbol}(ptr %results, ptr %failure{', ' if operands else ''}{operands})",
        "  %number = load i64, ptr %failure",
        "  %named = trunc i64 %number to i32",
        "  %least = call i32 @llvm.umax.i32(i32 %named, i32 1)",
        "  %is.well = icmp eq i32 %status, 0",
        "  %failed = select i1 %is.well, i32 0, i32 %least",
    ]
    total = "poison"
    for k, (offset, kind) in enumerate(function.results):
        lines.append(f"  %at{k} = getelementptr i8, ptr %results, i64 {offset}")
        lines.append(f"  %part{k} = load {kind}, ptr %at{k}")
        lines.append(f"  %all{k} = insertvalue {returned} {total}, {kind} %part{k}, {k}")
        total = f"%all{k}"
    lines.append(f"  %all = insertvalue {returned} {total}, i32 %failed, {len(kinds)}")
    return "\n".join([*lines, f"  ret {returned} %all", "}"])
