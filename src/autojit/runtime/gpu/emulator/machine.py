"""A launch: waves of blocks whose lanes run basic blocks, part, wait for each other and meet again.

Which lanes run next is a policy. In the low order the lanes at the lowest basic block go, so that those that parted
meet again as on hardware. With a seed, random parts of the lanes at random basic blocks go: an order that hardware may
choose as well, and that a right kernel does not notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from weakref import WeakKeyDictionary

import numpy as np

from autojit.core.records import record
from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.barriers import Barriers
from autojit.runtime.gpu.emulator.block_code import BlockFunction
from autojit.runtime.gpu.emulator.distinct import each_once, few
from autojit.runtime.gpu.emulator.findings import EmulatedFault, FindingKind
from autojit.runtime.gpu.emulator.graphs import Footprint
from autojit.runtime.gpu.emulator.instructions import function_of
from autojit.runtime.gpu.emulator.lane_memory import LaneMemory, Lanes
from autojit.runtime.gpu.emulator.memory import EmulatedMemory
from autojit.runtime.gpu.emulator.ptx_text import WARP_OPERATIONS, FunctionText, Instruction, Module
from autojit.runtime.gpu.emulator.special_registers import SpecialRegisters
from autojit.runtime.gpu.emulator.stamps import next_interval, next_warp_interval, stamps_of
from autojit.runtime.gpu.emulator.synchronisation import Synchronisation
from autojit.runtime.gpu.emulator.warp_operations import WARP, WarpGroup, mask_operand, run_together

_WHOLE_WARPS = ("-1", "0xffffffff", "4294967295")
RUNNING, AT_BARRIER, AT_WARP, GONE = range(4)
_MOST_LANES = 8192
"""Of a wave. More at once would be faster by a few percent, and take memory for every register of every lane."""
_MOST_STEPS = 4_000_000
"""Basic blocks of one wave, after which it is taken to hang; a minute and more."""
_DEEPEST = 16
"""Calls within calls. Functions do not recurse: their registers are the lane's, once."""
_MOST_IN_VAIN = 64
"""Rounds in which every lane polls and nothing changes, after which nothing ever will."""
_FAIR_TURN = 32
"""Every so many steps the low order lets others than the lowest go, so that who waits for them does not wait forever;
every second step when as many others have been left behind for as long. Rarely, because lanes that part run twice."""


@record(eq=False)
class Launch:
    """One launch of a kernel.

    Args:
        function_number: what the driver calls the kernel.
        parameters: the bytes of its arguments.
        shared_bytes: that each block gets beyond what the kernel declares.
        seed: of a random order; None for the low order.
        is_cooperative: all blocks run at once.
        conditions: of the graph that the launch is in, by their handles: the kernel sets them.
    """

    module: Module
    function: FunctionText
    function_number: int
    grid: tuple[int, int, int]
    extents: tuple[int, int, int]
    parameters: Ndarray
    variables: Mapping[str, np.uint64]
    shared_bytes: int = 0
    seed: int | None = None
    is_cooperative: bool = False
    conditions: dict[int, int] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return int(np.prod(self.grid, dtype=np.int64))


def run(launch: Launch, memory: EmulatedMemory, footprint: Footprint | None = None) -> None:
    """Do it all; what global memory is touched is written down in the footprint.

    Raises:
        EmulatedFault: the kernel did what it must not do.
    """
    order = Synchronisation(launch.blocks) if launch.module.synchronises else None
    least = memory.begin_launch(order)
    chance = None if launch.seed is None else np.random.default_rng(launch.seed)
    with np.errstate(all="ignore"):
        for blocks in _waves(launch, chance):
            wave = Wave(launch, blocks, least, memory, chance)
            wave.memory.begin(footprint, order)
            wave.run()
            wave.forget()


def _waves(launch: Launch, chance: np.random.Generator | None) -> Iterator[Ndarray]:
    """Blocks that run at the same time."""
    count, threads = launch.blocks, int(np.prod(launch.extents, dtype=np.int64))
    together = count if launch.is_cooperative else max(1, _MOST_LANES // threads)
    order = None if chance is None else chance.permutation(count)
    for begin in range(0, count, together):
        end = min(begin + together, count)
        yield np.arange(begin, end) if order is None else np.sort(order[begin:end])


class Wave:
    """Blocks that run at the same time, all their threads as lanes.

    Attributes:
        count: of lanes.
        blocks: of each lane, in the grid; ``block_rows``: within the wave.
        threads: of each lane, within its block; ``places``: within its warp.
        stamps: who and when, for races.
        touched: blocks that have accessed global memory since their last barrier.
        polled: lanes that have read a word to see what others wrote, and found nothing new since.
    """

    def __init__(
        self,
        launch: Launch,
        numbers: Ndarray,
        least_stamp: int,
        memory: EmulatedMemory,
        chance: np.random.Generator | None,
    ) -> None:
        self.module, self.function, self.function_number = launch.module, launch.function, launch.function_number
        self.conditions = launch.conditions
        self.parameters, self.shared_bytes, self.chance = launch.parameters, launch.shared_bytes, chance
        per_block = int(np.prod(launch.extents, dtype=np.int64))
        self.block_count, self.threads_per_block = len(numbers), per_block
        self.count = per_block * len(numbers)
        self.lanes = np.arange(self.count)
        self.block_rows = self.lanes // per_block
        self.threads = self.lanes % per_block
        self.blocks = numbers[self.block_rows]
        self.places = self.threads % WARP
        self.warps = self.block_rows * -(-per_block // WARP) + self.threads // WARP
        self.warp_count = len(numbers) * -(-per_block // WARP)
        self._warp_sizes = np.bincount(self.warps, minlength=self.warp_count)
        self.least_stamp, self._device = least_stamp, memory
        self.stamps = stamps_of(least_stamp, self.blocks, self.threads)
        self.special = SpecialRegisters(launch, self)
        self.at = np.full(self.count, launch.function.first)
        self.state = np.zeros(self.count, "i1")
        self.registers = {k: np.zeros(self.count, self.module.registers[k]) for k in self.module.lasting}
        self.memory = LaneMemory(self, memory, dict(launch.variables))
        self._code = _block_functions(launch.module)
        self._returns = np.zeros((0, self.count), "i8")
        self._depth = np.zeros(self.count, "i8")
        self._others, self._unchanged = 0, 0
        self.polled = np.zeros(self.count, "?")
        self._is_polled, self._in_vain = False, 0
        self._is_whole = len(numbers) == launch.blocks
        self.touched = np.zeros(self.block_count, "?")

    def forget(self) -> None:
        """It is over. Its parts refer to each other: only the collector would find them, with all registers."""
        vars(self.memory).clear()
        vars(self).clear()

    def register(self, number: int) -> Ndarray:
        """A register of all lanes."""
        found = self.registers.get(number)
        if found is None:
            found = self.registers[number] = np.zeros(self.count, self.module.registers[number])
        return found

    # -- what blocks call

    def set_condition(self, lanes: Lanes, handles: Ndarray, values: Ndarray, instruction: int) -> None:
        """Lanes set conditions of the graph that runs."""
        rows = zip(lanes.numbers, lanes.chosen(handles), lanes.chosen(values), strict=True)
        for lane, handle, value in rows:
            if int(handle) not in self.conditions:
                detail = "the graph that runs has no condition of this handle"
                self.memory.fail("wrong handle", detail, int(lane), instruction)
            self.conditions[int(handle)] = int(value)

    def read(self, ix: Ndarray | None, numbers: tuple[int, ...]) -> list[Ndarray]:
        """Registers of the lanes that run."""
        registers = self.registers
        if ix is None:
            return [registers[number] for number in numbers]
        return [registers[number][ix] for number in numbers]

    def keep(self, ix: Ndarray | None, numbers: tuple[int, ...], values: tuple[Ndarray, ...]) -> None:
        """Registers of the lanes that run get new values."""
        registers = self.registers
        for number, value in zip(numbers, values):
            if ix is None:  # what is one number for all lanes may be read, or replaced, by some of them
                registers[number] = (
                    value if np.ndim(value) else np.full(self.count, value, self.module.registers[number])
                )
            else:
                registers[number][ix] = value

    def turns(self, count: int) -> Ndarray:
        """The order in which lanes that meet at one word go."""
        return np.arange(count) if self.chance is None else self.chance.permutation(count)

    def active(self, ix: Ndarray | None) -> Ndarray:
        """For each lane that runs, which lanes of its warp do."""
        lanes = self.lanes if ix is None else ix
        found = np.zeros(self.warp_count, "u4")
        np.bitwise_or.at(found, self.warps[lanes], np.uint32(1) << self.places[lanes].astype("u4"))
        result: Ndarray = found[self.warps[lanes]]
        return result

    def begin_warp_interval(self, lanes: Ndarray) -> None:
        """Lanes of warps have met."""
        self.stamps[lanes] = next_warp_interval(self.stamps[lanes])

    def poll(self, lanes: Ndarray) -> None:
        """Lanes read a word to see what others wrote."""
        self.polled[lanes] = True
        self._is_polled = True

    def changed(self) -> None:
        """Somebody wrote: who polls may find something new."""
        if self._is_polled:
            self.polled[:] = False
            self._is_polled, self._in_vain = False, 0

    # -- the order

    def run(self) -> None:
        """Until all lanes are gone."""
        for step in range(_MOST_STEPS):
            running = np.flatnonzero(self.state == RUNNING)
            if self._is_polled:
                running = self._hopeful(running)
            if not len(running):
                if (self.state == GONE).all():
                    return
                if not self._meet():
                    self._stuck()
                continue
            block, lanes = self._choose(running, step)
            self._execute(block, None if len(lanes) == self.count else lanes)
        raise self.fault("deadlock", f"no end after {_MOST_STEPS} basic blocks", int(running[0]))

    def _hopeful(self, running: Ndarray) -> Ndarray:
        """Of lanes that may run, those that do not poll; if all do, and nobody who waits may go on, these again.

        Raises:
            EmulatedFault: all poll, again and again, and nothing changes.
        """
        others = running[~self.polled[running]]
        if len(others) or not len(running) or self._meet():
            return others if len(others) else np.flatnonzero((self.state == RUNNING) & ~self.polled)
        self._in_vain += 1
        if self._in_vain > _MOST_IN_VAIN:
            detail = "blocks wait for what no block that runs will write: are more launched than run at once?"
            raise self.fault("deadlock", detail, int(running[0]))
        self.polled[:] = False
        return running

    def _choose(self, running: Ndarray, step: int) -> tuple[int, Ndarray]:
        places = self.at[running]
        if self.chance is None:
            lowest = int(places.min())
            lanes = running[places == lowest]
            others = len(running) - len(lanes)
            self._unchanged = self._unchanged + 1 if others == self._others else 0
            self._others = others
            is_stuck = self._unchanged > _FAIR_TURN and step % 2 == 0
            if others and (is_stuck or step % _FAIR_TURN == 0):
                found = each_once(places)
                chosen = int(found[1 + step // 2 % (len(found) - 1)])
                return chosen, running[places == chosen]
            return lowest, lanes
        block = int(self.chance.choice(each_once(places)))
        lanes = running[places == block]
        if len(lanes) > 1 and self.chance.random() < 0.5:
            part = lanes[self.chance.random(len(lanes)) < 0.5]
            lanes = part if len(part) else lanes
        return block, lanes

    def _execute(self, number: int, ix: Ndarray | None) -> None:
        block = self.module.blocks[number]
        count = self.count if ix is None else len(ix)
        code = self._code.get(number)
        if code is None:
            code = self._code[number] = function_of(self.module, block)
        following = code(self, self.memory, ix, count)
        lanes: Ndarray | slice = slice(None) if ix is None else ix
        if following is not None:
            self.at[lanes] = following
            gone = np.flatnonzero(following < 0)
            if len(gone):
                self._leave(block.end, self.lanes[lanes][gone])
            return
        name = "" if block.end is None else block.end.opcode[0]
        if name == "bra":
            self.at[lanes] = block.target
        elif name in ("ret", "exit", "trap"):
            self._leave(block.end, self.lanes[lanes])
        elif name in ("bar", "barrier", *WARP_OPERATIONS):
            assert block.end is not None
            self.state[lanes] = AT_WARP if name in WARP_OPERATIONS or "warp" in block.end.opcode else AT_BARRIER
            self.at[lanes] = number
        elif name == "call":
            self._call(self.lanes[lanes], number + 1)
            self.at[lanes] = block.target
        else:
            self.at[lanes] = number + 1

    def _leave(self, end: Instruction | None, lanes: Ndarray) -> None:
        """Lanes return from a function, or end."""
        assert end is not None
        if end.opcode[0] == "trap":
            self.memory.fail("trap", "the kernel stops itself", int(lanes[0]), end.number)
        inside = lanes[self._depth[lanes] > 0] if end.opcode[0] == "ret" else lanes[:0]
        self._depth[inside] -= 1
        self.at[inside] = self._returns[self._depth[inside], inside]
        self.state[lanes] = GONE
        self.state[inside] = RUNNING

    def _call(self, lanes: Ndarray, onward: int) -> None:
        """Lanes go into a function, and on at a block when they return."""
        depth = self._depth[lanes]
        if depth.max() >= _DEEPEST:
            raise self.fault("deadlock", f"calls are nested more than {_DEEPEST} deep", int(lanes[0]))
        if not len(self._returns):
            self._returns = np.zeros((_DEEPEST, self.count), "i8")
        self._returns[depth, lanes] = onward
        self._depth[lanes] += 1

    # -- meeting

    def _meet(self) -> bool:
        """Nobody can run: let whole warps and whole blocks go on; whether there were any."""
        waiting = np.flatnonzero(self.state == AT_WARP)
        moved = False
        for number in few(self.at[waiting]):
            moved |= self._warps_go_on(number, waiting[self.at[waiting] == number])
        return moved or self._blocks_go_on()

    def _warps_go_on(self, number: int, lanes: Ndarray) -> bool:
        """Those groups of lanes at one warp operation go on of which all are there."""
        end = self.module.blocks[number].end
        assert end is not None
        operand = mask_operand(end)
        if len(lanes) == self.count and operand in _WHOLE_WARPS:
            self._go_on_together(number, lanes, self.warps, self.warp_count)
            return True
        if operand in _WHOLE_WARPS:
            return self._whole_warps_go_on(number, lanes)
        masks = WarpGroup(self, lanes, np.arange(len(lanes)), len(lanes)).each(operand, "u4")
        own = np.uint32(1) << self.places[lanes].astype("u4")
        outside = np.flatnonzero(masks & own == 0)
        if len(outside):
            detail = "a lane runs it that its mask does not name"
            raise self.fault("lane missing at a warp operation", detail, int(lanes[outside[0]]), end)
        masks = masks & self._existing(lanes)
        key = self.warps[lanes].astype("u8") << np.uint64(32) | masks
        groups, rows = np.unique(key, return_inverse=True)
        there = np.zeros(len(groups), "u4")
        np.bitwise_or.at(there, rows, own)
        is_whole = there == (groups & np.uint64(0xFFFFFFFF)).astype("u4")
        if not is_whole.any():
            return False
        renumbered = np.cumsum(is_whole) - 1
        chosen = is_whole[rows]
        self._go_on_together(number, lanes[chosen], renumbered[rows[chosen]], int(is_whole.sum()))
        return True

    def _whole_warps_go_on(self, number: int, lanes: Ndarray) -> bool:
        """The same where all lanes of a warp are waited for: counting them is enough."""
        warps = self.warps[lanes]
        is_whole = np.bincount(warps, minlength=self.warp_count) == self._warp_sizes
        chosen = is_whole[warps]
        if not chosen.any():
            return False
        renumbered = np.cumsum(is_whole) - 1
        self._go_on_together(number, lanes[chosen], renumbered[warps[chosen]], int(is_whole.sum()))
        return True

    def _go_on_together(self, number: int, lanes: Ndarray, rows: Ndarray, count: int) -> None:
        """Groups of lanes do what they came for."""
        end = self.module.blocks[number].end
        assert end is not None
        run_together(end, WarpGroup(self, lanes, rows, count))
        self.state[lanes] = RUNNING
        self.at[lanes] = number + 1

    def _existing(self, lanes: Ndarray) -> Ndarray:
        """The lanes of a warp that the block has: its last warp may be short."""
        left = np.minimum(self.threads_per_block - self.threads[lanes] // WARP * WARP, WARP)
        return ((np.uint64(1) << left.astype("u8")) - np.uint64(1)).astype("u4")

    def _blocks_go_on(self) -> bool:
        """Those blocks go on whose barrier is complete."""
        waiting = np.flatnonzero(self.state == AT_BARRIER)
        if not len(waiting):
            return False
        going = Barriers(self, waiting).going()
        if not len(going):
            return False
        if self._is_whole and len(going) == self.count and not self.touched.any():
            self._end_epoch()
        self.touched[self.block_rows[going]] = False
        self.stamps[going] = next_interval(self.stamps[going], self.block_rows[going])
        self.state[going] = RUNNING
        self.at[going] += 1
        return True

    def _end_epoch(self) -> None:
        """All blocks are at a barrier, behind one of all: where each knows of all others, nobody meets the past."""
        order = self.memory.order
        if order is None or not order.know_all(self.stamps[:: self.threads_per_block]):
            return
        self.memory.order = Synchronisation(self.block_count)
        self.least_stamp = self._device.begin_launch(self.memory.order)
        self.memory.shared_begin(self.least_stamp)
        self.stamps = stamps_of(self.least_stamp, self.blocks, self.threads)

    def _stuck(self) -> None:
        """Nobody will ever go on."""
        waiting = np.flatnonzero(self.state == AT_WARP)
        if len(waiting):
            lane = int(waiting[0])
            same = self.warps == self.warps[lane]
            elsewhere = [int(k) % WARP for k in self.threads[same & (self.at != self.at[lane]) & (self.state != GONE)]]
            ended = [int(k) % WARP for k in self.threads[same & (self.state == GONE)]]
            detail = f"lanes {ended} have ended" if ended else f"lanes {elsewhere} wait elsewhere"
            end = self.module.blocks[self.at[lane]].end
            raise self.fault("lane missing at a warp operation", detail, lane, end)
        lane = int(np.flatnonzero(self.state == AT_BARRIER)[0])
        detail = "threads of one block wait at different barriers, none of which is complete"
        raise self.fault("divergent barrier", detail, lane, self.module.blocks[self.at[lane]].end)

    @property
    def is_gone(self) -> Ndarray:
        """Which lanes have ended."""
        result: Ndarray = self.state == GONE
        return result

    def fault(self, kind: FindingKind, detail: str, lane: int, end: Instruction | None = None) -> EmulatedFault:
        """What was found, with the place."""
        return self.memory.fault(kind, detail, lane, end.number if end is not None else 0)


_functions: WeakKeyDictionary[Module, dict[int, BlockFunction]] = WeakKeyDictionary()


def _block_functions(module: Module) -> dict[int, BlockFunction]:
    """The functions of a module's blocks, as far as any launch needed them."""
    return _functions.setdefault(module, {})
