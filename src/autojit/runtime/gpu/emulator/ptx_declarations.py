"""What a text of PTX declares: variables with their first values, shared arrays, parameters of functions."""

from __future__ import annotations

import re

import numpy as np

from autojit.core.records import record
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError

KINDS = {
    "pred": "?",
    "b8": "u1",
    "u8": "u1",
    "s8": "i1",
    "b16": "u2",
    "u16": "u2",
    "s16": "i2",
    "b32": "u4",
    "u32": "u4",
    "s32": "i4",
    "b64": "u8",
    "u64": "u8",
    "s64": "i8",
    "f16": "f2",
    "bf16": "bf",
    "f32": "f4",
    "f64": "f8",
}
"""NumPy's type of a type of PTX; ``bf`` is bfloat16, in the bits of ``u2``."""

SHARED_GAP = 64
"""Bytes between two shared arrays that belong to neither."""

_MOST_ALIGNMENT = 1024  # of shared memory that a launch adds
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^%$_,]*?\s)?([%$\w]+)(?:\[(\d+)\])?\s*(?:,|$)"
)
_VARIABLE = re.compile(
    r"\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([%$\w]+)((?:\[\d*\])*)\s*(?:=\s*\{?([^;}]*)\}?)?\s*$"
)


@record(eq=False)
class Variable:
    """What a module has in global or constant memory, with its first bytes if it has any."""

    name: str
    alignment: int
    size_bytes: int
    content: bytes | None


class Declared:
    """All that is declared outside registers.

    Attributes:
        shared: offset and size of each array in a block's shared memory.
        local: offset of each array in a thread's local memory.
        variables: in global and constant memory.
        shared_bytes: of a block, with the gaps, without what a launch adds.
        growing: the shared array that is as large as a launch says.
    """

    def __init__(self) -> None:
        self.shared: dict[str, tuple[int, int]] = {}
        self.local: dict[str, int] = {}
        self.variables: dict[str, Variable] = {}
        self.shared_bytes = 0
        self.local_bytes = 0
        self.growing: str | None = None

    def add(self, statement: str) -> None:
        """Take one declaration, without its semicolon."""
        found = _VARIABLE.search(statement)
        if found is None:
            raise UnknownInstructionError(statement, "a declaration of this form")
        space, align, kind, name, extents, values = found.groups()
        element = np.dtype(KINDS[kind].replace("bf", "u2")).itemsize
        alignment = int(align or element)
        counts = re.findall(r"\[(\d*)\]", extents)
        size = element
        for count in counts:
            size *= int(count or 0)
        if space == "shared":
            self._add_shared(name, alignment, size)
        elif space == "local":
            self.local_bytes = -(-self.local_bytes // alignment) * alignment
            self.local[name] = self.local_bytes
            self.local_bytes += size
        else:
            content = _content(statement, values, KINDS[kind], size) if values else None
            self.variables[name] = Variable(name, alignment, size, content)

    def _add_shared(self, name: str, alignment: int, size: int) -> None:
        if size == 0:
            self.growing = name
            return
        begin = -(-self.shared_bytes // alignment) * alignment
        self.shared[name] = (begin, size)
        self.shared_bytes = begin + size + SHARED_GAP

    def finish(self) -> None:
        """All is declared: what a launch may extend comes last."""
        if self.growing is not None:
            begin = -(-self.shared_bytes // _MOST_ALIGNMENT) * _MOST_ALIGNMENT
            self.shared[self.growing] = (begin, 0)
            self.shared_bytes = begin


def _content(statement: str, values: str, kind: str, size: int) -> bytes:
    written: list[int] = []
    for value in values.split(","):
        word = value.strip().rstrip("U")
        if re.match(r"-?\d|0[xX]", word) is None or word[:2] in ("0f", "0d", "0F", "0D"):
            raise UnknownInstructionError(statement[:80], f"first value {word}")
        written.append(int(word, 0))
    width = np.dtype(kind.replace("bf", "u2")).itemsize
    content = b"".join((value & ((1 << 8 * width) - 1)).to_bytes(width, "little") for value in written)
    return content.ljust(size, b"\0")


def parameter_offsets(text: str) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each parameter begins and its size, and the size of all."""
    found: dict[str, tuple[int, int]] = {}
    end = 0
    for match in _PARAMETER.finditer(" ".join(text.split())):
        align, kind, name, count = match.groups()
        element = np.dtype(KINDS[kind].replace("bf", "u2")).itemsize
        alignment = int(align or element)
        begin = -(-end // alignment) * alignment
        end = begin + element * int(count or 1)
        found[name] = (begin, end - begin)
    return found, end
