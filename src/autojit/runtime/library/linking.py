"""Objects side by side in one library, whose address is not known: what `runtime.elf` does for one object in memory.

A library has parts, each with protection of its own (`PARTS`): code, constants that hold addresses and the table of
addresses (written by the dynamic linker, then read-only), data, and constants without addresses, which come last
because they may be larger than the 2 GiB that code can reach. Code reaches what is in another part through the table.

How to read: `Linker.add` places an object, `define` a constant, `close` counts what will be left for the dynamic
linker, `link` decides where parts begin and applies relocations. Addresses are bytes from the library's beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from autojit.core.errors import CompileError
from autojit.runtime.elf import ABSOLUTE_WORD, CALL, TABLE_LOAD, UNDEFINED, WAYS, WRITE, ElfObject, patch

PAGE_BYTES = 4096
PARTS = ("code", "relocated", "data", "constants")
ENTRY_BYTES = 8
_JUMP_THROUGH = b"\xff\x25"  # jmp *disp32(%rip)
_STUB_BYTES = 8
_WEAK = 2


class Place(NamedTuple):
    """A part of the library, and bytes from its beginning."""

    part: str
    offset: int


Target = Place | int | str
"""What code refers to: a place, an address of the library, or a name of others."""


class Linked(NamedTuple):
    """A library's parts at their addresses, with what the dynamic linker has to do.

    Attributes:
        parts: by name, the address and the bytes.
        symbols: by name, the address of what objects and constants define.
        relative: words that hold an address of the library: (where, bytes from its beginning).
        imported: words that hold the address of a symbol of others: (where, name).
        weak: names among them that may be missing.
    """

    parts: dict[str, tuple[int, bytearray]]
    symbols: dict[str, int]
    relative: list[tuple[int, int]]
    imported: list[tuple[int, str]]
    weak: frozenset[str]


class _Placed(NamedTuple):
    """An object, where its sections are, and the names that only it knows."""

    object: ElfObject
    sections: dict[int, Place]
    names: Mapping[str, int]


class Linker:
    """Collects what a library consists of."""

    def __init__(self) -> None:
        self._parts = {part: bytearray() for part in PARTS}
        self._objects: list[_Placed] = []
        self._symbols: dict[str, Place] = {}
        self._entries: dict[Target, int] = {}  # the table of addresses: what for -> which entry
        self._stubs: dict[str, int] = {}  # name of others -> the code that jumps there
        self._weak: set[str] = set()
        self._relative: list[tuple[int, int]] = []
        self.last_bytes = 0

    # -- collecting

    def add(self, content: bytes, names: Mapping[str, int] | None = None, *, hides: bool = False) -> dict[str, int]:
        """Place an object; the addresses of the functions that it defines.

        Args:
            content: a relocatable object.
            names: addresses of functions that it calls by names of its own.
            hides: its symbols are not those of the library.
        """
        parsed = ElfObject(content, 1)
        patched = {
            section for section, rows in parsed.relocations if any(WAYS[row[1]] >= ABSOLUTE_WORD for row in rows)
        }
        sections: dict[int, Place] = {}
        for index in (*parsed.code, *parsed.data):
            section = parsed.sections[index]
            is_data = index in parsed.data
            part = "data" if is_data else "relocated" if section.flags & WRITE or index in patched else "code"
            content_bytes = parsed.bytes_of(section) or bytes(section.size)
            sections[index] = self._append(part, content_bytes, section.align or 1)
        self._objects.append(_Placed(parsed, sections, names or {}))
        defined = {name: self._place_of(self._objects[-1], symbol) for name, symbol in parsed.exported.items()}
        if not hides:
            self._symbols.update(defined)
        return {name: code_address(place.offset) for name, place in defined.items() if place.part == "code"}

    def define(self, name: str, content: bytes, align: int = 64) -> None:
        """Place a constant that objects refer to by its name."""
        self._symbols[name] = self._append("constants", content, align)

    def define_last(self, name: str, size_bytes: int) -> None:
        """A constant that is too large to be copied about: it ends the constants, and its bytes come with the file."""
        self._symbols[name] = self._append("constants", b"", PAGE_BYTES)
        self.last_bytes = size_bytes

    def define_beginning(self, name: str) -> None:
        """A symbol for where the library begins."""
        self._symbols[name] = Place("code", -PAGE_BYTES)

    def reserve(self, part: str, size_bytes: int) -> Place:
        """Room that the caller fills."""
        return self._append(part, bytes(size_bytes), 16)

    def _append(self, part: str, content: bytes, align: int) -> Place:
        kept = self._parts[part]
        kept += bytes(-len(kept) % align)
        place = Place(part, len(kept))
        kept += content
        return place

    def _place_of(self, placed: _Placed, symbol: int) -> Place:
        _, _, _, section, value, _ = placed.object.symbols[symbol]
        place = placed.sections[section]
        return Place(place.part, place.offset + value)

    # -- linking

    def close(self) -> tuple[list[str], int]:
        """Nothing more comes: the names of others that are looked up, and the number of words that hold addresses."""
        words = 0
        for placed in self._objects:
            targets = self._targets(placed)
            for _, rows in placed.object.relocations:
                for _, kind, symbol, _ in rows:
                    way, target = WAYS[kind], targets[symbol]
                    words += way == ABSOLUTE_WORD
                    if way == TABLE_LOAD:
                        self._entries.setdefault(target, len(self._entries))
                    elif isinstance(target, str):
                        if way != CALL:
                            raise CompileError("a library refers to data of another one", facts={"symbol": target})
                        self.stub(target)
        self._table = self._append("relocated", bytes(ENTRY_BYTES * len(self._entries)), ENTRY_BYTES)
        imported = [target for target in self._entries if isinstance(target, str)]
        return imported, words + len(self._entries) - len(imported)

    def stub(self, name: str) -> int:
        """The address of code that goes on at a function of others."""
        if name not in self._stubs:
            self._stubs[name] = self._append("code", bytes(_STUB_BYTES), _STUB_BYTES).offset
            self._entries.setdefault(name, len(self._entries))
        return code_address(self._stubs[name])

    def link(self, after_code: int) -> Linked:
        """Everything at its address; ``after_code`` bytes are left free behind the code.

        Raises:
            CompileError: code cannot reach what it refers to.
        """
        bases = self._bases = {"code": PAGE_BYTES}
        at = PAGE_BYTES + len(self._parts["code"]) + after_code
        for part in PARTS[1:]:
            bases[part] = at = -(-at // PAGE_BYTES) * PAGE_BYTES
            at += len(self._parts[part])
        for placed in self._objects:
            self._patch(placed)
        imported = self._write_indirection()
        symbols = {name: self._address(place) for name, place in self._symbols.items()}
        parts = {part: (bases[part], self._parts[part]) for part in PARTS}
        return Linked(parts, symbols, self._relative, imported, frozenset(self._weak))

    def _targets(self, placed: _Placed) -> list[Target]:
        """What each symbol of an object is: a place, an address, or a name of others."""
        found: list[Target] = []
        for index, (_, info, _, section, value, _) in enumerate(placed.object.symbols):
            if index == 0 or (section != UNDEFINED and section not in placed.sections):
                found.append(value)
            elif section != UNDEFINED:
                found.append(self._place_of(placed, index))
            else:
                name = placed.object.symbol_name(index)
                known = placed.names.get(name, self._symbols.get(name))
                if known is None and info >> 4 == _WEAK:
                    self._weak.add(name)
                found.append(name if known is None else known)
        return found

    def _address(self, target: Place | int) -> int:
        return self._bases[target.part] + target.offset if isinstance(target, Place) else target

    def _entry(self, target: Target) -> int:
        """The address of a target's entry of the table."""
        return self._address(self._table) + ENTRY_BYTES * self._entries[target]

    def _patch(self, placed: _Placed) -> None:
        targets = self._targets(placed)
        for section, rows in placed.object.relocations:
            part, start = placed.sections[section]
            for offset, kind, symbol, addend in rows:
                way, target = WAYS[kind], targets[symbol]
                at = start + offset
                if way == TABLE_LOAD:
                    reached = self._entry(target)
                elif isinstance(target, str):
                    reached = code_address(self._stubs[target])
                else:
                    reached = self._address(target)
                if way == ABSOLUTE_WORD:
                    self._relative.append((self._bases[part] + at, reached + addend))
                patch(self._parts[part], at, way, reached + addend, self._bases[part] + at)

    def _write_indirection(self) -> list[tuple[int, str]]:
        """Fill in the table and the stubs; the entries that the dynamic linker looks up."""
        imported: list[tuple[int, str]] = []
        table = self._parts["relocated"]
        for target in self._entries:
            entry = self._entry(target)
            if isinstance(target, str):
                imported.append((entry, target))
                continue
            address = self._address(target)
            self._relative.append((entry, address))
            at = entry - self._bases["relocated"]
            table[at : at + ENTRY_BYTES] = address.to_bytes(ENTRY_BYTES, "little")
        for name, stub in self._stubs.items():
            distance = self._entry(name) - (code_address(stub) + 6)
            self._parts["code"][stub : stub + 6] = _JUMP_THROUGH + distance.to_bytes(4, "little", signed=True)
        return imported


def code_address(offset: int) -> int:
    """The address of code so many bytes from the beginning of its part."""
    return PAGE_BYTES + offset
