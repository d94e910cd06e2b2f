"""The size program of a plan: which words of it depend on the sizes of a call, and how they are computed.

`SizeProgram` collects words while a plan is written (`word`, `slot`, `region`), then lays itself out for the native
code of `codegen.cpu.plan.sizes`. Temporaries of symbolic size are in an arena that grows when a call needs more than
any before, one for each device. What depends on a size that the step counts itself is a program of its own, a *stage*,
with arenas of its own.

How to read: `_Slot`, the collecting methods, `finish`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autojit.codegen.cpu.plan.records import OPERATIONS, Instruction, SizeProgramWords, WrittenWord
from autojit.core.device import CPU, Device
from autojit.core.errors import SpecializeSize
from autojit.core.records import record
from autojit.core.size_expressions import Atom, Expression
from autojit.core.sizes import expression_of, is_symbolic
from autojit.core.types import TensorType
from autojit.runtime.memory import arena_at, bucket_size

Grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_Room = tuple[int, Device]
"""A stage, and the device whose memory it needs."""

NEVER = -1  # no size: the first call evaluates everything


@record(frozen=False)
class _Slot:
    """A word of the table: its first value, the stage that knows it, and whether it is an address."""

    value: int
    stage: int = 0
    is_address: bool = False


class SizeProgram:
    """Sizes by slots of one table of 64-bit words; the first slots are ``symbols``, then ``counted``.

    Args:
        inputs: types of the arrays a call brings; a symbol is known from the first axis whose extent it is.
        counted: names of the sizes that the step counts, in the order in which it does.
        caught: told what went wrong when memory could not be had.
        make_arena: gives memory of a device.
    """

    def __init__(
        self,
        inputs: Sequence[TensorType],
        counted: Sequence[str],
        caught: Callable[[BaseException], None],
        make_arena: Callable[[Device, int], Any] = arena_at,
    ) -> None:
        self.sources = symbol_sources(inputs)
        self.symbols = tuple(self.sources)
        self.counted = tuple(counted)
        self.caught = caught
        self._slots: list[_Slot] = [_Slot(NEVER) for _ in self.symbols]
        self._slots += [_Slot(0, stage) for stage in range(1, len(self.counted) + 1)]
        self._found: dict[object, int] = {name: k for k, name in enumerate((*self.symbols, *self.counted))}
        self._instructions: list[Instruction] = []
        self._fixes: list[WrittenWord] = []
        self._places: list[tuple[int, int]] = []  # (address to write, slot whose address it gets)
        self._regions: dict[_Room, list[tuple[int, int]]] = {}  # (slot of the address, slot of the size)
        self._keep: list[Any] = []
        self._programs, self._program = self._words([0] * (len(SizeProgramWords.fields) * (1 + len(self.counted))))
        self._memory: dict[_Room, tuple[int, int]] = {}  # slots of the arena's length and address
        self._arenas: dict[_Room, Any] = {}
        self._make_arena = make_arena

    # -- collecting

    def word(self, size: int, address: int) -> int:
        """What to write at an address now; symbolic sizes are written there by the program."""
        if not is_symbolic(size):
            return size
        self.fix(address, self.slot(size))
        return 0

    def at_start(self, size: int) -> None:
        """Refuse a size that is not known when a call begins."""
        late = [name for name in expression_of(size).symbols() if name in self.counted]
        if late:
            raise SpecializeSize(tuple(late), "a place in an argument or a result depends on it")

    def fix(self, address: int, slot: int) -> None:
        """The word at the address is that of a slot."""
        self._fixes.append(WrittenWord(address=address, place=slot))

    def point(self, address: int, name: str) -> None:
        """The word at the address is the address of a counted size."""
        self._places.append((address, self._named(name)))

    def slot(self, size: int) -> int:
        """The slot of a size, or of a number."""
        return self.expression(expression_of(size))

    def sum(self, left: int, right: int) -> int:
        """The slot of the sum of two slots."""
        return self._compute("add", left, right)

    def address_slot(self, address: int) -> int:
        """The slot of an address that is known by now."""
        found = self._found.get(("address", address))
        if found is None:
            found = self._found["address", address] = self._new(_Slot(address, is_address=True))
        return found

    def region(self, size: int, device: Device = CPU) -> int:
        """The slot of the address of memory of its own; it is there from the stage on that knows the size."""
        length = self.slot(size)
        stage = self._slots[length].stage
        found = self._new(_Slot(0, stage, is_address=True))
        self._regions.setdefault((stage, device), []).append((found, length))
        return found

    def stage(self, name: str) -> int:
        """Address of the program to run when a size was counted."""
        return self._program + SizeProgramWords.size_bytes * (1 + self.counted.index(name))

    def expression(self, expression: Expression) -> int:
        """The slot of an expression."""
        found = self._found.get(expression)
        if found is not None:
            return found
        total: int | None = None
        for monomial, coefficient in expression.terms:
            slot = self._number(coefficient) if coefficient != 1 or not monomial else None
            for atom in monomial:
                factor = self._atom(atom)
                slot = factor if slot is None else self._compute("multiply", *sorted((slot, factor)))
            assert slot is not None
            total = slot if total is None else self._compute("add", total, slot)
        if total is None:
            total = self._number(0)
        self._found[expression] = total
        return total

    def _atom(self, atom: Atom) -> int:
        if atom.kind == "symbol":
            return self._named(atom.operands[0])
        left, right = (self.expression(operand) for operand in atom.operands)
        return self._compute(atom.kind, left, right)

    def _named(self, name: str) -> int:
        if name not in self._found:
            raise SpecializeSize((name,), "no argument has this size as an extent, and the step does not count it")
        return self._found[name]

    def _number(self, value: int) -> int:
        found = self._found.get(("number", value))
        if found is None:
            found = self._found["number", value] = self._new(_Slot(value))
        return found

    def _compute(self, name: str, left: int, right: int) -> int:
        found = self._found.get((name, left, right))
        if found is None:
            found = self._found[name, left, right] = self._instruct(name, left, right)
        return found

    def _instruct(self, name: str, left: int, right: int) -> int:
        a, b = self._slots[left], self._slots[right]
        target = self._new(_Slot(0, max(a.stage, b.stage), a.is_address or b.is_address))
        self._instructions.append(_instruction(name, target, left, right))
        return target

    def _new(self, slot: _Slot) -> int:
        self._slots.append(slot)
        return len(self._slots) - 1

    # -- layout

    def finish(self) -> int:
        """Lay the program out; its address, which the plan holds."""
        layouts: dict[int, list[Instruction]] = {}
        for room in self._regions:
            layouts.setdefault(room[0], []).extend(self._lay_regions(room))
        self.table, base = self._table([slot.value for slot in self._slots])
        self._last, self._before = self._words([NEVER] * max(len(self.symbols), 1))
        grower = self._grower()
        for stage in range(1 + len(self.counted)):
            sizes = self._instructions_of(stage, addresses=False)
            addresses = self._instructions_of(stage, addresses=True)
            self._write(stage, [*sizes, *layouts.get(stage, ()), *addresses], base, grower)
        for address, slot in self._places:
            self._set(address, base + 8 * slot)
        return self._program

    def _words(self, values: Sequence[int]) -> tuple[Any, int]:
        """Words that native code reads, and their address."""
        block = np.array(values, np.int64)
        self._keep.append(block)
        return block, int(block.ctypes.data)

    def _table(self, values: Sequence[int]) -> tuple[Any, int]:
        """The words of the table, and their address."""
        return self._words(values)

    def _set(self, address: int, value: int) -> None:
        """Write a word of the plan."""
        ctypes.c_int64.from_address(address).value = value

    def _grower(self) -> int:
        """The address of what gives native code memory."""
        grower = Grow(self._grow)
        self._keep.append(grower)
        return ctypes.cast(grower, ctypes.c_void_p).value or 0

    def _lay_regions(self, room: _Room) -> list[Instruction]:
        """A stage's regions on a device follow each other in a growing arena: instructions that work out where."""
        start = len(self._instructions)
        ends = [self._number(0)]
        for _, size in self._regions[room]:
            ends.append(self._instruct("add", ends[-1], size))
        capacity, base = self._memory[room] = self._new(_Slot(0, room[0])), self._new(_Slot(0, room[0]))
        found = self._instructions[start:]
        del self._instructions[start:]
        found.append(_instruction("reserve", base, ends[-1], capacity))
        for (address, _), end in zip(self._regions[room], ends, strict=False):
            found.append(_instruction("add", address, base, end))
        return found

    def _instructions_of(self, stage: int, *, addresses: bool) -> list[Instruction]:
        found = ((i, self._slots[i.target]) for i in self._instructions)
        return [i for i, slot in found if slot.stage == stage and slot.is_address is addresses]

    def _write(self, stage: int, instructions: list[Instruction], table: int, grower: int) -> None:
        fixes = [fix for fix in self._fixes if self._slots[fix.place].stage == stage]
        steps = self._words([word for instruction in instructions for word in instruction])[1]
        written = self._words([word for fix in fixes for word in fix])[1]
        always = bool(stage) or not self.symbols  # no symbol tells that nothing has changed
        first = stage * len(SizeProgramWords.fields)
        self._programs[first : first + len(SizeProgramWords.fields)] = SizeProgramWords(
            n_symbols=-1 if always else len(self.symbols),
            table=table,
            before=self._before,
            n_instructions=len(instructions),
            instructions=steps,
            n_written=len(fixes),
            written=written,
            grow=grower,
        )

    # -- running

    def _grow(self, size_bytes: int, capacity: int, table: int) -> int:
        room, base = next((room, base) for room, (length, base) in self._memory.items() if length == capacity)
        try:
            arena = self._make_arena(room[1], bucket_size(size_bytes))
        except BaseException as error:  # must not cross native code: raised when the step has ended
            self.caught(error)
            self._last[:] = NEVER
            return int(self.table[base])
        self._arenas[room] = arena
        self.table[capacity] = arena.size_bytes
        return int(arena.address)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arenas that have grown so far."""
        return sum(arena.size_bytes for arena in self._arenas.values())

    def release_arenas(self) -> None:
        """Unmap the arenas: the next call finds no capacity and grows them again."""
        for room in self._arenas:
            self.table[self._memory[room][0]] = 0
        self.forget()
        self._arenas.clear()

    def forget(self) -> None:
        """Let the next call work everything out, whatever its sizes."""
        self._last[:] = NEVER

    def address(self, slot: int) -> int:
        """The address that a region had in the last call."""
        return int(self.table[slot])

    def values(self) -> dict[str, int]:
        """The values of all sizes in the call that runs, or in the last one."""
        return dict(zip((*self.symbols, *self.counted), map(int, self.table), strict=False))

    def set_sizes(self, sizes: Sequence[int]) -> None:
        """The symbols' values for the next call."""
        self.table[: len(self.symbols)] = sizes


def _instruction(name: str, target: int, left: int, right: int) -> Instruction:
    return Instruction(operation=OPERATIONS.index(name), target=target, left=left, right=right)


def symbol_sources(inputs: Sequence[TensorType]) -> dict[str, tuple[int, int]]:
    """For every symbol that is an extent of an input: (input, axis) of the first one, in order."""
    found: dict[str, tuple[int, int]] = {}
    for position, type in enumerate(inputs):
        for axis, extent in enumerate(type.shape):
            if not is_symbolic(extent):
                continue
            terms = expression_of(extent).terms
            if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0].kind == "symbol":
                found.setdefault(terms[0][0][0].operands[0], (position, axis))
    return found


def sizes_of(shapes: Sequence[tuple[int, ...]], sources: Mapping[str, tuple[int, int]]) -> tuple[int, ...]:
    """The symbols' values in a call with arrays of these shapes."""
    return tuple(shapes[position][axis] for position, axis in sources.values())
