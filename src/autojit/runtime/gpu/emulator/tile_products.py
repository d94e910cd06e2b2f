"""Products of tiles on tensor cores: who holds which element, and sums in double before one rounding.

Hardware adds in an order and with a rounding of its own, which no document promises; results here are nearer.
Positions are those of the fragments in NVIDIA's PTX ISA: lane ``4 g + t`` of a warp.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.conversions import widened
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.ptx_text import Instruction

_G = np.arange(32) >> 2
_T = np.arange(32) & 3
_TENSOR_FLOAT = np.uint32(0xFFFFE000)  # sign, exponent and 10 digits; hardware does not look at the others

Fragment = list[Ndarray]


def multiply_tiles(instruction: Instruction, x: Fragment, y: Fragment, z: Fragment) -> Fragment:
    """The result's fragments of ``x @ y + z``, one row of 32 lanes per warp in each array."""
    opcode = instruction.opcode
    shape = next((word for word in opcode if word[0] == "m" and "n" in word and "k" in word and word != "mma"), "")
    kinds = opcode[-4:]
    if opcode[-1] == "satfinite" or "row" not in opcode or "col" not in opcode:
        raise UnknownInstructionError(instruction.text)
    if kinds == ("f64",) * 4 and shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"):
        return _doubles(shape, x, y, z)
    if kinds == ("f32", "tf32", "tf32", "f32") and shape in ("m16n8k4", "m16n8k8"):
        depth = int(shape.rpartition("k")[2])
        left, right = _words(x, depth), _words(y, depth, is_right=True)
        return _finish(left, right, z, _singles)
    if kinds[1] in ("bf16", "f16") and kinds[1] == kinds[2] and shape in ("m16n8k8", "m16n8k16"):
        depth = int(shape.rpartition("k")[2])
        read = widened if kinds[1] == "bf16" else _halves
        left, right = _pairs(x, depth, read), _pairs(y, depth, read, is_right=True)
        if kinds[0] == kinds[3] == "f32":
            return _finish(left, right, z, _singles)
        if kinds[0] == kinds[3] == "f16":
            return _finish_halves(left, right, z)
    raise UnknownInstructionError(instruction.text)


def _halves(bits: Ndarray) -> Ndarray:
    return np.ascontiguousarray(bits).view("f2")


def _singles(bits: Ndarray) -> Ndarray:
    return np.ascontiguousarray(bits).view("f4").astype("f8")


def _words(parts: Fragment, depth: int, is_right: bool = False) -> Ndarray:
    """Operands of tf32: one element in each word."""
    warps = len(parts[0])
    values = [(part & _TENSOR_FLOAT).view("f4").astype("f8") for part in parts]
    if is_right:
        tile = np.zeros((warps, depth, 8))
        for k, value in enumerate(values):
            tile[:, _T + 4 * k, _G] = value
        return tile
    tile = np.zeros((warps, 16, depth))
    for k, value in enumerate(values):
        tile[:, _G + 8 * (k & 1), _T + 4 * (k >> 1)] = value
    return tile


def _pairs(parts: Fragment, depth: int, read: Callable[[Ndarray], Ndarray], is_right: bool = False) -> Ndarray:
    """Operands of 16 bits: two elements in each word."""
    warps = len(parts[0])
    tile = np.zeros((warps, depth, 8) if is_right else (warps, 16, depth))
    for k, part in enumerate(parts):
        halves = read(np.ascontiguousarray(part).view("u2").reshape(warps, 32, 2)).astype("f8")
        for e in range(2):
            if is_right:
                tile[:, 2 * _T + e + 8 * k, _G] = halves[:, :, e]
            else:
                tile[:, _G + 8 * (k & 1), 2 * _T + e + 8 * (k >> 1)] = halves[:, :, e]
    return tile


def _finish(left: Ndarray, right: Ndarray, z: Fragment, read: Callable[[Ndarray], Ndarray]) -> Fragment:
    added = np.zeros((len(left), 16, 8))
    for k, part in enumerate(z):
        added[:, _G + 8 * (k >> 1), 2 * _T + (k & 1)] = read(part)
    total = (left @ right + added).astype("f4")
    return [np.ascontiguousarray(total[:, _G + 8 * (k >> 1), 2 * _T + (k & 1)]).view("u4") for k in range(4)]


def _finish_halves(left: Ndarray, right: Ndarray, z: Fragment) -> Fragment:
    warps = len(left)
    added = np.zeros((warps, 16, 8))
    for k, part in enumerate(z):
        halves = _halves(np.ascontiguousarray(part).view("u2").reshape(warps, 32, 2)).astype("f8")
        for e in range(2):
            added[:, _G + 8 * k, 2 * _T + e] = halves[:, :, e]
    total = (left @ right + added).astype("f2")
    results = []
    for k in range(2):
        both = np.stack([total[:, _G + 8 * k, 2 * _T + e] for e in range(2)], axis=2)
        results.append(np.ascontiguousarray(both).view("u4").reshape(warps, 32))
    return results


def _doubles(shape: str, x: Fragment, y: Fragment, z: Fragment) -> Fragment:
    warps = len(x[0])
    rows, depth = (8, 4) if shape == "m8n8k4" else (16, int(shape.rpartition("k")[2]))
    halves = rows // 8
    left, right, added = np.zeros((warps, rows, depth)), np.zeros((warps, depth, 8)), np.zeros((warps, rows, 8))
    for k, part in enumerate(x):
        left[:, _G + 8 * (k % halves), _T + 4 * (k // halves)] = part.view("f8")
    for k, part in enumerate(y):
        right[:, _T + 4 * k, _G] = part.view("f8")
    for k, part in enumerate(z):
        added[:, _G + 8 * (k >> 1), 2 * _T + (k & 1)] = part.view("f8")
    total = left @ right + added
    count = len(z)
    return [np.ascontiguousarray(total[:, _G + 8 * (k >> 1), 2 * _T + (k & 1)]).view("u8") for k in range(count)]
