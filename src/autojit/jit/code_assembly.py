"""Bytecode taken apart into instructions and put together again with others between them.

How to read: ``decoded`` gives the instructions of a code object; a ``Site`` says what comes before, instead of and
after one of them; ``Assembler`` lays them out again and carries jumps, the exception table and the lines over.
"""

from __future__ import annotations

import dis
import opcode
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

OP = opcode.opmap
_EXTENDED_ARG = OP["EXTENDED_ARG"]
_HAS_JUMP = frozenset(dis.hasjrel)


def _cache_sizes() -> list[int]:
    """Inline cache units behind each opcode."""
    table: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(table, dict):  # by name, from 3.13 on
        return [table.get(opcode.opname[op], 0) if op < len(opcode.opname) else 0 for op in range(256)]
    return [*table, *[0] * (256 - len(table))]


_CACHES = _cache_sizes()


class Instruction(NamedTuple):
    """One instruction of a code object."""

    op: int
    arg: int
    start: int  # in units of two bytes, with its EXTENDED_ARGs
    end: int  # behind its caches
    target: int  # the unit a jump leads to, or -1


class Site(NamedTuple):
    """What surrounds one instruction; ``is_kept`` False: what comes before does its work."""

    before: bytes = b""
    is_kept: bool = True
    after: bytes = b""


UNTOUCHED = Site()


@lru_cache(maxsize=4096)
def emit(op: int, arg: int = 0) -> bytes:
    """An instruction with what its argument needs before it and its caches behind it."""
    head = b""
    for shift in (24, 16, 8):
        if arg >> shift:
            head += bytes((_EXTENDED_ARG, arg >> shift & 255))
    return head + bytes((op, arg & 255)) + bytes(2 * _CACHES[op])


@lru_cache(maxsize=512)
def op_bytes(name: str, arg: int = 0) -> bytes:
    """See ``emit``."""
    return emit(OP[name], arg)


def decoded(code: CodeType) -> list[Instruction]:
    """The instructions of a code object, in order."""
    found: list[Instruction] = []
    text = code.co_code
    unit, units = 0, len(text) // 2
    start, arg = 0, 0
    while unit < units:
        op = text[2 * unit]
        arg = arg << 8 | text[2 * unit + 1]
        unit += 1
        if op == _EXTENDED_ARG:
            continue
        unit += _CACHES[op]
        target = -1
        if op in _HAS_JUMP:
            target = unit - arg if "BACKWARD" in opcode.opname[op] else unit + arg
        found.append(Instruction(op, arg, start, unit, target))
        start, arg = unit, 0
    return found


class Assembler:
    """Lays out the instructions of a code object with what surrounds them."""

    def __init__(self, code: CodeType, instructions: list[Instruction], sites: list[Site]) -> None:
        self.code = code
        self.instructions = instructions
        self.sites = sites
        self.sizes = [(_instruction_units(i.arg, i.op)) for i in instructions]
        self.rank = {i.start: k for k, i in enumerate(instructions)}
        self._lay_out()

    def _lay_out(self) -> None:
        """Find where everything ends up: jumps grow until they reach."""
        while True:
            self.starts: list[int] = []
            at = 0
            for site, size in zip(self.sites, self.sizes, strict=True):
                self.starts.append(at)
                at += (len(site.before) + len(site.after)) // 2 + (size if site.is_kept else 0)
            self.units = at
            grown = False
            for k, i in enumerate(self.instructions):
                if i.target >= 0:
                    needed = _instruction_units(self._distance(k), i.op)
                    if needed > self.sizes[k]:
                        self.sizes[k], grown = needed, True
            if not grown:
                return

    def _distance(self, k: int) -> int:
        end = self.starts[k] + len(self.sites[k].before) // 2 + self.sizes[k]
        return abs(self.new_unit(self.instructions[k].target) - end)

    def new_unit(self, unit: int) -> int:
        """Where an instruction (with what comes before it) begins now."""
        rank = self.rank.get(unit)
        return self.units if rank is None else self.starts[rank]

    def text(self) -> bytes:
        parts: list[bytes] = []
        for k, (i, site) in enumerate(zip(self.instructions, self.sites, strict=True)):
            parts.append(site.before)
            if site.is_kept:
                word = emit(i.op, i.arg if i.target < 0 else self._distance(k))
                missing = self.sizes[k] - len(word) // 2
                parts.append(bytes((_EXTENDED_ARG, 0)) * missing + word)
            parts.append(site.after)
        return b"".join(parts)

    def exceptions(self) -> bytes:
        found = bytearray()
        for entry in dis._parse_exception_table(self.code):  # type: ignore[attr-defined]
            start, end = self.new_unit(entry.start // 2), self.new_unit(entry.end // 2)
            fields = (start, end - start, self.new_unit(entry.target // 2), entry.depth << 1 | int(entry.lasti))
            for k, field in enumerate(fields):
                found += _table_number(field, 0x80 if k == 0 else 0)
        return bytes(found)

    def lines(self) -> bytes:
        """The location table: an instruction and what is around it have the instruction's place."""
        found: list[bytes] = []
        positions = list(self.code.co_positions())
        line = self.code.co_firstlineno
        ends = (*self.starts[1:], self.units)
        for i, start, end in zip(self.instructions, self.starts, ends, strict=True):
            place = positions[i.end - 1 - _CACHES[i.op]]
            code, columns = _location(place)
            units = end - start
            while units > 0:
                head = _HEADS[code][min(units, 8)]
                if code == _NO_PLACE:
                    found.append(head)
                else:
                    assert place[0] is not None
                    found.append(head + _unsigned(_signed(place[0] - line)) + columns)
                    line = place[0]
                units -= 8
        return b"".join(found)


def _instruction_units(arg: int, op: int) -> int:
    return 1 + (arg > 0xFF) + (arg > 0xFFFF) + (arg > 0xFFFFFF) + _CACHES[op]


def _table_number(value: int, mark: int) -> bytes:
    """A number of the exception table: six bits a byte, the highest first."""
    digits = [value & 63]
    while value := value >> 6:
        digits.append(value & 63)
    digits = [d | (0x40 if k else 0) for k, d in enumerate(digits)][::-1]
    digits[0] |= mark
    return bytes(digits)


_NO_PLACE, _NO_COLUMNS, _LONG = 15, 13, 14  # kinds of entries (Objects/locations.md of CPython)
_HEADS = {kind: [bytes((0x80 | kind << 3 | max(units - 1, 0),)) for units in range(9)] for kind in (13, 14, 15)}


def _location(place: tuple[int | None, int | None, int | None, int | None]) -> tuple[int, bytes]:
    """The kind of a place's entries, and what follows the difference of lines in them."""
    start, end, column, end_column = place
    if start is None:
        return _NO_PLACE, b""
    if end is None or column is None or end_column is None:
        return _NO_COLUMNS, b""
    return _LONG, _unsigned(end - start) + _unsigned(column + 1) + _unsigned(end_column + 1)


def _unsigned(value: int) -> bytes:
    if value < 64:
        return _BYTES[value]
    found = bytearray()
    while value >= 64:
        found.append(0x40 | value & 63)
        value >>= 6
    found.append(value)
    return bytes(found)


_BYTES = [bytes((value,)) for value in range(64)]


def _signed(value: int) -> int:
    return (-value << 1) | 1 if value < 0 else value << 1
