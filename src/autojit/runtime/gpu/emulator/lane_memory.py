"""Memory as the lanes of a wave reach it: global, shared, local, parameters; each access is checked, then done.

Addresses of a space of their own are offsets in it; generic addresses tell by their window which space they are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.accesses import Conflict
from autojit.runtime.gpu.emulator.async_copies import AsyncCopies
from autojit.runtime.gpu.emulator.atomics import combine
from autojit.runtime.gpu.emulator.distinct import few
from autojit.runtime.gpu.emulator.findings import EmulatedFault, FindingKind
from autojit.runtime.gpu.emulator.memory import ALLOCATED, RELEASED, WRITTEN, EmulatedMemory
from autojit.runtime.gpu.emulator.spaces import (
    ALL_ALLOCATED,
    ALL_READABLE,
    SHIFTS,
    Space,
    local_space,
    parameter_space,
    shared_space,
)
from autojit.runtime.gpu.emulator.stamps import read_only
from autojit.runtime.gpu.emulator.synchronisation import Synchronisation

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.graphs import Footprint
    from autojit.runtime.gpu.emulator.machine import Wave

_WINDOW_NAMES = {1: "shared", 2: "local", 3: "param"}


class Lanes:
    """Lanes of a wave that run an instruction, or the part of them whose predicate holds.

    Args:
        numbers: of all that run.
        mask: which of them access memory; None: all.
    """

    __slots__ = ("count", "live", "numbers")

    def __init__(self, numbers: Ndarray, mask: Ndarray | None) -> None:
        self.count = len(numbers)
        self.live = None if mask is None else np.flatnonzero(mask)
        self.numbers = numbers if self.live is None else numbers[self.live]

    def chosen(self, values: Ndarray) -> Ndarray:
        """Values of those that access memory, of an array or a number for all."""
        whole = np.broadcast_to(values, self.count) if np.ndim(values) == 0 else values
        return whole if self.live is None else whole[self.live]

    def spread(self, values: Ndarray) -> Ndarray:
        """An array for all, with zeros for the others."""
        if self.live is None:
            return values
        whole = np.zeros(self.count, values.dtype)
        whole[self.live] = values
        return whole


class LaneMemory:
    """All spaces of one wave.

    Attributes:
        variables: addresses of the module's own variables.
        copies: copies from global to shared memory that land later.
        footprint: where it is written down what global memory is touched.
        order: what the blocks of the launch know of each other.
    """

    def __init__(self, wave: Wave, memory: EmulatedMemory, variables: dict[str, np.uint64]) -> None:
        self._wave, self._device = wave, memory
        self.variables = variables
        self.footprint: Footprint | None = None
        self.order: Synchronisation | None = None
        self.global_space = Space("global", memory.content, memory.state, memory.table)
        declared = wave.module.declared
        self.shared, self.stride = shared_space(declared, wave.shared_bytes, wave.block_count, wave.least_stamp)
        self.copies = AsyncCopies(self, wave.count)
        self._rows: dict[str, tuple[Space, int]] = {}
        self._parameters = wave.parameters
        self._waiting: Ndarray | None = None  # the lanes of an early launch that have not waited yet

    def begin(self, footprint: Footprint | None, order: Synchronisation | None) -> None:
        """Before the first instruction."""
        self.footprint, self.order = footprint, order
        if footprint is not None and footprint.is_early:
            self._waiting = np.ones(self._wave.count, np.bool_)

    def waited(self, ix: Ndarray | None) -> None:
        """Lanes wait for the launches in front of this one."""
        if self._waiting is not None:
            self._waiting[slice(None) if ix is None else ix] = False

    # -- what blocks call

    def lanes(self, ix: Ndarray | None, mask: Ndarray | None = None) -> Lanes:
        """Lanes that run."""
        return Lanes(self._wave.lanes if ix is None else ix, mask)

    def parameter(self, offset: int, kind: str, count: int) -> Ndarray:
        """An argument of the launch, for all lanes."""
        size = int(kind[1])
        return np.full(count, self._parameters[offset : offset + size].view(kind)[0])

    def load(
        self, lanes: Lanes, space: str, address: Ndarray, kind: str, parts: int, instruction: int, order: str
    ) -> list[Ndarray]:
        """One array for each part of a vector; lanes whose predicate fails get zeros."""
        address = lanes.chosen(address)
        found = [np.zeros(len(address), kind) for _ in range(parts)]
        width = int(kind[1])
        for name, chosen in self._spaces(space, address):
            at, who = address[chosen], lanes.numbers[chosen]
            memory, position = self.positions(name, at, who, width * parts)
            rows = self.check(memory, at, position, who, width * parts, instruction, "load")
            if order == "acquire":
                self._wave.poll(who)
            self.note(memory, at, rows, width * parts, who, instruction, order, writes=False)
            words = memory.words(kind)
            for k in range(parts):
                found[k][chosen] = words[position // width + k]
        return [lanes.spread(values) for values in found]

    def store(
        self,
        lanes: Lanes,
        space: str,
        address: Ndarray,
        values: tuple[Ndarray, ...],
        kind: str,
        instruction: int,
        order: str,
    ) -> None:
        """Write one value of each lane, or a vector of them."""
        address = lanes.chosen(address)
        self._wave.changed()
        width = int(kind[1])
        size = width * len(values)
        for name, chosen in self._spaces(space, address):
            at, who = address[chosen], lanes.numbers[chosen]
            memory, position = self.positions(name, at, who, size)
            rows = self.check(memory, at, position, who, size, instruction, "store")
            self.note(memory, at, rows, size, who, instruction, order, reads=False)
            memory.states(size)[rows] = ALL_READABLE[min(size, 8)]
            words = memory.words(kind)
            for k, value in enumerate(values):
                words[position // width + k] = lanes.chosen(value)[chosen]

    def atomic(
        self,
        lanes: Lanes,
        space: str,
        address: Ndarray,
        values: tuple[tuple[Ndarray, ...], ...],
        operation: str,
        kind: str,
        packed: int,
        instruction: int,
        order: str,
    ) -> Ndarray:
        """Read, change and write words, one lane after another; what was there before.

        Args:
            values: for each operand, one array for each part of a vector.
            packed: numbers of the type in one word.
        """
        address = lanes.chosen(address)
        self._wave.changed()
        width = packed * (2 if kind == "bf" else int(kind[1]))
        size = width * len(values[0])
        found = np.zeros(len(address), f"u{width}")
        for name, chosen in self._spaces(space, address):
            at, who = address[chosen], lanes.numbers[chosen]
            memory, position = self.positions(name, at, who, size)
            self.check(memory, at, position, who, size, instruction, "load")
            rows = self.check(memory, at, position, who, size, instruction, "store")
            words, turns = memory.words(f"u{width}"), self._wave.turns(len(who))
            self.note(memory, at[turns], rows[turns], size, who[turns], instruction, order)
            for k in range(len(values[0])):
                operands = [lanes.chosen(value[k])[chosen] for value in values]
                found[chosen] = combine(operation, kind, words, position // width + k, operands, turns)
        return lanes.spread(found)

    def shared_begin(self, least_stamp: int) -> None:
        """What was done in shared memory before is ordered before all that follows."""
        if self.shared.table is not None:
            self.shared.table.begin_again(least_stamp)

    def fence(self, ix: Ndarray | None, is_of_block: bool) -> None:
        """Order what lanes did before what they do behind; within a block nothing here needs it."""
        if self.order is not None and not is_of_block:
            self.order.fence(self._wave.stamps if ix is None else self._wave.stamps[ix])

    # -- from addresses to bytes

    def _spaces(self, space: str, address: Ndarray) -> list[tuple[str, Ndarray | slice]]:
        """Which space, with the lanes that reach it."""
        if not len(address):
            return []
        if space != "generic":
            return [("global" if space == "const" else space, slice(None))]
        windows = (address >> np.uint64(56)).astype("i8")
        found = few(windows)
        if len(found) == 1:
            return [(_WINDOW_NAMES.get(found[0], "global"), slice(None))]
        return [(_WINDOW_NAMES.get(k, "global"), np.flatnonzero(windows == k)) for k in found]

    def positions(self, space: str, address: Ndarray, lanes: Ndarray, size: int) -> tuple[Space, Ndarray]:
        """The memory, and where in its bytes; a place that no lane may reach is below zero."""
        if space == "global":
            return self.global_space, self._device.positions(address)
        offset = (address & np.uint64((1 << 56) - 1)).view("i8")
        if space == "shared":
            memory, stride, rows = self.shared, self.stride, self._wave.block_rows[lanes]
        else:
            if space not in self._rows:
                local_bytes = self._wave.module.declared.local_bytes
                is_local = space == "local"
                made = (
                    local_space(local_bytes, self._wave.count) if is_local else (parameter_space(self._parameters), 0)
                )
                self._rows[space] = made
            memory, stride = self._rows[space]
            rows = lanes
        if space == "param":
            return memory, offset
        inside = (offset >= 0) & (offset + size <= stride)
        return memory, np.where(inside, rows * stride + offset, -1)

    # -- checks

    def check(
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
            self._refuse_misaligned(address, position, lanes, size, instruction, action)
        rows = position >> SHIFTS[size]
        states = memory.states(size).take(rows, axis=0, mode="clip")
        usable = ALL_ALLOCATED[min(size, 8)]
        good = states == ALL_READABLE[min(size, 8)] if action == "load" else (states & usable) == usable
        if self.footprint is not None and memory is self.global_space:
            self.footprint.add(address, size, action == "store")
            self._look_at_early(self.footprint, address, lanes, size, instruction, action)
        if not good.all() or position.min() < 0 or position.max() > len(memory.content) - size:
            self._refuse(memory, address, position, lanes, size, instruction, action)
        return rows

    def _look_at_early(
        self, footprint: Footprint, address: Ndarray, lanes: Ndarray, size: int, instruction: int, action: str
    ) -> None:
        """What is read before the wait is written down; nothing is written there."""
        if self._waiting is None or not self._waiting[lanes].any():
            return
        early = np.flatnonzero(self._waiting[lanes])
        if action == "store":
            k = int(early[0])
            self.fail(
                "early start", "something is written before the wait", int(lanes[k]), instruction, int(address[k])
            )
        footprint.add_early(address[early], size)

    def _refuse_misaligned(
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
            if memory is self.global_space:
                what += self._device.neighbours(int(address[k]))
            self.fail(kind, what, int(lanes[k]), instruction, int(address[k]))

    def note(
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
        """Compare an access with those of other lanes, which come in the order in which they access.

        ``order``: how an atomic access orders others, or nothing.
        """
        if memory.table is None:
            return
        if memory is self.global_space and order in ("", "constant"):
            self._wave.touched[self._wave.block_rows[lanes]] = True
        stamps = self._wave.stamps[lanes]
        if order == "constant":
            stamps, order = read_only(stamps), ""
        try:
            memory.table.note(rows, size, stamps, is_write=writes, is_atomic=order != "")
        except Conflict as conflict:
            k = conflict.position
            what = f"{memory.name} memory: {conflict}"
            self.fail(conflict.kind, what, int(lanes[k]), instruction, int(address[k]))
        if order and self.order is not None and memory is self.global_space:
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
