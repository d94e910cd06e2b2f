"""A text of PTX as data: kernels, functions, variables, and basic blocks with what each reads and keeps.

Registers are numbered through the whole module. A block ends where lanes may part or must meet: at branches, barriers,
calls, and at what a whole warp does together. `ptx_reader` makes this of a text.
"""

from __future__ import annotations

import itertools
import re

from autojit.core.records import record
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.ptx_declarations import Declared

SET_CONDITION = "cudaGraphSetConditional"
"""A function that the driver has: a call of it is one instruction."""

WARP_OPERATIONS = frozenset({"shfl", "vote", "match", "redux", "mma", "ldmatrix", "elect", "wgmma"})
SPECIAL = re.compile(r"%(?:n?tid|n?ctaid)\.[xyz]|%laneid|%warpid|%nwarpid|%globaltimer|%clock(?:64)?|%lanemask_\w\w")
ENDS = WARP_OPERATIONS | {"bra", "brx", "ret", "exit", "bar", "barrier", "call", "trap"}
_NO_RESULT = ENDS - WARP_OPERATIONS | frozenset(
    {
        "st",
        "red",
        "membar",
        "fence",
        "cp",
        "prefetch",
        "prefetchu",
        "discard",
        "nanosleep",
        "griddepcontrol",
        SET_CONDITION,
    }
)


@record
class Address:
    """``[base + offset]``; the base is a register's number, or the name of a variable or parameter."""

    base: int | str
    offset: int


@record
class Negated:
    """The opposite of a predicate."""

    register: int


Operand = int | str | Address | Negated | tuple["Operand", ...]
"""A register's number, the text of an immediate or of a name, or several operands in braces or around a bar."""


class Instruction:
    """One instruction; ``number`` is its place in the module."""

    __slots__ = ("defines", "is_negated", "number", "opcode", "operands", "predicate", "text", "uses")

    def __init__(self, number: int, text: str, opcode: tuple[str, ...], operands: tuple[Operand, ...]) -> None:
        self.number, self.text, self.opcode, self.operands = number, text, opcode, operands
        self.predicate: int | None = None
        self.is_negated = False
        self.defines: frozenset[int] = frozenset()
        self.uses: frozenset[int] = frozenset()

    def find_registers(self) -> None:
        """Fill ``defines`` and ``uses``; where a predicate fails, a register keeps what it was; some add to it."""
        gives = self.opcode[0] not in _NO_RESULT or self.opcode[1:2] == ("red",)
        has_result = gives and bool(self.operands)
        self.defines = registers_of(self.operands[:1]) if has_result else frozenset()
        uses = registers_of(self.operands[1:] if has_result else self.operands)
        if self.predicate is not None or self.opcode[0] == "wgmma":
            uses |= self.defines
        if self.predicate is not None:
            uses |= {self.predicate}
        self.uses = uses


class Block:
    """Instructions without a jump, then at most one that ends them.

    Attributes:
        target: the block that a branch goes to, or the first of the function that is called.
        targets: where a jump by a number goes.
        live_in: registers that are read from here on, as bits.
        keeps: registers that this block defines and a later one reads, as bits.
    """

    __slots__ = ("end", "function", "instructions", "keeps", "live_in", "number", "target", "targets")

    def __init__(self, number: int, function: FunctionText) -> None:
        self.number, self.function = number, function
        self.instructions: list[Instruction] = []
        self.end: Instruction | None = None
        self.target = -1
        self.targets: tuple[int, ...] = ()
        self.live_in = 0
        self.keeps = 0


@record(eq=False)
class FunctionText:
    """A kernel, or a function that kernels call.

    Args:
        first: its first block.
        parameters: where each begins in the parameters' bytes, and its size.
        parameter_bytes: of all.
        most_threads: that a block may have; 0 where the text does not say.
    """

    name: str
    is_kernel: bool
    first: int
    parameters: dict[str, tuple[int, int]]
    parameter_bytes: int
    most_threads: int


class Module:
    """All that a text says.

    Attributes:
        registers: the NumPy type of each.
        instructions: by number.
        blocks: of all functions.
        functions: by name.
        declared: its variables.
        lasting: registers that hold a value from one block to another.
        synchronises: whether anything in it orders what blocks do.
    """

    def __init__(self) -> None:
        self.lasting: list[int] = []
        self.synchronises = False
        self.registers: list[str] = []
        self.instructions: list[Instruction] = []
        self.blocks: list[Block] = []
        self.functions: dict[str, FunctionText] = {}
        self.declared = Declared()
        self._parts: dict[tuple[str, str], dict[int, int]] = {}

    def new_register(self, kind: str) -> int:
        """A register that has no name."""
        self.registers.append(kind)
        return len(self.registers) - 1

    def passed(self, function: str, parameter: str, offset: int, kind: str) -> int:
        """The register that stands for a part of a function's parameter, or of its result.

        Who reads less than was stored reads its lowest bytes; parts that overlap otherwise are not known.
        """
        parts = self._parts.setdefault((function, parameter), {})
        found = parts.get(offset)
        if found is None:
            found = parts[offset] = self.new_register(kind)
        elif int(kind[1:] or 1) > int(self.registers[found][1:] or 1):
            self.registers[found] = kind
        ends = [(begin, begin + int(self.registers[k][1:] or 1)) for begin, k in sorted(parts.items())]
        if any(end > begin for (_, end), (begin, _) in itertools.pairwise(ends)):
            raise UnknownInstructionError(f"{parameter}+{offset}", f"parts of a parameter of {function} overlap")
        return found


def registers_of(operands: tuple[Operand, ...]) -> frozenset[int]:
    """All registers that operands name."""
    found: set[int] = set()
    for operand in operands:
        if isinstance(operand, int):
            found.add(operand)
        elif isinstance(operand, tuple):
            found |= registers_of(operand)
        elif isinstance(operand, Address):
            if isinstance(operand.base, int):
                found.add(operand.base)
        elif isinstance(operand, Negated):
            found.add(operand.register)
    return frozenset(found)
