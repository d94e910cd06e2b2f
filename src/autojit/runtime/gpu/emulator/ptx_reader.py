"""Reads a text of PTX, once.

A call is a jump: what the caller stores as an argument, and what the callee stores as its result, are registers that
both name, since no function here recurses.
"""

from __future__ import annotations

import re
from functools import lru_cache

from autojit.core.errors import CompileError
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.liveness import find_live_registers
from autojit.runtime.gpu.emulator.ptx_declarations import KINDS, parameter_offsets
from autojit.runtime.gpu.emulator.ptx_text import (
    ENDS,
    SET_CONDITION,
    SPECIAL,
    Address,
    Block,
    FunctionText,
    Instruction,
    Module,
    Negated,
    Operand,
)

_CONDITIONAL = frozenset({"bra", "ret", "exit", "trap"})
_ORDERS = frozenset({"acquire", "release", "acq_rel"})
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*\.(?:loc|file)\b[^\n]*", re.MULTILINE | re.DOTALL)
_STATEMENT = re.compile(r"\s*(?:([$%\w]+):(?!:)|([{}])|(\.[^;]*);|([@a-z][^;]*);)")
_INSTRUCTION = re.compile(r"(?:@(!?)([%$\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\{[^{}]*\}|\[[^\]]*\]|\([^)]*\)|[^\s,|]+")
_AT_ONCE = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "fence.proxy.async")
"""What orders products of groups of warps, which are done at once here."""
_ADDRESS = re.compile(r"\[\s*([%$\w.]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_FUNCTION = re.compile(r"\.(entry|func)\s*(\([^)]*\))?\s*([\w$.]+)\s*(?:\(([^)]*)\))?\s*([^;{]*)([;{])")
_THREADS = re.compile(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


@lru_cache(maxsize=4096)
def parse(text: str) -> Module:
    """A module of a text.

    Raises:
        CompileError: the text has no kernel, or something that the emulated device does not know.
    """
    module = Module()
    clean = _COMMENT.sub("", text)
    outside: list[str] = []
    bodies: list[tuple[FunctionText, str]] = []
    position = 0
    while (match := _FUNCTION.search(clean, position)) is not None:
        outside.append(clean[position : match.start()])
        position = match.end()
        if match[6] == ";":
            continue
        end = _closing(clean, position)
        parameters, size = parameter_offsets(match[4] or "")
        threads = _THREADS.search(match[5])
        most = 1
        for extent in threads.groups() if threads else ():
            most *= int(extent or 1)
        kernel = FunctionText(match[3], match[1] == "entry", -1, parameters, size, most if threads else 0)
        bodies.append((kernel, clean[position:end]))
        position = end + 1
    outside.append(clean[position:])
    for statement in "".join(outside).split(";"):
        if re.search(r"\.(shared|global|const|local)\s", statement):
            module.declared.add(" ".join(statement.split()))
    known = {function.name: function for function, _ in bodies}
    for function, body in bodies:
        _Body(module, function, known).read(body)
    module.declared.finish()
    if not any(function.is_kernel for function in module.functions.values()):
        raise CompileError("emulated device: a text of PTX has no kernel", facts={"text": text[:200]})
    find_live_registers(module)
    return module


def _closing(text: str, position: int) -> int:
    depth = 1
    for match in re.compile("[{}]").finditer(text, position):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    raise CompileError("emulated device: a brace is not closed in a text of PTX", facts={"text": text[:200]})


class _Body:
    """Reads the body of one function into a module."""

    def __init__(self, module: Module, function: FunctionText, known: dict[str, FunctionText]) -> None:
        self.module, self.known = module, known
        first = len(module.blocks)
        self.function = FunctionText(
            function.name,
            function.is_kernel,
            first,
            function.parameters,
            function.parameter_bytes,
            function.most_threads,
        )
        module.functions[function.name] = self.function
        self.named: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.jump_tables: dict[str, list[str]] = {}
        self._last_label = ""
        self.stored: dict[str, list[tuple[Instruction, int]]] = {}
        self.returned: dict[str, str] = {}
        self.block = self._begin()

    def read(self, body: str) -> None:
        """Read it whole."""
        position = 0
        while (match := _STATEMENT.match(body, position)) is not None:
            position = match.end()
            label, _, directive, instruction = match.groups()
            if instruction is not None:
                self._instruction(instruction)
            elif label is not None:
                self.labels[label] = self._begin().number
                self._last_label = label
            elif directive is not None:
                self._directive(directive)
        if body[position:].strip():
            raise UnknownInstructionError(" ".join(body[position : position + 80].split()), "no statement of PTX")
        self._instruction("ret")  # who runs past the end returns
        for block in self.module.blocks[self.function.first :]:
            if block.end is not None and block.end.opcode[0] == "bra":
                block.target = self._label(str(block.end.operands[0]))
            if block.end is not None and block.end.opcode[0] == "brx":
                table = self.jump_tables.get(str(block.end.operands[1]), [])
                block.targets = tuple(self._label(label) for label in table)

    def _begin(self) -> Block:
        self.block = Block(len(self.module.blocks), self.function)
        self.module.blocks.append(self.block)
        return self.block

    def _directive(self, text: str) -> None:
        words = text.split(None, 2)
        if words[0] == ".reg":
            kind = KINDS.get(words[1][1:], "u8" if words[1] == ".b128" else "")
            stored = {"f2": "u2", "f4": "u4", "f8": "u8", "bf": "u2", "": "u4"}.get(kind, kind.replace("i", "u"))
            for name in words[2].replace(" ", "").split(","):
                begin, _, count = name.rstrip(">").partition("<")
                names = [f"{begin}{k}" for k in range(int(count))] if count else [begin]
                for each in names:
                    self.named[each] = self.module.new_register(stored)
        elif words[0] in (".shared", ".local"):
            self.module.declared.add(" ".join(text.split()))
        elif words[0] == ".branchtargets":
            self.jump_tables[self._last_label] = [word.strip() for word in text.split(None, 1)[1].split(",")]

    def _operand(self, text: str) -> Operand:
        found = self.named.get(text)
        if found is not None:
            return found
        if text[0] == "[":
            match = _ADDRESS.fullmatch(text)
            if match is None:
                raise UnknownInstructionError(text, "an address of this form")
            return Address(self.named.get(match[1], match[1]), int(match[2] or "0", 0))
        if text[0] in "{(":
            return tuple(self._operand(part) for part in _OPERAND.findall(text[1:-1]))
        if text[0] == "!":
            return Negated(self._declared(text[1:]))
        return text if text[0] != "%" or SPECIAL.fullmatch(text) else self._declared(text)

    def _declared(self, name: str) -> int:
        if name not in self.named:
            raise UnknownInstructionError(name, "a register that is not declared")
        return self.named[name]

    def _label(self, name: str) -> int:
        if name not in self.labels:
            raise UnknownInstructionError(f"bra {name}", "a label that is not there")
        return self.labels[name]

    def _instruction(self, text: str) -> None:
        match = _INSTRUCTION.fullmatch(text)
        if match is None:
            raise UnknownInstructionError(" ".join(text.split()))
        negated, predicate, opcode, rest = match.groups()
        operands = tuple(self._operand(part) for part in _OPERAND.findall(rest))
        if "|" in rest:
            operands = (operands[:2], *operands[2:])
        if opcode.startswith(_AT_ONCE):
            return
        made = Instruction(len(self.module.instructions), " ".join(text.split()), tuple(opcode.split(".")), operands)
        if predicate is not None:
            made.predicate, made.is_negated = self._declared(predicate), bool(negated)
        self.module.instructions.append(made)
        name = made.opcode[0]
        self.module.synchronises |= name in ("fence", "membar") or not _ORDERS.isdisjoint(made.opcode)
        if name in ("ld", "st") and made.opcode[1] == "param":
            self._passing(made)
        if name == "call":
            self._call(made)
            name = made.opcode[0]
        made.find_registers()
        if name in ("addc", "subc", "madc"):
            made.uses |= {self.module.passed("", "carry", 0, "?")}
        if "cc" in made.opcode:
            made.defines |= {self.module.passed("", "carry", 0, "?")}
        if name in ENDS:
            if predicate is not None and name not in _CONDITIONAL:
                raise UnknownInstructionError(made.text, "a predicate")
            self.block.end = made
            self._begin()
        else:
            self.block.instructions.append(made)

    def _passing(self, made: Instruction) -> None:
        """Make a move between registers of what passes an argument or a result."""
        is_load = made.opcode[0] == "ld"
        address, other = made.operands[1 if is_load else 0], made.operands[0 if is_load else 1]
        assert isinstance(address, Address)
        name = address.base
        if not isinstance(name, str) or (self.function.is_kernel and name in self.function.parameters):
            return
        parts = other if isinstance(other, tuple) else (other,)
        kind = KINDS[made.opcode[-1]].replace("bf", "u2")
        offsets = [address.offset + k * int(kind[1]) for k in range(len(parts))]
        owner = self.function.name if name in self.function.parameters or name.startswith("func_retval") else ""
        if is_load and not owner:
            owner, name = self.returned[name], "func_retval0"
        registers = tuple(self.module.passed(owner, name, offset, f"u{kind[1]}") for offset in offsets)
        made.opcode = ("pass", made.opcode[-1])
        made.operands = (parts, registers) if is_load else (registers, parts)
        if not owner:
            self.stored.setdefault(name, []).append((made, address.offset))

    def _call(self, made: Instruction) -> None:
        """Let the stores of its arguments be stores to the callee's parameters."""
        operands = list(made.operands)
        if operands and isinstance(operands[0], tuple):
            result = operands.pop(0)
            assert isinstance(result, tuple)
            for name in result:
                self.returned[str(name)] = str(operands[0])
        if operands[0] == SET_CONDITION and operands[0] not in self.known:
            self._set_condition(made, operands[1])
            return
        callee = self.known.get(str(operands[0]))
        if callee is None:
            raise UnknownInstructionError(made.text, "the function that is called is not in the text")
        arguments = operands[1] if len(operands) > 1 else ()
        assert isinstance(arguments, tuple)
        for argument, formal in zip(arguments, callee.parameters):
            for store, offset in self.stored.pop(str(argument), []):
                width = int(KINDS[store.opcode[-1]].replace("bf", "u2")[1])
                parts = store.operands[1]
                assert isinstance(parts, tuple)
                places = [offset + k * width for k in range(len(parts))]
                targets = tuple(self.module.passed(callee.name, formal, place, f"u{width}") for place in places)
                store.operands = (targets, parts)
                store.find_registers()
        made.operands = (callee.name,)

    def _set_condition(self, made: Instruction, arguments: Operand) -> None:
        """What the driver's function is given: a handle and a number, in the registers that stand for its arguments."""
        assert isinstance(arguments, tuple)
        widths = "u8", "u4"
        made.operands = tuple(
            self.module.passed("", str(name), 0, width) for name, width in zip(arguments, widths, strict=True)
        )
        made.opcode = (SET_CONDITION,)
        for name in arguments:
            self.stored.pop(str(name), None)
