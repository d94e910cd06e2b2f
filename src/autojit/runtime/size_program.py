"""The size program of a plan: which words of it depend on the sizes of a call, and how they are computed.

`SizeProgram` collects words while a plan is written (`word`, `slot`), then lays itself out for the native code of
``codegen.cpu.size_ir``. Temporaries of symbolic size lie in an arena that grows when a call needs more than any before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autojit.codegen.cpu.size_ir import OPERATIONS
from autojit.core.errors import SpecializeSize
from autojit.core.size_expressions import Atom, Expression
from autojit.core.sizes import expression_of, is_symbolic
from autojit.core.types import TensorType
from autojit.runtime.memory import Arena, bucket_size
from autojit.schedule.memory import aligned

Grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
NEVER = -1  # no size: the first call evaluates everything


class SizeProgram:
    """Sizes by slots of one table of 64-bit words; the first slots are those of ``symbols``.

    Args:
        inputs: types of the arrays a call brings; a symbol is known from the first axis whose extent it is.
        caught: told what went wrong when memory could not be had.
    """

    def __init__(self, inputs: Sequence[TensorType], caught: Callable[[BaseException], None]) -> None:
        self.sources = symbol_sources(inputs)
        self.symbols = tuple(self.sources)
        self.caught = caught
        self._values: list[int] = [NEVER] * len(self.symbols)
        self._slots: dict[object, int] = {name: k for k, name in enumerate(self.symbols)}
        self._instructions: list[tuple[int, int, int, int]] = []
        self._fixes: list[tuple[int, int]] = []
        self._regions: list[int] = []  # slots of the addresses
        self._arena: Arena | None = None

    # -- collecting

    def word(self, size: int, address: int) -> int:
        """What to write at an address now; symbolic sizes are written there by the program."""
        if not is_symbolic(size):
            return size
        self._fixes.append((address, self.slot(size)))
        return 0

    def fix(self, address: int, slot: int) -> None:
        """The word at the address is that of a slot."""
        self._fixes.append((address, slot))

    def slot(self, size: int) -> int:
        """The slot of a size, or of a number."""
        return self._expression(expression_of(size))

    def sum(self, left: int, right: int) -> int:
        """The slot of the sum of two slots."""
        return self._compute("add", left, right)

    def lay_regions(self, sizes: Sequence[int]) -> list[int]:
        """Slots of the addresses of regions that follow each other in the growing arena."""
        ends = [self.slot(0)]
        for size in sizes:
            ends.append(self.sum(ends[-1], self.slot(aligned(size))))
        capacity = self._new_slot(0)
        base = self._new_slot(0)
        self._capacity, self._base = capacity, base
        self._instructions.append((OPERATIONS.index("reserve"), base, ends[-1], capacity))
        return [self._instruct("add", base, end) for end in ends[:-1]]

    def _expression(self, expression: Expression) -> int:
        found = self._slots.get(expression)
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
        self._slots[expression] = total
        return total

    def _atom(self, atom: Atom) -> int:
        if atom.kind == "symbol":
            name = atom.operands[0]
            if name not in self._slots:
                raise SpecializeSize((name,), "no argument has this size as an extent")
            return self._slots[name]
        left, right = (self._expression(operand) for operand in atom.operands)
        return self._compute(atom.kind, left, right)

    def _number(self, value: int) -> int:
        found = self._slots.get(("number", value))
        if found is None:
            found = self._slots["number", value] = self._new_slot(value)
        return found

    def _compute(self, name: str, left: int, right: int) -> int:
        found = self._slots.get((name, left, right))
        if found is None:
            found = self._slots[name, left, right] = self._instruct(name, left, right)
        return found

    def _instruct(self, name: str, left: int, right: int) -> int:
        target = self._new_slot(0)
        self._instructions.append((OPERATIONS.index(name), target, left, right))
        return target

    def _new_slot(self, value: int) -> int:
        self._values.append(value)
        return len(self._values) - 1

    # -- running

    def finish(self) -> int:
        """Lay the program out; its address, which the plan holds."""
        self.table = np.array(self._values, np.int64)
        self._last = np.full(max(len(self.symbols), 1), NEVER, np.int64)
        instructions = np.array(self._instructions or [(0, 0, 0, 0)], np.int64)
        fixes = np.array([(a & 0xFFFFFFFFFFFFFFFF, s) for a, s in self._fixes] or [(0, 0)], np.uint64)
        grow = Grow(self._grow)
        words = (
            len(self.symbols), self.table.ctypes.data, self._last.ctypes.data,
            len(self._instructions), instructions.ctypes.data, len(self._fixes), fixes.ctypes.data,
            ctypes.cast(grow, ctypes.c_void_p).value or 0,
        )  # fmt: skip
        block = np.array(words, np.uint64)
        self._keep: tuple[Any, ...] = (instructions, fixes, grow, block)
        return int(block.ctypes.data)

    def _grow(self, size_bytes: int) -> int:
        try:
            arena = Arena(bucket_size(size_bytes))
        except BaseException as error:  # must not cross native code: raised when the step has ended
            self.caught(error)
            self._last[:] = NEVER
            return int(self.table[self._base])
        self._arena = arena
        self.table[self._capacity] = arena.size_bytes
        return arena.address

    def values(self) -> dict[str, int]:
        """The symbols' values in the call that runs."""
        return dict(zip(self.symbols, map(int, self.table), strict=False))

    def set_sizes(self, sizes: Sequence[int]) -> None:
        """The symbols' values for the next call."""
        self.table[: len(self.symbols)] = sizes


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
