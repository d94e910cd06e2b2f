"""Memory as the lanes of a wave reach it: global, shared, local, parameters; each access is checked, then done.

Addresses of a space of their own are offsets in it; generic addresses tell by their window which space they are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.accesses import AccessTable, Conflict
from autojit.runtime.gpu.emulator.atomics import combine
from autojit.runtime.gpu.emulator.findings import EmulatedFault, FindingKind
from autojit.runtime.gpu.emulator.memory import ALLOCATED, RELEASED, WRITTEN, DeviceMemory
from autojit.runtime.gpu.emulator.synchronisation import Synchronisation

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.graphs import Footprint
    from autojit.runtime.gpu.emulator.machine import Wave

_READABLE = ALLOCATED | WRITTEN
_WINDOW_NAMES = {1: "shared", 2: "local", 3: "param"}
_SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}


def _repeated(byte: int, size: int) -> np.generic:
    result: np.generic = np.dtype(f"u{size}").type(int.from_bytes(bytes([byte]) * size, "little"))
    return result


_PATTERNS = {size: (_repeated(_READABLE, size), _repeated(ALLOCATED, size)) for size in (1, 2, 4, 8)}


class Space:
    """Bytes with what is known of each: a memory of one kind.

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


class LaneMemory:
    """All spaces of one wave.

    Attributes:
        variables: addresses of the module's own variables.
        footprint: where it is written down what global memory is touched.
        order: what the blocks of the launch know of each other.
    """

    def __init__(self, wave: Wave, memory: DeviceMemory, variables: dict[str, np.uint64]) -> None:
        self._wave = wave
        self._device = memory
        self.variables = variables
        self.footprint: Footprint | None = None
        self.order: Synchronisation | None = None
        self._global = Space("global", memory.content, memory.state, memory.table)
        self._shared, self._stride = _shared_memory(wave)
        self._local: Space | None = None
        self._local_stride = 0
        self._parameters = wave.parameters
        self._copies: list[_Copy] = []
        self._groups = np.zeros(wave.count, "i8")

    # -- what blocks call

    def parameter(self, offset: int, kind: str, count: int) -> Ndarray:
        """An argument of the launch, for all lanes."""
        size = int(kind[1])
        return np.full(count, self._parameters[offset : offset + size].view(kind)[0])

    def load(
        self,
        space: str,
        address: Ndarray,
        kind: str,
        parts: int,
        ix: Ndarray | None,
        n: int,
        mask: Ndarray | None,
        instruction: int,
        order: str,
    ) -> list[Ndarray]:
        """One array for each part of a vector; lanes whose predicate fails get zeros."""
        lanes, address = self._lanes(address, ix, n, mask)
        found = [np.zeros(len(lanes), kind) for _ in range(parts)]
        width = int(kind[1])
        for name, chosen in self._spaces(space, address):
            at, who = (address, lanes) if chosen is None else (address[chosen], lanes[chosen])
            memory, position = self._positions(name, at, who, width * parts, instruction)
            rows = self._check(memory, at, position, who, width * parts, instruction, "load")
            self._note(memory, at, rows, width * parts, who, instruction, order, writes=False)
            words = memory.words(kind)
            for k in range(parts):
                values = words[position // width + k]
                found[k] = values if chosen is None else _placed(found[k], chosen, values)
        if mask is None:
            return found
        live = np.flatnonzero(mask)
        return [_placed(np.zeros(n, kind), live, values) for values in found]

    def store(
        self,
        space: str,
        address: Ndarray,
        values: tuple[Ndarray, ...],
        kind: str,
        ix: Ndarray | None,
        n: int,
        mask: Ndarray | None,
        instruction: int,
        order: str,
    ) -> None:
        """Write one value of each lane, or a vector of them."""
        lanes, address = self._lanes(address, ix, n, mask)
        live = None if mask is None else np.flatnonzero(mask)
        width = int(kind[1])
        size = width * len(values)
        for name, chosen in self._spaces(space, address):
            at, who = (address, lanes) if chosen is None else (address[chosen], lanes[chosen])
            memory, position = self._positions(name, at, who, size, instruction)
            rows = self._check(memory, at, position, who, size, instruction, "store")
            self._note(memory, at, rows, size, who, instruction, order, reads=False)
            memory.states(size)[rows] = _PATTERNS[min(size, 8)][0]
            words = memory.words(kind)
            for k, value in enumerate(values):
                whole = np.broadcast_to(value, n) if np.ndim(value) == 0 else value
                whole = whole if live is None else whole[live]
                words[position // width + k] = whole if chosen is None else whole[chosen]

    def atomic(
        self,
        space: str,
        address: Ndarray,
        values: tuple[tuple[Ndarray, ...], ...],
        operation: str,
        kind: str,
        packed: int,
        ix: Ndarray | None,
        n: int,
        mask: Ndarray | None,
        instruction: int,
        order: str,
        wants: bool,
    ) -> Ndarray:
        """Read, change and write words, one lane after another; what was there before."""
        lanes, address = self._lanes(address, ix, n, mask)
        live = None if mask is None else np.flatnonzero(mask)
        parts = len(values[0])
        width = packed * (2 if kind == "bf" else int(kind[1]))
        found = np.zeros(len(lanes), f"u{width}")
        for name, chosen in self._spaces(space, address):
            at, who = (address, lanes) if chosen is None else (address[chosen], lanes[chosen])
            memory, position = self._positions(name, at, who, width * parts, instruction)
            self._check(memory, at, position, who, width * parts, instruction, "load")
            rows = self._check(memory, at, position, who, width * parts, instruction, "store")
            self._note(memory, at, rows, width * parts, who, instruction, order)
            words = memory.words(f"u{width}")
            turns = self._wave.turns(len(who))
            for k in range(parts):
                operands = []
                for value in values:
                    whole = np.broadcast_to(value[k], n) if np.ndim(value[k]) == 0 else value[k]
                    whole = whole if live is None else whole[live]
                    operands.append(whole if chosen is None else whole[chosen])
                before = combine(operation, kind, words, position // width + k, operands, turns)
                found = before if chosen is None else _placed(found, chosen, before)
        if live is None:
            return found
        return _placed(np.zeros(n, found.dtype), live, found)

    def fence(self, ix: Ndarray | None, is_of_block: bool) -> None:
        """Order what lanes did before what they do behind; within a block nothing here needs it."""
        if self.order is not None and not is_of_block:
            self.order.fence(self._wave.stamps if ix is None else self._wave.stamps[ix])

    # -- copies that land later

    def copy_later(
        self,
        target: Ndarray,
        source: Ndarray,
        size: int,
        filled: Ndarray | None,
        ix: Ndarray | None,
        n: int,
        mask: Ndarray | None,
        instruction: int,
    ) -> None:
        """Begin to copy global memory to shared memory; bytes from ``filled`` on become zero."""
        lanes, target = self._lanes(target, ix, n, mask)
        live = slice(None) if mask is None else np.flatnonzero(mask)
        source = np.broadcast_to(source, n)[live]
        taken = np.full(len(lanes), size) if filled is None else np.broadcast_to(filled, n)[live].astype("i8")
        memory, position = self._positions("shared", target, lanes, size, instruction)
        rows = self._check(memory, target, position, lanes, size, instruction, "store")
        self._note(memory, target, rows, size, lanes, instruction, "", reads=False)
        memory.states(size)[rows] = _PATTERNS[min(size, 8)][1]
        reads = np.flatnonzero(taken > 0)
        begin = self._device.positions(source)
        if len(reads):
            at, who = source[reads], lanes[reads]
            there = self._check(self._global, at, begin[reads], who, size, instruction, "load")
            self._note(self._global, at, there, size, who, instruction, "", writes=False)
        self._copies.append(_Copy(lanes, self._groups[lanes].copy(), position, begin, taken, size, instruction))

    def commit(self, ix: Ndarray | None) -> None:
        """End a group of copies."""
        self._groups[slice(None) if ix is None else ix] += 1

    def wait(self, ix: Ndarray | None, left: int) -> None:
        """Let all groups of copies land but this many of the latest."""
        if not self._copies:
            return
        landed = np.full(self._wave.count, -1)
        who: slice | Ndarray = slice(None) if ix is None else ix
        landed[who] = self._groups[who] - left
        waiting: list[_Copy] = []
        for copy in self._copies:
            there = copy.groups < landed[copy.lanes]
            if there.any():
                self._land(copy.part(there))
            if not there.all():
                waiting.append(copy.part(~there))
        self._copies = waiting

    def _land(self, copy: _Copy) -> None:
        offsets = np.arange(copy.size)
        inside = offsets < copy.taken[:, None]
        source = np.where(inside, copy.source[:, None] + offsets, 0)
        content = np.where(inside, self._global.content[source], np.uint8(0))
        self._shared.content[copy.target[:, None] + offsets] = content
        rows = copy.target >> _SHIFTS[copy.size]
        self._shared.states(copy.size)[rows] = _PATTERNS[min(copy.size, 8)][0]
        address = copy.target % self._stride
        self._note(self._shared, address, rows, copy.size, copy.lanes, copy.instruction, "", reads=False)

    # -- from addresses to bytes

    def _lanes(self, address: Ndarray, ix: Ndarray | None, n: int, mask: Ndarray | None) -> tuple[Ndarray, Ndarray]:
        """Which lanes of the wave access memory, and where."""
        lanes = self._wave.lanes if ix is None else ix
        if np.ndim(address) == 0:
            address = np.broadcast_to(address, n)
        return (lanes, address) if mask is None else (lanes[mask], address[mask])

    def _spaces(self, space: str, address: Ndarray) -> list[tuple[str, Ndarray | None]]:
        """Which space, with the positions of the lanes that reach it (None: all)."""
        if not len(address):
            return []
        if space != "generic":
            return [("global" if space == "const" else space, None)]
        windows = (address >> np.uint64(56)).astype("i8")
        found = [int(k) for k in np.unique(windows)]
        if len(found) == 1:
            return [(_WINDOW_NAMES.get(found[0], "global"), None)]
        return [(_WINDOW_NAMES.get(k, "global"), np.flatnonzero(windows == k)) for k in found]

    def _positions(
        self, space: str, address: Ndarray, lanes: Ndarray, size: int, instruction: int
    ) -> tuple[Space, Ndarray]:
        """The memory, and where in its bytes; a place that no lane may reach is below zero."""
        if space == "global":
            return self._global, self._device.positions(address)
        offset = (address & np.uint64((1 << 56) - 1)).view("i8")
        if space == "shared":
            memory, stride = self._shared, self._stride
            rows = self._wave.block_rows[lanes]
        elif space == "local":
            memory, stride = self._local_space(), self._local_stride
            rows = lanes
        else:
            return self._parameter_space(), offset
        inside = (offset >= 0) & (offset + size <= stride)
        return memory, np.where(inside, rows * stride + offset, -1)

    def _local_space(self) -> Space:
        if self._local is None:
            stride = -(-max(self._wave.module.declared.local_bytes, 1) // 32) * 32
            self._local_stride = stride
            state = np.full((self._wave.count, stride), 0, "u1")
            state[:, : self._wave.module.declared.local_bytes] = _READABLE
            content = np.full(state.size, 0xFF, "u1")
            self._local = Space("local", content, state.reshape(-1), None)
        return self._local

    def _parameter_space(self) -> Space:
        padded = np.zeros(-(-max(len(self._parameters), 1) // 32) * 32, "u1")
        padded[: len(self._parameters)] = self._parameters
        state = np.zeros(len(padded), "u1")
        state[: len(self._parameters)] = _READABLE
        return Space("param", padded, state, None)

    # -- checks

    def _check(
        self,
        memory: Space,
        address: Ndarray,
        position: Ndarray,
        lanes: Ndarray,
        size: int,
        instruction: int,
        action: str,
    ) -> Ndarray:
        """The rows of aligned pieces, all of which may be accessed."""
        if (position & (size - 1)).any():
            self._misaligned(address, position, lanes, size, instruction, action)
        rows = position >> _SHIFTS[size]
        states = memory.states(size).take(rows, axis=0, mode="clip")
        readable, usable = _PATTERNS[min(size, 8)]
        good = states == readable if action == "load" else (states & usable) == usable
        if self.footprint is not None and memory is self._global:
            self.footprint.add(address, size, action == "store")
        if not good.all() or position.min() < 0 or position.max() > len(memory.content) - size:
            self._refuse(memory, address, position, lanes, size, instruction, action)
        return rows

    def _misaligned(
        self, address: Ndarray, position: Ndarray, lanes: Ndarray, size: int, instruction: int, action: str
    ) -> None:
        bad = np.flatnonzero((position & (size - 1)) != 0)
        outside = bad[position[bad] < 0]
        if len(outside) and (position[outside] == -1).all():
            return  # outside its space: reported as that
        k = int(bad[0])
        self.fail("misaligned", f"{action} of {size} bytes", int(lanes[k]), instruction, int(address[k]))

    def _refuse(
        self,
        memory: Space,
        address: Ndarray,
        position: Ndarray,
        lanes: Ndarray,
        size: int,
        instruction: int,
        action: str,
    ) -> None:
        for k in range(len(position)):
            begin = int(position[k])
            inside = 0 <= begin <= len(memory.content) - size
            states = memory.state[begin : begin + size] if inside else np.zeros(1, "u1")
            kind: FindingKind
            if not (states & ALLOCATED).all():
                kind = "use after release" if (states & RELEASED).any() else "out of bounds"
            elif action == "load" and not (states & WRITTEN).all():
                kind = "uninitialised read"
            else:
                continue
            what = f"{action} of {size} bytes of {memory.name} memory"
            self.fail(kind, what, int(lanes[k]), instruction, int(address[k]))

    def _note(
        self,
        memory: Space,
        address: Ndarray,
        rows: Ndarray,
        size: int,
        lanes: Ndarray,
        instruction: int,
        order: str,
        *,
        reads: bool = True,
        writes: bool = True,
    ) -> None:
        """Compare an access with those of other lanes; ``order``: how an atomic one orders others, or nothing."""
        if memory.table is None:
            return
        stamps = self._wave.stamps[lanes]
        try:
            memory.table.note(rows, size, stamps, is_write=writes, is_atomic=order != "")
        except Conflict as conflict:
            k = conflict.position
            what = f"{memory.name} memory: {conflict}"
            self.fail(conflict.kind, what, int(lanes[k]), instruction, int(address[k]))
        if order and self.order is not None and memory is self._global:
            self.order.touch(address, stamps, order, reads=reads, writes=writes)

    def fail(self, kind: FindingKind, detail: str, lane: int, instruction: int, address: int | None = None) -> NoReturn:
        """Raise what was found."""
        raise self.fault(kind, detail, lane, instruction, address)

    def fault(
        self, kind: FindingKind, detail: str, lane: int, instruction: int, address: int | None = None
    ) -> EmulatedFault:
        """What was found, with the place."""
        wave = self._wave
        return EmulatedFault(
            kind,
            detail,
            kernel=wave.function.name,
            function=wave.function_number,
            block=int(wave.blocks[lane]),
            thread=int(wave.threads[lane]),
            instruction=wave.module.instructions[instruction].text,
            address=address,
        )


class _Copy:
    """Copies of some lanes that are on their way."""

    __slots__ = ("groups", "instruction", "lanes", "size", "source", "taken", "target")

    def __init__(
        self,
        lanes: Ndarray,
        groups: Ndarray,
        target: Ndarray,
        source: Ndarray,
        taken: Ndarray,
        size: int,
        instruction: int,
    ) -> None:
        self.lanes, self.groups, self.target, self.source = lanes, groups, target, source
        self.taken, self.size, self.instruction = taken, size, instruction

    def part(self, chosen: Ndarray) -> _Copy:
        """Those of some lanes alone."""
        return _Copy(
            self.lanes[chosen],
            self.groups[chosen],
            self.target[chosen],
            self.source[chosen],
            self.taken[chosen],
            self.size,
            self.instruction,
        )


def _placed(whole: Ndarray, chosen: Ndarray, values: Ndarray) -> Ndarray:
    whole[chosen] = values
    return whole


def _shared_memory(wave: Wave) -> tuple[Space, int]:
    """Shared memory of all blocks of a wave, one row each."""
    declared = wave.module.declared
    stride = -(-max(declared.shared_bytes + wave.shared_bytes, 1) // 1024) * 1024
    row = np.zeros(stride, "u1")
    for name, (begin, size) in declared.shared.items():
        row[begin : begin + (wave.shared_bytes if name == declared.growing else size)] = ALLOCATED
    state = np.tile(row, wave.block_count)
    content = np.full(len(state), 0xFF, "u1")
    table = AccessTable(np.zeros(len(state), "i8"), np.zeros(len(state), "i8"))
    table.begin(wave.least_stamp, None)
    return Space("shared", content, state, table), stride
