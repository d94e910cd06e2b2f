"""A basic block as one Python function over arrays of lanes.

The function takes the wave of lanes, its memory, which lanes run (None: all) and how many. It reads the registers it
needs once, computes with NumPy, and stores what later blocks read. A value may be held under several NumPy types; a
view is made when one is first asked for, and constants are folded here. All numbers are in variables that the function
finds in its globals, so blocks that differ in nothing else share their code: compiling it is what costs most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import TypeAlias

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator import arithmetic, conversions, fused
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.ptx_text import SPECIAL, Address, Block, Instruction, Module, Negated, Operand

BlockFunction: TypeAlias = "Callable[..., Ndarray | None]"

SHARED_WINDOW = 1 << 56
LOCAL_WINDOW = 2 << 56
PARAMETER_WINDOW = 3 << 56
"""Where a block's shared memory, a thread's local memory and a launch's parameters are among generic addresses; no
address of the host or of the device's memory is as large."""

_HELPERS: dict[str, object] = {"np": np, "a": arithmetic, "c": conversions, "f": fused}

Handler = Callable[["Translator", Instruction], None]


class Translator:
    """Writes the source of one block.

    Attributes:
        held: the variables that hold a register's value, by register and NumPy type.
        constants: the value of each variable that is the same for all lanes and known now.
        mask: the variable that says which lanes an instruction is for.
    """

    def __init__(self, module: Module, block: Block, handlers: dict[str, Handler]) -> None:
        self.module, self.block, self.handlers = module, block, handlers
        self.lines: list[str] = []
        self.held: dict[int, dict[str, str]] = {}
        self.read: list[int] = []
        self.written: set[int] = set()
        self.constants: dict[str, np.generic] = {}
        self.mask: str | None = None
        self._owner: dict[str, str] = {}
        self._fixed: dict[str, object] = {}
        self._count = 0

    # -- variables

    def emit(self, expression: str, is_fresh: bool = True) -> str:
        """A new variable; ``is_fresh``: nothing else holds its array."""
        self._count += 1
        name = f"v{self._count}"
        self.lines.append(f"{name} = {expression}")
        if is_fresh:
            self._owner[name] = name
        return name

    def view(self, variable: str, kind: str) -> str:
        """The bits of a variable as another type of the same size."""
        name = self.emit(f"{variable}.view({kind!r})", False)
        if variable in self._owner:
            self._owner[name] = self._owner[variable]
        return name

    def fixed(self, value: object) -> str:
        """A variable for what is not a value of lanes: numbers of instructions, offsets of parameters, blocks."""
        name = f"n{len(self._fixed)}"
        self._fixed[name] = value
        return name

    def constant(self, value: np.generic) -> str:
        """A variable for a value that is known now."""
        self._count += 1
        name = f"k{self._count}"
        self.constants[name] = value
        return name

    def statement(self, text: str) -> None:
        """A line that gives no value."""
        self.lines.append(text)

    # -- operands

    def get(self, operand: Operand, kind: str) -> str:
        """A variable that holds an operand as a NumPy type: an array, or a number for what is known now."""
        if isinstance(operand, int):
            return self._register(operand, kind)
        if isinstance(operand, Negated):
            return self.emit(f"~{self._register(operand.register, '?')}")
        if not isinstance(operand, str):
            raise UnknownInstructionError("", f"operand {operand}")
        if SPECIAL.fullmatch(operand):
            return self._as(
                self.emit(f"W.special[{operand!r}] if ix is None else W.special[{operand!r}][ix]", False), "u4", kind
            )
        place = self.place(operand)
        if place is not None:
            return place
        return self.constant(immediate(operand, kind))

    def place(self, name: str) -> str | None:
        """The address, in its own space, of a variable, a shared or local array or a parameter."""
        name, _, offset = name.partition("+")
        if offset:
            place = self.place(name)
            return place and self.emit(f"{place} + np.uint64({int(offset, 0)})")
        declared = self.module.declared
        if name in declared.shared:
            return self.constant(np.uint64(declared.shared[name][0]))
        if name in declared.local:
            return self.constant(np.uint64(declared.local[name]))
        if name in declared.variables:
            return self.emit(f"M.variables[{name!r}]")
        if name in self.block.function.parameters:
            return self.constant(np.uint64(self.block.function.parameters[name][0]))
        return None

    def _register(self, register: int, kind: str) -> str:
        held = self.held.get(register)
        if held is None:
            held = self.held[register] = {self.module.registers[register]: f"r{len(self.read)}"}
            self.read.append(register)
        found = held.get(kind)
        if found is None:
            known, variable = next(iter(held.items()))
            found = held[kind] = self._as(variable, known, kind)
        return found

    def _as(self, variable: str, known: str, kind: str) -> str:
        """The same bits as another type: cut where it is narrower, filled with zeros where it is wider."""
        if known == kind:
            return variable
        if kind == "bf":
            return self.emit(f"c.widened({self._as(variable, known, 'u2')})")
        if variable in self.constants:
            return self.constant(_reinterpret(self.constants[variable], kind))
        if "?" in (known, kind):
            raise UnknownInstructionError("", f"a predicate as {kind}")
        if known[1] == kind[1]:
            return self.view(variable, kind)
        bits = self._as(variable, known, f"u{known[1]}")
        resized = self.emit(f"{bits}.astype('u{kind[1]}')")
        return self._as(resized, f"u{kind[1]}", kind)

    def address(self, operand: Operand) -> str:
        """An address as an array or a number of 64 bits."""
        if not isinstance(operand, Address):
            raise UnknownInstructionError("", f"{operand} where an address is expected")
        base = self.get(operand.base, "u8")
        if operand.offset == 0:
            return base
        offset = np.uint64(operand.offset & ((1 << 64) - 1))
        if base in self.constants:
            return self.constant(np.uint64(int(self.constants[base]) + operand.offset & ((1 << 64) - 1)))
        return self.emit(f"{base} + {self.constant(offset)}")

    # -- results

    def put(self, operand: Operand, kind: str, expression: str, is_fresh: bool = True) -> None:
        """Give a register a value; lanes whose predicate fails keep theirs. ``_`` takes nothing."""
        if operand == "_":
            self.statement(expression)
            return
        if not isinstance(operand, int):
            raise UnknownInstructionError("", f"{operand} is no register")
        register = self.module.registers[operand]
        if kind == "bf":
            expression, kind = f"c.to_bfloat({expression})", "u2"
        value = expression if expression in self.constants else self.emit(expression, is_fresh)
        if kind[-1] != register[-1]:
            value, kind = self._resized(value, kind, register)
        if self.mask is not None:
            value = self.emit(f"np.where({self.mask}, {value}, {self.get(operand, kind)})")
        self.held[operand] = {kind: value}
        self.written.add(operand)

    def _resized(self, value: str, kind: str, register: str) -> tuple[str, str]:
        """What is narrower than its register is filled up: by its sign where it has one."""
        if "?" in (kind, register) or kind[1] > register[1]:
            raise UnknownInstructionError("", f"{kind} in a register of {register}")
        if value in self.constants:
            return self.constant(self.constants[value].astype(kind[0] + register[1])), kind[0] + register[1]
        if kind[0] == "i":
            return self.emit(f"{value}.astype('i{register[1]}')"), f"i{register[1]}"
        bits = value if kind[0] == "u" else self.view(value, f"u{kind[1]}")
        return self.emit(f"{bits}.astype({register!r})"), register

    # -- the whole

    def function(self) -> BlockFunction:
        """Translate and compile."""
        for instruction in self.block.instructions:
            self._translate(instruction)
        result = self._next_blocks()
        keeping = self._keeping()
        body = [*self._reading(), *self.lines, *keeping, f"return {result}"]
        source = "def block(W, M, ix, n):\n" + "".join(f"  {line}\n" for line in body)
        space: dict[str, object] = {**_HELPERS, **self.constants, **self._fixed}
        exec(_compiled(source), space)  # the only way to a function of a text
        found: object = space["block"]
        assert callable(found)
        return found

    def _translate(self, instruction: Instruction) -> None:
        handler = self.handlers.get(instruction.opcode[0])
        if handler is None:
            raise UnknownInstructionError(instruction.text)
        self.mask = None
        if instruction.predicate is not None:
            mask = self._register(instruction.predicate, "?")
            self.mask = self.emit(f"~{mask}") if instruction.is_negated else mask
        try:
            handler(self, instruction)
        except UnknownInstructionError as error:
            raise UnknownInstructionError(instruction.text, str(error.facts.get("why", ""))) from None
        except (KeyError, ValueError, IndexError) as error:
            raise UnknownInstructionError(instruction.text, f"{type(error).__name__} {error}") from None

    def _next_blocks(self) -> str:
        """For conditional ends: the next block of each lane, -1 for those that return."""
        end = self.block.end
        if end is not None and end.opcode[0] == "brx":
            self.mask = None
            table = self.fixed(np.array(self.block.targets))
            return f"{table}[{self.get(end.operands[0], 'u4')}]"
        if end is None or end.predicate is None or end.opcode[0] not in ("bra", "ret", "exit", "trap"):
            return "None"
        self.mask = None
        taken = self._register(end.predicate, "?")
        target = self.block.target if end.opcode[0] == "bra" else -1
        there, onward = (self.block.number + 1, target) if end.is_negated else (target, self.block.number + 1)
        if taken in self.constants:
            taken = self.emit(f"np.full(n, {taken})")
        return f"np.where({taken}, {self.fixed(there)}, {self.fixed(onward)})"

    def _reading(self) -> list[str]:
        if not self.read:
            return []
        names = "".join(f"r{k}, " for k in range(len(self.read)))
        return [f"{names}= W.read(ix, {self.fixed(tuple(self.read))})"]

    def _keeping(self) -> list[str]:
        """Stores what later blocks read: copies of what something else holds, since registers change in place."""
        registers: list[int] = []
        values: list[str] = []
        taken: set[str] = set()
        for register in sorted(self.written):
            if not self.block.keeps >> register & 1:
                continue
            value = self._register(register, self.module.registers[register])
            owner = self._owner.get(value)
            registers.append(register)
            if value in self.constants:
                values.append(f"np.full(n, {value})")
            elif owner is None or owner in taken:
                values.append(f"{value}.copy()")
            else:
                taken.add(owner)
                values.append(value)
        if not registers:
            return []
        return [f"W.keep(ix, {self.fixed(tuple(registers))}, ({', '.join(values)},))"]


def immediate(text: str, kind: str) -> np.generic:
    """The value of an operand that is written out: the bits of a float, an integer, a truth value."""
    if text in ("true", "false"):
        return np.bool_(text == "true")
    if text[:2] in ("0f", "0F"):
        single = np.uint32(int(text[2:], 16))
        return _reinterpret(single, "f4") if kind == "bf" else _reinterpret(single, kind)
    if text[:2] in ("0d", "0D"):
        return _reinterpret(np.uint64(int(text[2:], 16)), kind)
    try:
        number = int(text.rstrip("U"), 0)
    except ValueError:
        raise UnknownInstructionError(text, "neither a number nor a name that is declared") from None
    if kind == "?":
        return np.bool_(number != 0)
    if kind == "bf":
        return _reinterpret(np.uint32((number & 0xFFFF) << 16), "f4")
    width = int(kind[1])
    return _number(np.array([number & ((1 << 8 * width) - 1)], "u8").astype(f"u{width}").view(kind))


def _reinterpret(value: np.generic, kind: str) -> np.generic:
    bits = np.atleast_1d(np.asarray(value))
    return _number(bits.view(f"u{bits.dtype.itemsize}").astype(f"u{kind[1]}").view(kind))


def _number(values: Ndarray) -> np.generic:
    number = values[0]
    assert isinstance(number, np.generic)
    return number


@lru_cache(maxsize=8192)
def _compiled(source: str) -> CodeType:
    return compile(source, __file__, "exec")  # as this file's, so that errors do not take it for a user's line
