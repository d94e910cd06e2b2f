"""What the lanes of a warp do together: shuffles, votes, matches, reductions, products of tiles.

An operation runs for whole warps at once. Values of the lanes come as rows of 32; lanes that take no part have zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.block_code import immediate
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.group_products import multiply_groups
from autojit.runtime.gpu.emulator.ptx_declarations import KINDS
from autojit.runtime.gpu.emulator.ptx_text import Address, Instruction, Negated, Operand
from autojit.runtime.gpu.emulator.tile_products import multiply_tiles

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.machine import Wave

WARP = 32
_BITS = np.uint32(1) << np.arange(WARP, dtype="u4")


class WarpGroup:
    """Lanes that are at one warp operation, with whom they do it.

    Args:
        lanes: of the wave.
        rows: number of the group of each lane: its warp, or a part of one that a mask names.
        count: of groups.
    """

    def __init__(self, wave: Wave, lanes: Ndarray, rows: Ndarray, count: int) -> None:
        self.wave, self.lanes, self.rows, self.count = wave, lanes, rows, count
        self.places = wave.places[lanes]
        self.is_whole = len(lanes) == count * WARP  # then the lanes are in the order of the rows
        self.is_there = np.full((count, WARP), self.is_whole)
        if not self.is_whole:
            self.is_there[rows, self.places] = True

    def values(self, operand: Operand, kind: str) -> Ndarray:
        """An operand's values, a row of 32 for each group."""
        if self.is_whole:
            return self.each(operand, kind).reshape(self.count, WARP)
        found = np.zeros((self.count, WARP), kind)
        found[self.rows, self.places] = self.each(operand, kind)
        return found

    def each(self, operand: Operand, kind: str) -> Ndarray:
        """An operand's value of each lane."""
        if isinstance(operand, Negated):
            return ~self.each(operand.register, kind)
        if isinstance(operand, int):
            bits = self.wave.register(operand)[self.lanes]
            own = bits.dtype
            if kind == "?" or own.itemsize == int(kind[1]):
                return bits.view(kind)
            return bits.astype(f"u{kind[1]}").view(kind)
        return np.full(len(self.lanes), immediate(str(operand), kind))

    def put(self, operand: Operand, values: Ndarray) -> None:
        """Give a register of the lanes the values of rows of 32."""
        if operand == "_":
            return
        assert isinstance(operand, int)
        register = self.wave.register(operand)
        own = values.reshape(-1) if self.is_whole else values[self.rows, self.places]
        if register.dtype != own.dtype:
            own = np.ascontiguousarray(own).view(f"u{own.dtype.itemsize}").astype(register.dtype)
        register[self.lanes] = own


def mask_operand(instruction: Instruction) -> Operand:
    """Which lanes an operation names; -1 where it has no word for it, because the whole warp takes part."""
    name = instruction.opcode[0]
    if name in ("mma", "ldmatrix", "wgmma"):
        return "-1"
    if name == "bar":
        return instruction.operands[0]
    return instruction.operands[-1]


def run_together(instruction: Instruction, group: WarpGroup) -> None:
    """Do one operation for all groups."""
    operation = _OPERATIONS.get(instruction.opcode[0])
    if operation is None:
        raise UnknownInstructionError(instruction.text)
    operation(instruction, group)


def _shuffle(instruction: Instruction, group: WarpGroup) -> None:
    target, *operands = instruction.operands
    first, second = target if isinstance(target, tuple) else (target, "_")
    values = group.values(operands[0], "u4")
    distance, limits = group.values(operands[1], "i4"), group.values(operands[2], "i4")
    lane = np.arange(WARP)[None, :]
    clamp, segment = limits & 31, (limits >> 8) & 31
    mode = instruction.opcode[2]
    low = lane & segment
    edge = low | (clamp & ~segment)
    distance = distance & 31
    if mode in ("up", "down"):
        source = lane - distance if mode == "up" else lane + distance
    elif mode == "bfly":
        source = lane ^ distance
    elif mode == "idx":
        source = low | (distance & ~segment)
    else:
        raise UnknownInstructionError(instruction.text)
    is_inside = source >= edge if mode == "up" else source <= edge
    source = np.where(is_inside, source, lane)
    if not group.is_whole:
        _refuse_missing(instruction, group, source)
    group.put(first, np.take_along_axis(values, source, 1))
    group.put(second, is_inside)


def _refuse_missing(instruction: Instruction, group: WarpGroup, source: Ndarray) -> None:
    """No lane may read one that takes no part."""
    is_missing = ~np.take_along_axis(group.is_there, source, 1) & group.is_there
    if is_missing.any():
        row, place = (int(k) for k in np.argwhere(is_missing)[0])
        lane = group.lanes[(group.rows == row) & (group.places == place)][0]
        detail = f"it reads lane {int(source[row, place])}, which takes no part"
        group.wave.memory.fail("lane missing at a warp operation", detail, int(lane), instruction.number)


def _vote(instruction: Instruction, group: WarpGroup) -> None:
    truth = group.values(instruction.operands[1], "?") & group.is_there
    mode = instruction.opcode[2]
    if mode == "ballot":
        found = np.where(truth, _BITS, np.uint32(0)).sum(1, dtype="u4")
    elif mode == "any":
        found = truth.any(1)
    elif mode == "all":
        found = (truth | ~group.is_there).all(1)
    elif mode == "uni":
        found = (truth | ~group.is_there).all(1) | ~truth.any(1)
    else:
        raise UnknownInstructionError(instruction.text)
    group.put(instruction.operands[0], np.repeat(found[:, None], WARP, 1))


def _match(instruction: Instruction, group: WarpGroup) -> None:
    target = instruction.operands[0]
    first, second = target if isinstance(target, tuple) else (target, "_")
    values = group.values(instruction.operands[1], KINDS[instruction.opcode[-1]])
    are_equal = (values[:, :, None] == values[:, None, :]) & group.is_there[:, None, :]
    found = np.where(are_equal, _BITS, np.uint32(0)).sum(2, dtype="u4")
    if instruction.opcode[1] == "all":
        everyone = np.where(group.is_there, _BITS, np.uint32(0)).sum(1, dtype="u4")[:, None]
        is_all = found == everyone
        group.put(second, is_all)
        found = np.where(is_all, found, np.uint32(0))
    group.put(first, found)


def _reduce(instruction: Instruction, group: WarpGroup) -> None:
    kind = KINDS[instruction.opcode[-1]]
    if kind[0] not in "ui":
        raise UnknownInstructionError(instruction.text)
    values = group.values(instruction.operands[1], kind)
    limits = np.iinfo(kind)
    mode = instruction.opcode[2]
    neutral = {"min": limits.max, "max": limits.min, "and": -1 if kind[0] == "i" else limits.max}.get(mode, 0)
    values = np.where(group.is_there, values, np.array(neutral, kind))
    functions: dict[str, np.ufunc] = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    found = functions[mode].reduce(values, axis=1).astype(kind)
    group.put(instruction.operands[0], np.repeat(found[:, None], WARP, 1))


def _elect(instruction: Instruction, group: WarpGroup) -> None:
    target = instruction.operands[0]
    first, second = target if isinstance(target, tuple) else (target, "_")
    leader = np.argmax(group.is_there, 1).astype("u4")
    group.put(first, np.repeat(leader[:, None], WARP, 1))
    group.put(second, leader[:, None] == np.arange(WARP)[None, :])


def _tiles(instruction: Instruction, group: WarpGroup) -> None:
    target, x, y, z = instruction.operands
    assert isinstance(target, tuple) and isinstance(x, tuple) and isinstance(y, tuple) and isinstance(z, tuple)
    rows = [[group.values(part, "u8" if "f64" in instruction.opcode else "u4") for part in v] for v in (x, y, z)]
    results = multiply_tiles(instruction, *rows)
    for part, values in zip(target, results):
        group.put(part, np.ascontiguousarray(values))


def _load_matrix(instruction: Instruction, group: WarpGroup) -> None:
    """Tiles of 8 × 8 halves: eight lanes give the addresses of a tile's rows, every lane gets two elements of it."""
    opcode = instruction.opcode
    if "m8n8" not in opcode or opcode[-1] != "b16":
        raise UnknownInstructionError(instruction.text)
    targets, place = instruction.operands
    assert isinstance(targets, tuple) and isinstance(place, Address)
    wave = group.wave
    if isinstance(place.base, int):
        address = group.each(place.base, "u8") + np.uint64(place.offset & ((1 << 64) - 1))
    else:
        begin = wave.module.declared.shared[place.base][0] + place.offset
        address = np.full(len(group.lanes), begin, "u8")
    for k, target in enumerate(targets):
        chosen = np.flatnonzero(group.places // 8 == k)
        lanes = wave.memory.lanes(group.lanes[chosen])
        words = wave.memory.load(lanes, "shared", address[chosen], "u4", 4, instruction.number, "")
        tile = np.zeros((group.count, 8, 4), "u4")
        for part, word in enumerate(words):
            tile[group.rows[chosen], group.places[chosen] % 8, part] = word
        if "trans" in opcode:
            halves = np.ascontiguousarray(tile).view("u2").reshape(group.count, 8, 8)
            tile = np.ascontiguousarray(halves.transpose(0, 2, 1)).view("u4").reshape(group.count, 8, 4)
        group.put(target, tile.reshape(group.count, WARP))


def _meet(instruction: Instruction, group: WarpGroup) -> None:
    """A barrier of a warp."""
    group.wave.begin_warp_interval(group.lanes)


_OPERATIONS: dict[str, Callable[[Instruction, WarpGroup], None]] = {
    "bar": _meet,
    "elect": _elect,
    "ldmatrix": _load_matrix,
    "match": _match,
    "mma": _tiles,
    "redux": _reduce,
    "shfl": _shuffle,
    "vote": _vote,
    "wgmma": multiply_groups,
}
