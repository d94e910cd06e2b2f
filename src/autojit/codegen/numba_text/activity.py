"""Which values of a function depend on the operand it is differentiated for, and which memory.

A sweep over the instructions is repeated until it finds nothing new. Pointers into the same memory are one class;
memory of the function's own (and what the caller vouches for) may hold values that have tangents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from autojit.codegen.numba_text.instruction_text import (
    Call,
    Instruction,
    has_floats,
    is_floating,
    read_call,
    read_instruction,
    split,
    take_flags,
    typed,
)
from autojit.codegen.numba_text.module_text import Function
from autojit.codegen.numba_text.tangent_rules import CONSTANT, plain_name
from autojit.core.errors import DifferentiationError

NAME = re.compile(r"%[-\w$.]+")
Mask = tuple[bool, ...]
_NO_EFFECT = ("llvm.assume", "llvm.lifetime", "llvm.experimental", "llvm.dbg", "llvm.expect", "llvm.donothing")


class Activity:
    """Which values of a function have tangents, and which memory."""

    def __init__(self, functions: Mapping[str, Function], function: Function, mask: Mask) -> None:
        self.functions = functions
        self.function = function
        self.instructions = [[read_instruction(line) for line in lines] for _, lines in function.blocks]
        self.parent: dict[str, str] = {}  # of pointers: another pointer into the same memory
        self.shadowable: set[str] = set()
        self.active: set[str] = set()
        self.from_bits: set[str] = set()
        for (kind, name), is_active in zip(function.parameters, mask, strict=True):
            if is_active and kind == "ptr":
                self.shadowable.add(name)
            elif is_active:
                self.active.add(name)
        self._find_memory()
        self.memory = {self.root(n) for (k, n), m in zip(function.parameters, mask, strict=True) if m and k == "ptr"}
        self.stored: set[str] = set()  # memory that active values are written to here
        while self._sweep():
            pass

    def root(self, pointer: str) -> str:
        while pointer in self.parent:
            pointer = self.parent[pointer]
        return pointer

    def has_shadow(self, pointer: str) -> bool:
        return self.root(pointer) in self.memory

    def writes_active(self, pointer: str) -> bool:
        return self.root(pointer) in self.stored

    def _find_memory(self) -> None:
        for instruction in (i for block in self.instructions for i in block):
            if instruction.opcode == "alloca":
                self.shadowable.add(instruction.result)
            elif instruction.opcode == "getelementptr":
                self._join(instruction.result, pointer_of(instruction.rest))
            elif instruction.opcode in ("phi", "select") and " ptr " in f" {instruction.rest}":
                for name in NAME.findall(without_labels(instruction)):
                    self._join(instruction.result, name)

    def _join(self, a: str, b: str) -> None:
        first, second = self.root(a), self.root(b)
        if first != second:
            self.parent[first] = second
            if first in self.shadowable:
                self.shadowable.add(second)

    def _sweep(self) -> bool:
        before = (len(self.active), len(self.memory), len(self.from_bits), len(self.stored))
        for block in self.instructions:
            for instruction in block:
                self._look(instruction)
        return before != (len(self.active), len(self.memory), len(self.from_bits), len(self.stored))

    def _look(self, instruction: Instruction) -> None:
        opcode, result = instruction.opcode, instruction.result
        if opcode == "call":
            self._look_at_call(result, read_call(instruction.rest))
            return
        names = NAME.findall(without_labels(instruction))
        is_active = any(name in self.active for name in names)
        if opcode == "store":
            value, pointer = split(instruction.rest)[:2]
            if is_active and has_floats(typed(value)[0]):
                self._mark(typed(pointer)[1])
                self.stored.add(self.root(typed(pointer)[1]))
        elif opcode == "load":
            kind, pointer = split(instruction.rest.removeprefix("volatile "))[:2]
            if self.has_shadow(typed(pointer)[1]) and has_floats(kind):
                self.active.add(result)
        elif opcode in ("fcmp", "icmp", "fptosi", "fptoui", "br", "switch", "ret"):
            return
        elif result and is_active and opcode == "bitcast" and not is_floating(instruction.rest.rpartition(" to ")[2]):
            self.from_bits.add(result)
        elif result and is_active:
            self.active.add(result)
        elif result and any(name in self.from_bits for name in names):
            if opcode in ("bitcast", "sitofp", "uitofp") and is_floating(instruction.rest.rpartition(" to ")[2]):
                raise no_rule("a number made from the bits of another")
            self.from_bits.add(result)

    def _mark(self, pointer: str) -> None:
        root = self.root(pointer)
        if root not in self.shadowable:
            raise no_rule("a result written to memory that is not the function's own")
        self.memory.add(root)

    def _look_at_call(self, result: str, call: Call) -> None:
        if call.callee.startswith(_NO_EFFECT):
            return
        active = [value in self.active for _, value in call.operands]
        pointers = [value for kind, value in call.operands if kind == "ptr"]
        if call.callee in self.functions:
            if any(active) or any(self.has_shadow(p) for p in pointers):
                for pointer in pointers:
                    if self.root(pointer) in self.shadowable:
                        self.memory.add(self.root(pointer))
                        self.stored.add(self.root(pointer))
            return
        if call.callee.startswith(("llvm.memcpy", "llvm.memmove")):
            if self.has_shadow(call.operands[1][1]):
                self._mark(call.operands[0][1])
                self.stored.add(self.root(call.operands[0][1]))
            return
        if any(active) and has_floats(call.type) and plain_name(call.callee) not in CONSTANT:
            self.active.add(result)
        elif any(active) and pointers:
            raise no_rule(f"the function {call.callee}, which writes to memory")


def pointer_of(rest: str) -> str:
    """The pointer a ``getelementptr`` starts from."""
    return typed(split(take_flags(rest)[1])[1])[1]


def without_labels(instruction: Instruction) -> str:
    """The operands of an instruction; those of a phi without the blocks they come from."""
    if instruction.opcode == "phi":
        return re.sub(r",\s*%[-\w$.]+\s*\]", "]", instruction.rest)
    return instruction.rest


def no_rule(what: str) -> DifferentiationError:
    """The error that names what in a function has no derivative here."""
    return DifferentiationError(
        "op: a linked function cannot be differentiated",
        {"it uses": what},
        "give the derivatives: aj.op(f, derivatives=(df_dx, ...))",
    )
