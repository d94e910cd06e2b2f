"""Link one relocatable x86-64 ELF object to an address.

Why not LLVM's own linker: a process that finds its objects in the cache then never loads LLVM, which takes longer
than everything else such a process does at start. The subset is small, because the objects are ours: position
independent, small code model, no thread-local data, no constructors, no unwinding.

How to read this file: `ElfObject` is the whole; it places the sections that are kept, reads symbols and relocations,
and `link` patches the image. Tables are walked row by row: of 13,000 objects half have one relocation or none, nine of
ten have less than 40 and the longest has 351, so arrays would cost more than they save. Every offset from the file is
checked before use: a damaged object raises `CompileError` and is never loaded.

Format: System V ABI, AMD64 supplement 1.0, chapter 4 (relocation types in table 4.9).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from autojit.core.errors import CompileError

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")  # name, binding and type, visibility, section, value, size
_RELOCATION = struct.Struct("<QIIq")  # offset, type, symbol, addend

_HEADER_BYTES = 64
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY = 14, 15, 16
WRITE, _ALLOC, _TLS = 0x1, 0x2, 0x400
UNDEFINED, ABSOLUTE, _FIRST_RESERVED = 0, 0xFFF1, 0xFF00
_GLOBAL_BINDINGS = (1, 2)  # global, weak

CALL, TABLE_LOAD, ABSOLUTE_WORD, DISTANCE_WORD = range(4)
WAYS = {
    2: CALL,  # R_X86_64_PC32: 32-bit distance, through a stub when too far
    4: CALL,  # PLT32
    9: TABLE_LOAD,  # GOTPCREL: distance to the address table entry
    41: TABLE_LOAD,  # GOTPCRELX
    42: TABLE_LOAD,  # REX_GOTPCRELX
    1: ABSOLUTE_WORD,  # R_X86_64_64
    24: DISTANCE_WORD,  # R_X86_64_PC64
}
"""How a relocation type is applied."""

_GOT_ENTRY_BYTES = 8
_STUB_BYTES = 8
_JUMP_THROUGH = b"\xff\x25"  # jmp *disp32(%rip)
_WORD = 2**64 - 1


class LinkedImage(NamedTuple):
    """Bytes ready to copy to the address they were linked for.

    Args:
        content: code and constants, padded to `code_bytes`, then writable data.
        code_bytes: whole pages of code and constants.
        symbols: name to address of every global symbol the object defines.
    """

    content: bytearray
    code_bytes: int
    symbols: dict[str, int]


class Section(NamedTuple):
    """A section's header."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


def is_elf_x86_64(content: bytes) -> bool:
    """Whether the bytes claim to be a little-endian 64-bit x86-64 relocatable object."""
    return len(content) >= _HEADER_BYTES and content[:6] == b"\x7fELF\x02\x01" and content[16:20] == b"\x01\x00\x3e\x00"


class ElfObject:
    """A parsed object: ask `size_bytes`, find that much memory, then `link` to its address.

    Attributes:
        code, data: which sections are kept, and where: number -> bytes from the beginning of its kind.
        relocations: by section, the rows that are applied to it.
        exported: global symbols by name.

    Raises:
        CompileError: the object is damaged, or uses what `link` does not know.
    """

    def __init__(self, content: bytes, page_bytes: int) -> None:
        if not is_elf_x86_64(content):
            raise _damaged("it is no x86-64 ELF object")
        self._content = content
        (table,), (count, names_at) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<HH", content, 60)
        self.sections = [Section(*row) for row in self._table(_SECTION, table, count)]
        self._place_sections(self.bytes_of(self._section(names_at, "section name table")))
        self._read_symbols()
        self.relocations = [
            (section.info, self._relocations_of(section))
            for section in self.sections
            if section.type == _RELA and (section.info in self.code or section.info in self.data)
        ]
        self._indirect = self._indirect_symbols()
        self._got_offset = _round_up(self._code_end, _GOT_ENTRY_BYTES)
        code_end = self._got_offset + len(self._indirect) * (_GOT_ENTRY_BYTES + _STUB_BYTES)
        self.code_bytes = _round_up(code_end, page_bytes)
        self.size_bytes = self.code_bytes + self._data_end

    def link(self, address: int, resolve: Callable[[str], int]) -> LinkedImage:
        """The image for `address`; `resolve` gives the address of a name the object does not define.

        Raises:
            CompileError: a distance does not fit its field, or an offset is outside its section.
        """
        image = bytearray(self.size_bytes)
        bases: dict[int, int] = {}
        for placed, base in ((self.code, 0), (self.data, self.code_bytes)):
            for index, offset in placed.items():
                data = self.bytes_of(self.sections[index])
                image[base + offset : base + offset + len(data)] = data
                bases[index] = address + base + offset
        targets = self._addresses(bases, resolve)
        got, stubs = self._indirection(image, address, targets)
        for section, relocations in self.relocations:
            for offset, kind, symbol, addend in relocations:
                place = bases[section] + offset
                way, target = WAYS[kind], targets[symbol]
                if way == TABLE_LOAD:
                    target = got[symbol]
                elif way == CALL and abs(target + addend - place) >= 2**31:
                    target = stubs.get(symbol, target)
                patch(image, place - address, way, target + addend, place)
        return LinkedImage(image, self.code_bytes, {name: targets[index] for name, index in self.exported.items()})

    def symbol_name(self, symbol: int) -> str:
        """The name of a symbol."""
        return _text(self._names, self.symbols[symbol][0])

    # -- reading

    def _table(self, row: struct.Struct, offset: int, count: int) -> list[tuple[Any, ...]]:
        end = offset + count * row.size
        if end > len(self._content):
            raise _damaged("a table runs past its end")
        return list(row.iter_unpack(self._content[offset:end]))

    def _section(self, index: int, what: str) -> Section:
        if index >= len(self.sections):
            raise _damaged(f"its {what} is missing")
        return self.sections[index]

    def bytes_of(self, section: Section) -> bytes:
        if section.type == _NOBITS:
            return b""
        end = section.offset + section.size
        if end > len(self._content):
            raise _damaged("a section runs past its end")
        return self._content[section.offset : end]

    def _place_sections(self, names: bytes) -> None:
        """Which sections are kept and where: code and constants first, writable data after them."""
        self.code: dict[int, int] = {}
        self.data: dict[int, int] = {}
        self._code_end = self._data_end = 0
        for index, section in enumerate(self.sections):
            name, align = _text(names, section.name), section.align or 1
            if not _is_kept(section, name):
                continue
            if align > 4096 or align & (align - 1) or section.size > 1 << 30:
                raise _damaged(f"section {name} has an impossible size or alignment")
            if section.flags & WRITE and not name.startswith(".data.rel.ro"):
                self.data[index] = _round_up(self._data_end, align)
                self._data_end = self.data[index] + section.size
            else:
                self.code[index] = _round_up(self._code_end, align)
                self._code_end = self.code[index] + section.size

    def _read_symbols(self) -> None:
        tables = [section for section in self.sections if section.type == _SYMTAB]
        if len(tables) != 1:
            raise _damaged("it has not exactly one symbol table")
        self.symbols = self._table(_SYMBOL, tables[0].offset, tables[0].size // _SYMBOL.size)
        self._names = self.bytes_of(self._section(tables[0].link, "symbol name table"))
        self.exported: dict[str, int] = {}  # the names of global definitions
        for index, (name, info, _, section, _, _) in enumerate(self.symbols):
            if len(self.sections) <= section < _FIRST_RESERVED:
                raise _damaged("a symbol names no section")
            if info >> 4 in _GLOBAL_BINDINGS and UNDEFINED < section < _FIRST_RESERVED:
                self.exported[_text(self._names, name)] = index

    def _relocations_of(self, section: Section) -> list[tuple[Any, ...]]:
        """The relocations of a loaded section, checked against its size and the symbol table's."""
        found = self._table(_RELOCATION, section.offset, section.size // _RELOCATION.size)
        unknown = {kind for _, kind, _, _ in found if kind not in WAYS}
        if unknown:
            raise _unknown(f"relocation types {sorted(unknown)}")
        patched = self.sections[section.info]
        for offset, kind, symbol, _ in found:
            width = 8 if WAYS[kind] >= ABSOLUTE_WORD else 4
            if offset + width > patched.size or symbol >= len(self.symbols) or patched.type == _NOBITS:
                raise _damaged("a relocation is outside its section or names no symbol")
        return found

    def _indirect_symbols(self) -> list[int]:
        """Symbols that need an address table entry: loaded through the table, or called and defined elsewhere."""
        needed: set[int] = set()
        for _, relocations in self.relocations:
            for _, kind, symbol, _ in relocations:
                way = WAYS[kind]
                if way == TABLE_LOAD or (way == CALL and self.symbols[symbol][3] == UNDEFINED):
                    needed.add(symbol)
        return sorted(needed)

    # -- linking

    def _addresses(self, bases: dict[int, int], resolve: Callable[[str], int]) -> list[int]:
        """Address by symbol; the null symbol has address 0."""
        found: list[int] = []
        for index, (name, _, _, section, value, _) in enumerate(self.symbols):
            if section >= _FIRST_RESERVED and section != ABSOLUTE:
                raise _unknown("a common or special symbol")
            is_outside = index and section == UNDEFINED
            found.append(resolve(_text(self._names, name)) if is_outside else bases.get(section, 0) + value)
        return found

    def _indirection(self, image: bytearray, address: int, targets: list[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Write one table entry and one jump per symbol reached indirectly; gives both addresses by symbol."""
        got: dict[int, int] = {}
        stubs: dict[int, int] = {}
        stub_offset = self._got_offset + len(self._indirect) * _GOT_ENTRY_BYTES
        for rank, symbol in enumerate(self._indirect):
            entry = self._got_offset + rank * _GOT_ENTRY_BYTES
            stub = stub_offset + rank * _STUB_BYTES
            image[entry : entry + 8] = (targets[symbol] & _WORD).to_bytes(8, "little")
            image[stub : stub + 6] = _JUMP_THROUGH + (entry - stub - 6).to_bytes(4, "little", signed=True)
            got[symbol], stubs[symbol] = address + entry, address + stub
        return got, stubs


def patch(image: bytearray, at: int, way: int, reached: int, place: int) -> None:
    """Store what a relocation says: an address, or the distance to it from ``place``."""
    if way >= ABSOLUTE_WORD:
        word = reached if way == ABSOLUTE_WORD else reached - place
        image[at : at + 8] = (word & _WORD).to_bytes(8, "little")
    elif abs(reached - place) < 2**31:
        image[at : at + 4] = (reached - place).to_bytes(4, "little", signed=True)
    else:
        raise _unknown("a reference to data more than 2 GiB away")


def _is_kept(section: Section, name: str) -> bool:
    if not section.flags & _ALLOC or name.startswith((".eh_frame", ".note", ".llvm")):
        return False
    if section.flags & _TLS or section.type in (_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY):
        raise _unknown(f"section {name}")
    return True


def _text(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset)
    if end < 0:
        raise _damaged("a name runs past its table")
    return names[offset:end].decode("utf-8", "replace")


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def _damaged(reason: str) -> CompileError:
    return CompileError("a compiled object is damaged", facts={"reason": reason}, fix="clear autojit's object cache")


def _unknown(what: str) -> CompileError:
    return CompileError(
        "a compiled object cannot be loaded", facts={"unsupported": what}, fix="this is a defect of autojit: report it"
    )
