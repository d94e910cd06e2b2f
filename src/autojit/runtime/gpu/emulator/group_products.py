"""Products of groups of four warps (``wgmma``): operands are in shared memory, where descriptors say.

Each warp has sixteen rows of the result, so each is done for itself, at once: hardware goes on meanwhile, until the
kernel waits. What is read is checked as any access. Descriptors are those of NVIDIA's PTX ISA; of their layouts the one
is known that turns rows of 128 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.conversions import widened
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.ptx_text import Instruction

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.warp_operations import WarpGroup

_WARP, _ROWS, _DEPTH = 32, 16, 16
_ROW_BYTES, _CHUNK_BYTES, _PER_CHUNK = 128, 16, 8
_TURNED_128 = 1  # what the descriptor calls the layout
_G, _T = np.arange(_WARP) >> 2, np.arange(_WARP) & 3


def multiply_groups(instruction: Instruction, group: WarpGroup) -> None:
    """``d += a @ b``, where the predicate holds, else ``d = a @ b``."""
    opcode = instruction.opcode
    shape, kinds = opcode[4], opcode[5:]
    columns = int(shape.removeprefix("m64n").partition("k")[0])
    if not group.is_whole or not shape.endswith("k16") or kinds not in (("f32", "bf16", "bf16"), ("f32", "f16", "f16")):
        raise UnknownInstructionError(instruction.text)
    target, a, b, keeps, *signs, turns_a, turns_b = instruction.operands
    if signs != ["1", "1"] or not isinstance(target, tuple) or len(target) * 2 != columns:
        raise UnknownInstructionError(instruction.text)
    warps = (group.wave.threads[group.lanes[::_WARP]] // _WARP % 4).astype("i8")
    left = _operand(instruction, group, group.values(a, "u8")[:, 0], warps * _ROWS, _ROWS, turns_a == "1")
    right = _operand(instruction, group, group.values(b, "u8")[:, 0], warps * 0, columns, turns_b == "1")
    total = np.matmul(left, right.transpose(0, 2, 1))
    added = group.values(keeps, "?")
    for k, part in enumerate(target):
        places = _G + 8 * (k >> 1 & 1), 8 * (k >> 2) + 2 * _T + (k & 1)
        before = np.where(added, group.values(part, "u4").view("f4"), np.float32(0))
        group.put(part, (total[:, *places] + before.astype("f8")).astype("f4").view("u4"))


def _operand(
    instruction: Instruction, group: WarpGroup, described: Ndarray, first: Ndarray, lines: int, is_turned: bool
) -> Ndarray:
    """Of each warp the lines from ``first`` on, 16 deep; ``is_turned``: neighbours in memory are lines."""
    if ((described >> np.uint64(62)) != _TURNED_128).any():
        raise UnknownInstructionError(instruction.text, "operands of another layout")
    start, leading, stride = ((described >> np.uint64(k) & np.uint64(0x3FFF)).astype("i8") * 16 for k in (0, 16, 32))
    number = np.arange(lines * _DEPTH // _PER_CHUNK)
    if is_turned:
        depth, chunk = number % _DEPTH, number // _DEPTH + first[:, None] // _PER_CHUNK
        address = chunk // 8 * leading[:, None] + depth // 8 * stride[:, None]
        address = address + depth % 8 * _ROW_BYTES + chunk % 8 * _CHUNK_BYTES
    else:
        line, chunk = number // 2 + first[:, None], number % 2
        address = line // 8 * stride[:, None] + line % 8 * _ROW_BYTES + chunk * _CHUNK_BYTES
    address = address + start[:, None]
    address = (address ^ (address >> 7 & 7) << 4).astype("u8")
    read = widened if instruction.opcode[-1] == "bf16" else _halves
    found = np.zeros((group.count, lines, _DEPTH))
    lanes = group.wave.memory.lanes(group.lanes)
    for begin in range(0, len(number), _WARP):
        here = np.ascontiguousarray(address[:, begin : begin + _WARP]).reshape(-1)
        words = group.wave.memory.load(lanes, "shared", here, "u4", 4, instruction.number, "")
        bits = np.ascontiguousarray(np.stack(words, 1)).view("u2").reshape(group.count, _WARP, _PER_CHUNK)
        values = read(bits).astype("f8")
        n = number[begin : begin + _WARP]
        for k in range(_PER_CHUNK):
            if is_turned:
                found[:, n // _DEPTH * _PER_CHUNK + k, n % _DEPTH] = values[:, :, k]
            else:
                found[:, n // 2, n % 2 * _PER_CHUNK + k] = values[:, :, k]
    return found


def _halves(bits: Ndarray) -> Ndarray:
    return bits.view("f2")
