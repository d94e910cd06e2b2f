"""Memories of each kind as lanes reach them: bytes, what is known of each, and who touched it last."""

from __future__ import annotations

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.accesses import AccessTable
from autojit.runtime.gpu.emulator.memory import ALLOCATED, WRITTEN
from autojit.runtime.gpu.emulator.ptx_declarations import Declared

READABLE = ALLOCATED | WRITTEN
SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}
"""Logarithms of the sizes of accesses."""

_ROW = 1024  # bytes: rows of shared memory are multiples, so that offsets keep their alignment


def _repeated(byte: int, size: int) -> np.generic:
    result: np.generic = np.dtype(f"u{size}").type(int.from_bytes(bytes([byte]) * size, "little"))
    return result


ALL_READABLE = {size: _repeated(READABLE, size) for size in (1, 2, 4, 8)}
ALL_ALLOCATED = {size: _repeated(ALLOCATED, size) for size in (1, 2, 4, 8)}
"""States of so many bytes as one word."""


class Space:
    """A memory.

    Args:
        content: the bytes; a multiple of 32.
        state: `ALLOCATED` and so on, for each.
        table: who touched each byte last; None where lanes share nothing.
    """

    def __init__(self, name: str, content: Ndarray, state: Ndarray, table: AccessTable | None) -> None:
        self.name, self.content, self.state, self.table = name, content, state, table
        self._states: dict[int, Ndarray] = {}
        self._views: dict[str, Ndarray] = {}

    def words(self, kind: str) -> Ndarray:
        """The bytes as elements of a type."""
        found = self._views.get(kind)
        if found is None:
            found = self._views[kind] = self.content.view(kind)
        return found

    def states(self, size: int) -> Ndarray:
        """The states of aligned pieces: a word for each, or a row of words."""
        found = self._states.get(size)
        if found is None:
            words = self.state.view(f"u{min(size, 8)}")
            found = self._states[size] = words if size <= 8 else words.reshape(-1, size // 8)
        return found


def shared_space(declared: Declared, more_bytes: int, blocks: int, least_stamp: int) -> tuple[Space, int]:
    """Shared memory of blocks, and the size of the row that each has; ``more_bytes`` is what a launch adds."""
    stride = -(-max(declared.shared_bytes + more_bytes, 1) // _ROW) * _ROW
    row = np.zeros(stride, "u1")
    for name, (begin, size) in declared.shared.items():
        row[begin : begin + (more_bytes if name == declared.growing else size)] = ALLOCATED
    state = np.tile(row, blocks)
    table = AccessTable(np.zeros(len(state), "i8"), np.zeros(len(state), "i8"))
    table.begin(least_stamp, None)
    return Space("shared", np.full(len(state), 0xFF, "u1"), state, table), stride


def local_space(size_bytes: int, lanes: int) -> tuple[Space, int]:
    """Local memory of lanes, and the size of the row that each has.

    All of it counts as written, because the compiler copies what it has not filled.
    """
    stride = -(-max(size_bytes, 1) // 32) * 32
    state = np.zeros((lanes, stride), "u1")
    state[:, :size_bytes] = READABLE
    return Space("local", np.full(state.size, 0xFF, "u1"), state.reshape(-1), None), stride


def parameter_space(content: Ndarray) -> Space:
    """The arguments of a launch."""
    padded = np.zeros(-(-max(len(content), 1) // 32) * 32, "u1")
    padded[: len(content)] = content
    state = np.zeros(len(padded), "u1")
    state[: len(content)] = READABLE
    return Space("param", padded, state, None)
