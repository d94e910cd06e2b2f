"""Link one relocatable x86-64 ELF object to an address.

Why not LLVM's own linker: a process that finds its objects in the cache then never loads LLVM, which takes longer
than everything else such a process does at start. The subset is small, because the objects are ours: position
independent, small code model, no thread-local data, no constructors, no unwinding.

How to read this file: `ElfObject` is the whole; `_Layout` places what is kept, `_SymbolTable` gives every symbol an
address, `_relocate` patches the image. Tables are read with NumPy, so a thousand relocations cost as little as one.
Every offset from the file is checked before use: a damaged object raises `CompileError` and is never loaded.

Format: System V ABI, AMD64 supplement 1.0, chapter 4 (relocation types in table 4.9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from autojit.core.errors import CompileError
from autojit.core.records import record

if TYPE_CHECKING:
    import numpy.typing as npt

    Table = npt.NDArray[Any]

_SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entry_size", "<u8"),
    ]
)
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_HEADER_BYTES = 64
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY = 14, 15, 16
_WRITE, _ALLOC, _TLS = 0x1, 0x2, 0x400
_UNDEFINED, _ABSOLUTE, _FIRST_RESERVED = 0, 0xFFF1, 0xFF00
_GLOBAL_BINDINGS = np.uint8(2)  # global is 1, weak is 2

_UNKNOWN, _CALL, _TABLE_LOAD, _ABSOLUTE_WORD, _DISTANCE_WORD = 0, 1, 2, 3, 4
_WAY_BY_TYPE = np.zeros(64, np.uint8)  # how a relocation type is applied
_WAY_BY_TYPE[[2, 4]] = _CALL  # R_X86_64_PC32, PLT32: 32-bit distance, through a stub when too far
_WAY_BY_TYPE[[9, 41, 42]] = _TABLE_LOAD  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX: distance to the address table entry
_WAY_BY_TYPE[1] = _ABSOLUTE_WORD  # R_X86_64_64
_WAY_BY_TYPE[24] = _DISTANCE_WORD  # R_X86_64_PC64
_GOT_ENTRY_BYTES = 8
_STUB_BYTES = 8
_JUMP_THROUGH = b"\xff\x25"  # jmp *disp32(%rip)


@record
class LinkedImage:
    """Bytes ready to copy to the address they were linked for.

    Args:
        content: code and constants, padded to `code_bytes`, then writable data.
        code_bytes: whole pages of code and constants.
        symbols: name to address of every global symbol the object defines.
    """

    content: bytearray
    code_bytes: int
    symbols: dict[str, int]


def is_elf_x86_64(content: bytes) -> bool:
    """Whether the bytes claim to be a little-endian 64-bit x86-64 relocatable object."""
    return len(content) >= _HEADER_BYTES and content[:6] == b"\x7fELF\x02\x01" and content[16:20] == b"\x01\x00\x3e\x00"


class ElfObject:
    """A parsed object: ask `size_bytes`, find that much memory, then `link` to its address.

    Raises:
        CompileError: the object is damaged, or uses what `link` does not know.
    """

    def __init__(self, content: bytes, page_bytes: int) -> None:
        if not is_elf_x86_64(content):
            raise _damaged("it is no x86-64 ELF object")
        self._content = content
        sections = _table(content, _SECTION, _integer(content, 40, 8), _integer(content, 60, 2))
        names = _section_bytes(content, _row(sections, _integer(content, 62, 2), "section name table"))
        self._layout = _Layout(content, sections, [_text(names, int(offset)) for offset in sections["name"]])
        self._symbols = _SymbolTable(content, sections)
        self._relocations = self._layout.relocations(self._symbols.count)
        self._indirect = _indirect_symbols(self._relocations, self._symbols)
        self._got_offset = _round_up(self._layout.code_end, _GOT_ENTRY_BYTES)
        code_end = self._got_offset + len(self._indirect) * (_GOT_ENTRY_BYTES + _STUB_BYTES)
        self.code_bytes = _round_up(code_end, page_bytes)
        self.size_bytes = self.code_bytes + self._layout.data_end

    def link(self, address: int, resolve: Callable[[str], int]) -> LinkedImage:
        """The image for `address`; `resolve` gives the address of a name the object does not define.

        Raises:
            CompileError: a distance does not fit its field, or an offset is outside its section.
        """
        image = bytearray(self.size_bytes)
        self._layout.copy_into(image, self.code_bytes)
        bases = self._layout.section_addresses(address, self.code_bytes)
        targets = self._symbols.addresses(bases, resolve)
        got, stubs = self._indirection(image, address, targets)
        view = np.frombuffer(image, np.uint8)
        for section, relocations in self._relocations:
            place = int(bases[section]) + relocations["offset"].astype(np.int64)
            _relocate(view, address, relocations, place, targets, got, stubs)
        place_of = targets.tolist()
        defined = {name: place_of[index] for name, index in self._symbols.exported.items()}
        return LinkedImage(image, self.code_bytes, defined)

    def _indirection(self, image: bytearray, address: int, targets: Table) -> tuple[Table, Table]:
        """Write one table entry and one jump per symbol reached indirectly; gives both addresses by symbol."""
        got = np.zeros(self._symbols.count, np.int64)
        stubs = np.zeros(self._symbols.count, np.int64)
        stub_offset = self._got_offset + len(self._indirect) * _GOT_ENTRY_BYTES
        for rank, symbol in enumerate(self._indirect):
            entry = self._got_offset + rank * _GOT_ENTRY_BYTES
            stub = stub_offset + rank * _STUB_BYTES
            image[entry : entry + 8] = (int(targets[symbol]) & (2**64 - 1)).to_bytes(8, "little")
            image[stub : stub + 6] = _JUMP_THROUGH + (entry - stub - 6).to_bytes(4, "little", signed=True)
            got[symbol] = address + entry
            stubs[symbol] = address + stub
        return got, stubs


class _Layout:
    """Which sections are kept and where: code and constants first, writable data after them."""

    def __init__(self, content: bytes, sections: Table, names: list[str]) -> None:
        self._content = content
        self._sections = sections
        self._code: dict[int, int] = {}
        self._data: dict[int, int] = {}
        self.code_end = 0
        self.data_end = 0
        for index, (section, name) in enumerate(zip(sections, names, strict=True)):
            if _is_kept(section, name):
                self._place(index, section, name)

    def _place(self, index: int, section: Table, name: str) -> None:
        align, size = int(section["align"]) or 1, int(section["size"])
        if align > 4096 or align & (align - 1) or size > 1 << 30:
            raise _damaged(f"section {name} has an impossible size or alignment")
        if int(section["flags"]) & _WRITE and not name.startswith(".data.rel.ro"):
            self._data[index] = _round_up(self.data_end, align)
            self.data_end = self._data[index] + size
        else:
            self._code[index] = _round_up(self.code_end, align)
            self.code_end = self._code[index] + size

    def copy_into(self, image: bytearray, code_bytes: int) -> None:
        for placed, base in ((self._code, 0), (self._data, code_bytes)):
            for index, offset in placed.items():
                data = _section_bytes(self._content, self._sections[index])
                image[base + offset : base + offset + len(data)] = data

    def section_addresses(self, address: int, code_bytes: int) -> Table:
        """Address by section index; 0 for a section that is not loaded."""
        bases = np.zeros(len(self._sections), np.int64)
        for placed, base in ((self._code, address), (self._data, address + code_bytes)):
            for index, offset in placed.items():
                bases[index] = base + offset
        return bases

    def relocations(self, symbol_count: int) -> list[tuple[int, Table]]:
        """The relocations of every loaded section, checked against the section's size and the symbol table's."""
        found = []
        for section in self._sections[self._sections["type"] == _RELA]:
            patched = int(section["info"])
            if patched in self._code or patched in self._data:
                found.append((patched, self._relocations_of(section, patched, symbol_count)))
        return found

    def _relocations_of(self, section: Table, patched: int, symbol_count: int) -> Table:
        count = int(section["size"]) // _RELOCATION.itemsize
        table = _table(self._content, _RELOCATION, int(section["offset"]), count)
        size = int(self._sections[patched]["size"])
        width = np.where(_ways(table) >= _ABSOLUTE_WORD, np.uint64(8), np.uint64(4))
        outside = (table["offset"] > size) | (width > size - table["offset"])
        if np.any(outside | (table["symbol"] >= symbol_count)) or self._sections[patched]["type"] == _NOBITS:
            raise _damaged("a relocation lies outside its section or names no symbol")
        return table


class _SymbolTable:
    """The object's symbols; `exported` maps the names of global definitions to their index."""

    def __init__(self, content: bytes, sections: Table) -> None:
        tables = sections[sections["type"] == _SYMTAB]
        if len(tables) != 1:
            raise _damaged("it has not exactly one symbol table")
        count = int(tables[0]["size"]) // _SYMBOL.itemsize
        self._table = _table(content, _SYMBOL, int(tables[0]["offset"]), count)
        self._names = _section_bytes(content, _row(sections, int(tables[0]["link"]), "symbol name table"))
        self._section_count = len(sections)
        self.count = count
        self.is_undefined = self._table["section"] == _UNDEFINED
        ordinary = self._table["section"] < _FIRST_RESERVED
        if np.any(self._table["section"][ordinary] >= self._section_count):
            raise _damaged("a symbol names no section")
        is_global = (self._table["info"] >> 4) - 1 < _GLOBAL_BINDINGS  # the local binding, 0, wraps to 255
        exported = np.flatnonzero(is_global & ordinary & ~self.is_undefined)
        self.exported = {self._name(int(index)): int(index) for index in exported}

    def addresses(self, bases: Table, resolve: Callable[[str], int]) -> Table:
        """Address by symbol index; the null symbol has address 0."""
        section = self._table["section"].astype(np.int64)
        value = self._table["value"].astype(np.int64)
        ordinary = section < _FIRST_RESERVED
        found = np.where(ordinary, bases[np.where(ordinary, section, 0)] + value, value)
        if np.any(~ordinary & (section != _ABSOLUTE)):
            raise _unknown("a common or special symbol")
        for index in np.flatnonzero(self.is_undefined)[1:]:
            found[index] = resolve(self._name(int(index)))
        return found

    def _name(self, index: int) -> str:
        return _text(self._names, int(self._table[index]["name"]))


def _is_kept(section: Table, name: str) -> bool:
    flags, kind = int(section["flags"]), int(section["type"])
    if not flags & _ALLOC or name.startswith((".eh_frame", ".note", ".llvm")):
        return False
    if flags & _TLS or kind in (_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY):
        raise _unknown(f"section {name}")
    return True


def _indirect_symbols(relocations: list[tuple[int, Table]], symbols: _SymbolTable) -> list[int]:
    """Symbols that need an address table entry: loaded through the table, or called and defined elsewhere."""
    needed: set[int] = set()
    for _, table in relocations:
        way = _ways(table)
        is_outside_call = (way == _CALL) & symbols.is_undefined[table["symbol"]]
        needed.update(table["symbol"][is_outside_call | (way == _TABLE_LOAD)].tolist())
    return sorted(needed)


def _ways(relocations: Table) -> Table:
    """How each relocation is applied.

    Raises:
        CompileError: a type `_relocate` does not know.
    """
    kinds = relocations["type"]
    way: Table = _WAY_BY_TYPE[np.minimum(kinds, len(_WAY_BY_TYPE) - 1)]
    if not way.all():
        raise _unknown(f"relocation types {sorted(set(kinds[way == _UNKNOWN].tolist()))}")
    return way


def _relocate(
    view: Table, address: int, relocations: Table, place: Table, targets: Table, got: Table, stubs: Table
) -> None:
    """Patch the image `view`. The formulas are the ABI's: S symbol, A addend, P place, G table entry."""
    way = _ways(relocations)
    symbol, addend = relocations["symbol"], relocations["addend"]
    distance = targets[symbol] + addend - place
    use_stub = (way == _CALL) & (np.abs(distance) >= 2**31) & (stubs[symbol] != 0)
    reached = np.where(use_stub, stubs[symbol], np.where(way == _TABLE_LOAD, got[symbol], targets[symbol]))
    distance = reached + addend - place
    narrow = way < _ABSOLUTE_WORD
    if np.any(np.abs(distance[narrow]) >= 2**31):
        raise _unknown("a reference to data more than 2 GiB away")
    _patch(view, (place - address)[narrow], distance[narrow].astype("<i4"))
    wide = np.where(way == _ABSOLUTE_WORD, reached + addend, distance)[~narrow]
    _patch(view, (place - address)[~narrow], wide.astype("<i8"))


def _patch(view: Table, offsets: Table, values: Table) -> None:
    """Store `values` at unaligned byte offsets."""
    if len(values):
        width = values.itemsize
        view[offsets[:, None] + np.arange(width)] = values.view(np.uint8).reshape(-1, width)


def _table(content: bytes, row: np.dtype[Any], offset: int, count: int) -> Table:
    if offset < 0 or offset + count * row.itemsize > len(content):
        raise _damaged("a table runs past its end")
    return np.frombuffer(content, row, count, offset)


def _row(table: Table, index: int, what: str) -> Table:
    if index >= len(table):
        raise _damaged(f"its {what} is missing")
    found: Table = table[index]
    return found


def _section_bytes(content: bytes, section: Table) -> bytes:
    if section["type"] == _NOBITS:
        return b""
    start, size = int(section["offset"]), int(section["size"])
    if start + size > len(content):
        raise _damaged("a section runs past its end")
    return content[start : start + size]


def _text(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset)
    if end < 0:
        raise _damaged("a name runs past its table")
    return names[offset:end].decode("utf-8", "replace")


def _integer(content: bytes, offset: int, size: int) -> int:
    return int.from_bytes(content[offset : offset + size], "little")


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def _damaged(reason: str) -> CompileError:
    return CompileError("a compiled object is damaged", facts={"reason": reason}, fix="clear autojit's object cache")


def _unknown(what: str) -> CompileError:
    return CompileError(
        "a compiled object cannot be loaded", facts={"unsupported": what}, fix="this is a defect of autojit: report it"
    )
