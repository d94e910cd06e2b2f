"""Forward-mode differentiation of a linked function: every instruction is followed by that of its tangent.

``partial(function, k)`` is a function of the same form whose results are the partial derivatives with respect to
operand ``k``. Branches and loops stay as they are, so functions with data-dependent control flow are differentiated
along the way they go. What does not depend on the operand (found by a sweep to a fixed point) has no tangent.

Memory: a local variable that may hold something that depends on the operand gets a second one for the tangent; every
pointer into it is followed by one into the second. What is made from the bits of a number that depends on the operand
may not become a number again: such a function has no derivative here.

How to read: `partial` (the frame), `activity` (what has a tangent), `_TangentWriter` (one function, line by line).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from autojit.codegen.numba_text.activity import NAME, Activity, Mask, no_rule, pointer_of
from autojit.codegen.numba_text.instruction_text import (
    Call,
    Instruction,
    binary,
    has_floats,
    read_call,
    split,
    take_flags,
    take_type,
    typed,
)
from autojit.codegen.numba_text.module_text import Function, canonical
from autojit.codegen.numba_text.scalar_function import FIRST_OPERAND, RESULTS, ScalarFunction, called_names
from autojit.codegen.numba_text.tangent_rules import BINARY, UNARY, Binary, Maths, constant, plain_name

Term = tuple[str, Callable[[], str]]  # an operand and what makes the slope


def partial(function: ScalarFunction, operand: int) -> ScalarFunction | None:
    """The partial derivative with respect to one operand; None when it is zero everywhere.

    Raises:
        DifferentiationError: the function does something that has no derivative here, which the message names.
    """
    work = _Differentiation(function)
    root = function.code.functions[0]
    places = FIRST_OPERAND + operand
    mask = tuple(k in (RESULTS, places) for k in range(len(root.parameters)))
    if not work.depends(root, mask):
        return None
    name = work.tangent(root, mask)
    frame = _frame(function, name, operand)
    unchanged = [
        f for f in function.code.functions if any(f"@{f.name}(" in line for t in work.made for line in t.lines())
    ]
    code = canonical([frame, *work.made, *unchanged], function.code.globals, ())
    used = called_names(code)
    externals = tuple(sorted(n for n in used if not n.startswith(("llvm.", "aj.op."))))
    code = replace(code, externals=externals, failures=function.code.failures)
    return ScalarFunction(code, function.results)


def _frame(function: ScalarFunction, tangent: str, operand: int) -> Function:
    """The function of the common form: it keeps the results to itself and gives their tangents."""
    root = function.code.functions[0]
    passed = ["ptr %primal", "ptr %a0", "ptr %a1"]
    for k, (operand_kind, name) in enumerate(root.parameters[FIRST_OPERAND:]):
        passed.append(f"{operand_kind} {name}")
        if k == operand:
            passed.append(f"{operand_kind} 1.0")
    lines = [
        f"%primal = alloca [{function.result_bytes} x i8], align 16",
        f"%status = call i32 @{tangent}({', '.join(passed)})",
        "ret i32 %status",
    ]
    return Function("frame", "i32", root.parameters, [("b0", lines)])


class _Differentiation:
    """The functions one derivative needs, each once per set of operands that have tangents."""

    def __init__(self, function: ScalarFunction) -> None:
        self.functions = {f.name: f for f in function.code.functions}
        self.made: list[Function] = []
        self.names: dict[tuple[str, Mask], str] = {}
        self.activities: dict[tuple[str, Mask], Activity] = {}

    def activity(self, function: Function, mask: Mask) -> Activity:
        found = self.activities.get((function.name, mask))
        if found is None:
            found = self.activities[function.name, mask] = Activity(self.functions, function, mask)
        return found

    def depends(self, root: Function, mask: Mask) -> bool:
        """Whether anything that depends on the operand is written to the results."""
        activity = self.activity(root, mask)
        return activity.writes_active(root.parameters[RESULTS][1])

    def tangent(self, function: Function, mask: Mask) -> str:
        """The name of the function with tangents after the parameters of ``mask``."""
        found = self.names.get((function.name, mask))
        if found is None:
            found = f"{function.name}.t{len(self.names)}"
            self.names[function.name, mask] = found
            place = len(self.made)
            made = _TangentWriter(self, function, mask).write(found)
            self.made.insert(place, made)
        return found


_LINEAR = ("fpext", "fptrunc", "freeze", "bitcast")
"""Instructions that are the same on tangents."""

_OPERANDS = {"extractvalue": 1, "insertvalue": 2, "extractelement": 1, "insertelement": 2, "shufflevector": 2}
"""Those that move parts of values: how many of their operands have tangents; the others say where."""


class _TangentWriter:
    """Writes one function with tangents."""

    def __init__(self, work: _Differentiation, function: Function, mask: Mask) -> None:
        self.work = work
        self.function = function
        self.mask = mask
        self.activity = work.activity(function, mask)
        self.lines: list[str] = []
        self.waiting: list[str] = []  # tangents of the phi instructions at the head of a block
        self.count = 0

    def write(self, name: str) -> Function:
        parameters: list[tuple[str, str]] = []
        for (kind, value), is_active in zip(self.function.parameters, self.mask, strict=True):
            parameters.append((kind, value))
            if is_active:
                parameters.append((kind, f"{value}.d"))
        written = Function(name, self.function.returns, parameters)
        for (label, lines), instructions in zip(self.function.blocks, self.activity.instructions, strict=True):
            self.lines = []
            for line, instruction in zip(lines, instructions, strict=True):
                if instruction.opcode != "phi":
                    self._flush()
                self._instruction(line, instruction)
            written.blocks.append((label, self.lines))
        return written

    def _flush(self) -> None:
        self.lines += self.waiting
        self.waiting = []

    def line(self, text: str) -> str:
        self.count += 1
        name = f"%d{self.count}"
        self.lines.append(f"{name} = {text}")
        return name

    def _dot(self, value: str) -> str:
        return f"{value}.d" if value in self.activity.active else "zeroinitializer"

    def _shadow(self, pointer: str) -> str:
        if not self.activity.has_shadow(pointer):
            raise no_rule("a pointer that may or may not be into the function's own memory")
        return f"{pointer}.d"

    def _instruction(self, line: str, instruction: Instruction) -> None:
        opcode, result = instruction.opcode, instruction.result
        if opcode == "call":
            self._call(line, result, read_call(instruction.rest))
            return
        self.lines.append(line)
        if opcode == "store":
            self._store(instruction.rest)
        elif opcode == "alloca" and self.activity.has_shadow(result):
            self._alloca(result, instruction.rest)
        elif opcode == "getelementptr" and self.activity.has_shadow(result):
            pointer = pointer_of(instruction.rest)
            shadow = self._shadow(pointer)
            self._define(result, f"getelementptr {_replaced(instruction.rest, pointer, shadow)}")
        elif result in self.activity.active or (opcode in ("phi", "select") and self._is_shadowed(instruction)):
            self._tangent(opcode, result, instruction.rest)

    def _is_shadowed(self, instruction: Instruction) -> bool:
        kind = take_type(take_flags(instruction.rest)[1])[0] if instruction.opcode == "phi" else ""
        is_pointer = kind == "ptr" or (instruction.opcode == "select" and ", ptr " in instruction.rest)
        return is_pointer and self.activity.has_shadow(instruction.result)

    def _define(self, result: str, text: str) -> None:
        self.lines.append(f"{result}.d = {text}")

    def _store(self, rest: str) -> None:
        value, pointer, *more = split(rest)
        (kind, name), target = typed(value), typed(pointer)[1]
        if not self.activity.has_shadow(target):
            return
        shadow = self._shadow(target)
        dot = self._dot(name) if has_floats(kind) else "zeroinitializer"
        self.lines.append(", ".join([f"store {kind} {dot}", f"ptr {shadow}", *more]))

    def _alloca(self, result: str, rest: str) -> None:
        kind, *more = split(rest)
        if any(not part.startswith(("align", "i64 1", "i32 1")) for part in more):
            raise no_rule("a local array of a length that is not constant")
        self._define(result, f"alloca {rest}")
        self.lines.append(f"store {kind} zeroinitializer, ptr {result}.d")

    # -- tangents of instructions

    def _tangent(self, opcode: str, result: str, rest: str) -> None:
        if opcode in ("fadd", "fsub"):
            self._sum(result, rest, opcode)
        elif opcode in _LINEAR:
            self._define(result, f"{opcode} {NAME.sub(lambda found: self._dot(found.group()), rest)}")
        elif opcode in _OPERANDS:
            parts, count = split(rest), _OPERANDS[opcode]
            self._define(result, f"{opcode} {', '.join([*map(self._part, parts[:count]), *parts[count:]])}")
        else:
            write = getattr(self, f"_tangent_of_{opcode}", None)
            if write is None:
                raise no_rule(f"the LLVM instruction {opcode}")
            write(result, rest)

    def _tangent_of_fneg(self, result: str, rest: str) -> None:
        kind, value = take_type(take_flags(rest)[1])
        self._define(result, f"fneg {kind} {self._dot(value)}")

    def _sum(self, result: str, rest: str, opcode: str) -> None:
        flags, kind, a, b = binary(rest)
        if a not in self.activity.active:
            alone = self._dot(b)
            self._define(result, f"fneg {kind} {alone}" if opcode == "fsub" else f"fadd {kind} {alone}, {_zero(kind)}")
        elif b not in self.activity.active:
            self._define(result, f"fadd {kind} {self._dot(a)}, {_zero(kind)}")
        else:
            self._define(result, f"{opcode} {flags}{kind} {self._dot(a)}, {self._dot(b)}")

    def _tangent_of_fmul(self, result: str, rest: str) -> None:
        _, kind, a, b = binary(rest)
        maths = Maths(self, kind)
        self._total(result, maths, [(a, lambda: b), (b, lambda: a)])

    def _tangent_of_fdiv(self, result: str, rest: str) -> None:
        _, kind, a, b = binary(rest)
        maths = Maths(self, kind)
        self._total(result, maths, [(a, lambda: maths.reciprocal(b)), (b, lambda: maths.neg(maths.div(result, b)))])

    def _tangent_of_frem(self, result: str, rest: str) -> None:
        _, kind, a, b = binary(rest)
        maths = Maths(self, kind)
        self._total(result, maths, _two_terms(BINARY["fmod"], maths, [a, b], result))

    def _total(self, result: str, maths: Maths, terms: Sequence[Term]) -> None:
        """The sum of slope times tangent over the operands that have one."""
        factors = [(slope(), self._dot(x)) for x, slope in terms if x in self.activity.active]
        if len(factors) == 1:
            self._define(result, f"fmul {maths.kind} {factors[0][0]}, {factors[0][1]}")
            return
        total = maths.mul(*factors[0])
        for factor in factors[1:-1]:
            total = maths.add(total, maths.mul(*factor))
        self._define(result, f"fadd {maths.kind} {total}, {maths.mul(*factors[-1])}")

    def _tangent_of_select(self, result: str, rest: str) -> None:
        condition, a, b = split(take_flags(rest)[1])
        self._define(result, f"select {condition}, {self._part(a)}, {self._part(b)}")

    def _part(self, text: str) -> str:
        """A typed operand with its tangent in its place; constants have zero."""
        kind, value = typed(text)
        if kind == "ptr":
            return f"ptr {self._shadow(value)}"
        return f"{kind} {self._dot(value)}"

    def _tangent_of_phi(self, result: str, rest: str) -> None:
        kind, listed = take_type(take_flags(rest)[1])
        entries = []
        for entry in split(listed):
            value, label = split(entry[1:-1])
            dot = self._shadow(value) if kind == "ptr" else self._dot(value)
            entries.append(f"[ {dot}, {label} ]")
        self.waiting.append(f"{result}.d = phi {kind} {', '.join(entries)}")

    def _tangent_of_load(self, result: str, rest: str) -> None:
        kind, pointer, *more = split(rest)
        self._define(result, ", ".join([f"load {kind}", f"ptr {self._shadow(typed(pointer)[1])}", *more]))

    # -- tangents of calls

    def _call(self, line: str, result: str, call: Call) -> None:
        activity = self.activity
        if call.callee in self.work.functions and any(
            value in activity.active or (kind == "ptr" and activity.has_shadow(value)) for kind, value in call.operands
        ):
            self._inner_call(result, call)
            return
        self.lines.append(line)
        if call.callee.startswith(("llvm.memcpy", "llvm.memmove", "llvm.memset")):
            self._memory_call(call)
        elif result in activity.active:
            self._mathematical_call(result, call)

    def _memory_call(self, call: Call) -> None:
        (_, target), (kind, source), *rest = call.operands
        if not self.activity.has_shadow(target):
            return
        if kind == "ptr" and self.activity.has_shadow(source):
            source = self._shadow(source)
        elif kind == "ptr":
            call = call._replace(callee=f"llvm.memset.p0.{rest[0][0]}")
            kind, source = "i8", "0"
        else:
            source = "0"
        operands = [("ptr", self._shadow(target)), (kind, source), *rest]
        self.lines.append(call._replace(operands=operands).text())

    def _inner_call(self, result: str, call: Call) -> None:
        if has_floats(call.type):
            raise no_rule(f"a call of {call.callee}, which returns its result in a register")
        activity = self.activity
        mask = tuple(activity.has_shadow(v) if k == "ptr" else v in activity.active for k, v in call.operands)
        name = self.work.tangent(self.work.functions[call.callee], mask)
        operands: list[tuple[str, str]] = []
        for (kind, value), is_active in zip(call.operands, mask, strict=True):
            operands.append((kind, value))
            if is_active:
                operands.append((kind, f"{value}.d"))
        text = call._replace(callee=name, operands=operands).text()
        self.lines.append(f"{result} = {text}" if result else text)

    def _mathematical_call(self, result: str, call: Call) -> None:
        name = plain_name(call.callee)
        maths = Maths(self, call.type)
        values = [value for _, value in call.operands]
        if name in UNARY:
            rule = UNARY[name]
            self._total(result, maths, [(values[0], lambda: rule(maths, values[0], result))])
        elif name in BINARY:
            self._total(result, maths, _two_terms(BINARY[name], maths, values, result))
        elif name in ("fma", "fmuladd"):
            a, b, c = values
            one = maths.constant(1.0)
            self._total(result, maths, [(a, lambda: b), (b, lambda: a), (c, lambda: one)])
        elif name == "powi":
            self._power(result, call, maths)
        elif name == "ldexp":
            operands = [(call.operands[0][0], self._dot(values[0])), call.operands[1]]
            self._define(result, call._replace(operands=operands).text())
        else:
            raise no_rule(f"the function {call.callee}")

    def _power(self, result: str, call: Call, maths: Maths) -> None:
        """x to an integer power n: n * x^(n - 1)."""
        (_, x), (kind, n) = call.operands
        lower = self.line(f"sub {kind} {n}, 1")
        factor = self.line(f"sitofp {kind} {n} to {maths.scalar}")
        below = self.line(call._replace(operands=[(maths.kind, x), (kind, lower)]).text())
        self._total(result, maths, [(x, lambda: maths.mul(factor, below))])


def _two_terms(rule: Binary, maths: Maths, values: list[str], result: str) -> list[Term]:
    """The operands of a function of two with their slopes."""
    a, b = values
    return [(a, lambda: rule(maths, a, b, result, 0)), (b, lambda: rule(maths, a, b, result, 1))]


def _zero(kind: str) -> str:
    """What can be added to anything without changing it: LLVM removes the addition of a negative zero."""
    return constant(kind, -0.0)


def _replaced(rest: str, name: str, by: str) -> str:
    return re.sub(rf"{re.escape(name)}(?![-\w$.])", by, rest, count=1)
