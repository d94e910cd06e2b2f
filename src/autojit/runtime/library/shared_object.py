"""An ELF shared object for x86-64 Linux, written byte by byte: a user may have no linker.

Layout, where an address is also the place in the file: headers; code; the dynamic linker's tables; what it writes,
which is read-only afterwards; data; constants. Symbols have no versions, so any glibc of the last years serves. The
library is never unloaded (``DF_1_NODELETE``), because threads of its pool may still run its code.

Format: System V ABI, chapters 4 and 5, and its AMD64 supplement.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autojit.runtime.library.linking import PAGE_BYTES, Linked, Linker

NEEDED = ("libm.so.6", "libpthread.so.0", "libc.so.6")

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<qQ")

_LOAD, _DYNAMIC_SEGMENT, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_EXECUTE, _WRITE, _READ = 1, 2, 4
_GLOB_DAT, _RELATIVE = 6, 8
_GLOBAL, _WEAK = 0x10, 0x20  # bindings; the type is FUNC where it is defined here
_FUNCTION = 2
_NEEDED, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _RELAENT = 1, 4, 5, 6, 7, 8, 9
_STRSZ, _SYMENT, _SONAME, _FLAGS, _RELACOUNT, _FLAGS_1 = 10, 11, 14, 30, 0x6FFFFFF9, 0x6FFFFFFB
_BIND_NOW, _NOW, _NODELETE = 8, 1, 8
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECUTE = 1, 2, 4


class _Names:
    """A table of texts that end with a zero byte."""

    def __init__(self) -> None:
        self.content = bytearray(1)
        self._known: dict[str, int] = {"": 0}

    def place(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = len(self.content)
            self.content += name.encode() + b"\0"
        return self._known[name]


class _Section(NamedTuple):
    """What tools are told of a stretch of the file."""

    name: str
    type: int
    flags: int
    address: int
    size: int
    link: str = ""
    info: int = 0
    entry_size: int = 0


def shared_object(linker: Linker, exported: Mapping[str, str], soname: str) -> tuple[bytes, bytes]:
    """The bytes of a library before and behind its last constant; ``exported``: by the name that others use, the
    symbol of an object.

    Raises:
        CompileError: code cannot reach what it refers to.
    """
    return _SharedObject(linker, exported, soname).content()


class _SharedObject:
    def __init__(self, linker: Linker, exported: Mapping[str, str], soname: str) -> None:
        self.soname = soname
        self.exported = exported
        self.last_bytes = linker.last_bytes
        self.dynamic = linker.reserve("relocated", _DYNAMIC.size * (len(NEEDED) + 13))
        self.imports, self.n_relative = linker.close()
        self.names = _Names()
        for name in (*NEEDED, soname, *exported, *self.imports):
            self.names.place(name)
        n_symbols = 1 + len(self.imports) + len(exported)
        sizes = {
            ".hash": 4 * (2 + 2 * n_symbols),
            ".dynsym": _SYMBOL.size * n_symbols,
            ".dynstr": len(self.names.content),
            ".rela.dyn": _RELOCATION.size * (self.n_relative + len(self.imports)),
        }
        self.linked: Linked = linker.link(sum(16 + size for size in sizes.values()))
        code_at, code = self.linked.parts["code"]
        at = code_at + len(code)
        self.places: dict[str, tuple[int, int]] = {}
        for name, size in sizes.items():
            self.places[name] = at, _ = -(-at // 16) * 16, size
            at += size
        self.tables_end = at

    # -- tables

    def _symbols(self) -> bytes:
        rows = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
        for name in self.imports:
            binding = _WEAK if name in self.linked.weak else _GLOBAL
            rows.append(_SYMBOL.pack(self.names.place(name), binding, 0, 0, 0, 0))
        for name, symbol in self.exported.items():
            address = self.linked.symbols[symbol]
            rows.append(_SYMBOL.pack(self.names.place(name), _GLOBAL | _FUNCTION, 0, 1, address, 0))
        return b"".join(rows)

    def _hash(self) -> bytes:
        """Buckets and chains by which the dynamic linker finds a name."""
        all_names = [*self.imports, *self.exported]
        buckets = [0] * (len(all_names) + 1)
        chains = [0] * (len(all_names) + 1)
        for index, name in enumerate(all_names, 1):
            bucket = _hashed(name) % len(buckets)
            chains[index], buckets[bucket] = buckets[bucket], index
        words = [len(buckets), len(chains), *buckets, *chains]
        return struct.pack(f"<{len(words)}I", *words)

    def _relocations(self) -> bytes:
        numbers = {name: index for index, name in enumerate(self.imports, 1)}
        rows = [_RELOCATION.pack(at, _RELATIVE, value) for at, value in self.linked.relative]
        rows += [_RELOCATION.pack(at, numbers[name] << 32 | _GLOB_DAT, 0) for at, name in self.linked.imported]
        return b"".join(rows)

    def _dynamic(self, places: Mapping[str, tuple[int, int]]) -> bytes:
        rows = [(_NEEDED, self.names.place(name)) for name in NEEDED]
        rows += [
            (_SONAME, self.names.place(self.soname)),
            (_HASH, places[".hash"][0]),
            (_STRTAB, places[".dynstr"][0]),
            (_STRSZ, places[".dynstr"][1]),
            (_SYMTAB, places[".dynsym"][0]),
            (_SYMENT, _SYMBOL.size),
            (_RELA, places[".rela.dyn"][0]),
            (_RELASZ, places[".rela.dyn"][1]),
            (_RELAENT, _RELOCATION.size),
            (_RELACOUNT, len(self.linked.relative)),
            (_FLAGS, _BIND_NOW),
            (_FLAGS_1, _NOW | _NODELETE),
            (0, 0),
        ]
        return b"".join(_DYNAMIC.pack(tag, value) for tag, value in rows)

    # -- the file

    def content(self) -> tuple[bytes, bytes]:
        """Headers, then everything at its address; what is behind the last constant."""
        parts = self.linked.parts
        last_at, last = parts["constants"]
        dynamic_at = parts["relocated"][0] + self.dynamic.offset
        self.places[".dynamic"] = dynamic_at, _DYNAMIC.size * (len(NEEDED) + 13)
        file = bytearray(last_at + len(last))
        for part_at, part in parts.values():
            file[part_at : part_at + len(part)] = part
        tables = {
            ".hash": self._hash(),
            ".dynsym": self._symbols(),
            ".dynstr": bytes(self.names.content),
            ".rela.dyn": self._relocations(),
            ".dynamic": self._dynamic(self.places),
        }
        for name, content in tables.items():
            at, size = self.places[name]
            assert len(content) == size, name
            file[at : at + size] = content
        rest = bytearray()
        sections, names_at = self._sections(self.places, len(file) + self.last_bytes, rest)
        segments = self._segments()
        header = _HEADER.pack(
            b"\x7fELF\x02\x01\x01" + bytes(9), 3, 62, 1, 0, _HEADER.size, sections, 0,
            _HEADER.size, _PROGRAM.size, len(segments), _SECTION.size, self.section_count, names_at,
        )  # fmt: skip
        start = header + b"".join(_PROGRAM.pack(*segment) for segment in segments)
        assert len(start) <= PAGE_BYTES
        file[: len(start)] = start
        return bytes(file), bytes(rest)

    def _segments(self) -> list[tuple[int, ...]]:
        """What is mapped with which protection."""
        code_at, _ = self.linked.parts["code"]
        written_at = self.linked.parts["relocated"][0]
        data_at, data = self.linked.parts["data"]
        constants_at, constants = self.linked.parts["constants"]
        dynamic_at, dynamic_size = self.places[".dynamic"]

        def load(flags: int, at: int, end: int) -> tuple[int, ...]:
            return (_LOAD, flags, at, at, at, end - at, end - at, PAGE_BYTES)

        return [
            load(_READ, 0, PAGE_BYTES),
            load(_READ | _EXECUTE, code_at, self.tables_end),
            load(_READ | _WRITE, written_at, data_at + max(len(data), 1)),
            load(_READ, constants_at, constants_at + max(len(constants) + self.last_bytes, 1)),
            (_DYNAMIC_SEGMENT, _READ | _WRITE, *(dynamic_at,) * 3, dynamic_size, dynamic_size, 8),
            (_RELRO, _READ, *(written_at,) * 3, data_at - written_at, data_at - written_at, 1),
            (_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),
        ]

    def _sections(self, places: Mapping[str, tuple[int, int]], end: int, rest: bytearray) -> tuple[int, int]:
        """Write the section headers, which linkers and tools read, behind the ``end`` of everything; where they begin,
        and which has the names.
        """
        parts = self.linked.parts
        alloc, write = _SHF_ALLOC, _SHF_ALLOC | _SHF_WRITE

        def part(name: str) -> tuple[int, int]:
            return parts[name][0], len(parts[name][1])

        relocated_at, relocated_size = part("relocated")
        constants_at, constants_size = part("constants")
        dynamic_at, dynamic_size = places[".dynamic"]
        dynamic_end = dynamic_at + dynamic_size
        sections = [
            _Section("", 0, 0, 0, 0),
            _Section(".text", 1, alloc | _SHF_EXECUTE, *part("code")),
            _Section(".hash", 5, alloc, *places[".hash"], link=".dynsym", entry_size=4),
            _Section(".dynsym", 11, alloc, *places[".dynsym"], link=".dynstr", info=1, entry_size=_SYMBOL.size),
            _Section(".dynstr", 3, alloc, *places[".dynstr"]),
            _Section(".rela.dyn", 4, alloc, *places[".rela.dyn"], link=".dynsym", entry_size=_RELOCATION.size),
            _Section(".data.rel.ro", 1, write, relocated_at, dynamic_at - relocated_at),
            _Section(".dynamic", 6, write, dynamic_at, dynamic_size, link=".dynstr", entry_size=_DYNAMIC.size),
            _Section(".got", 1, write, dynamic_end, relocated_at + relocated_size - dynamic_end, entry_size=8),
            _Section(".data", 1, write, *part("data")),
            _Section(".rodata", 1, alloc, constants_at, constants_size + self.last_bytes),
        ]
        names = _Names()
        for section in (*(s.name for s in sections), ".shstrtab"):
            names.place(section)
        names_at = end
        rest += names.content
        rest += bytes(-(end + len(rest)) % 8)
        sections.append(_Section(".shstrtab", 3, 0, names_at, len(names.content)))
        numbers = {section.name: index for index, section in enumerate(sections)}
        headers_at = end + len(rest)
        for s in sections:
            address = s.address if s.flags & alloc else 0
            link = numbers[s.link] if s.link else 0
            row = (names.place(s.name), s.type, s.flags, address, s.address, s.size, link, s.info, 8, s.entry_size)
            rest += _SECTION.pack(*row)
        self.section_count = len(sections)
        return headers_at, numbers[".shstrtab"]


def _hashed(name: str) -> int:
    """The System V hash of a name."""
    found = 0
    for byte in name.encode():
        found = (found << 4) + byte
        high = found & 0xF0000000
        found = (found ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return found


def section_names(content: bytes) -> Sequence[str]:
    """The names of a library's sections, for tests."""
    (headers_at,) = struct.unpack_from("<Q", content, 40)
    count, names_index = struct.unpack_from("<HH", content, 60)
    rows = [_SECTION.unpack_from(content, headers_at + _SECTION.size * k) for k in range(count)]
    table = content[rows[names_index][4] :]
    return [table[row[0] : table.index(b"\0", row[0])].decode() for row in rows]
