"""Barriers of blocks: who waits at which, who may go on, and what a reducing one gives.

A barrier has a number below 16 and waits for all threads of its block, or for as many as the instruction says. Threads
of one block that wait for all at different instructions, or in vain for some that have ended, are a finding: hardware
lets some such programs through, and promises nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.distinct import few
from autojit.runtime.gpu.emulator.findings import UnknownInstructionError
from autojit.runtime.gpu.emulator.ptx_text import Instruction, Operand
from autojit.runtime.gpu.emulator.warp_operations import WarpGroup

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.machine import Wave

_NUMBERS = 16


def _operands(end: Instruction) -> tuple[Operand, Operand | None]:
    """The barrier's number, and for how many threads it waits if not for all."""
    if "sync" in end.opcode and "cluster" not in end.opcode:
        operands = end.operands
    elif "red" in end.opcode:
        operands = end.operands[1:-1]
    else:
        raise UnknownInstructionError(end.text, "a barrier of this kind")
    return operands[0], operands[1] if len(operands) > 1 else None


class Barriers:
    """The barriers of a wave's blocks, looked at when nobody can run."""

    def __init__(self, wave: Wave, waiting: Ndarray) -> None:
        self._wave, self._waiting = wave, waiting
        self._keys = np.zeros(len(waiting), "i8")
        self._needed = np.zeros(wave.block_count * _NUMBERS, "i8")
        for number in few(wave.at[waiting]):
            chosen = np.flatnonzero(wave.at[waiting] == number)
            lanes = waiting[chosen]
            group = WarpGroup(wave, lanes, np.arange(len(lanes)), len(lanes))
            barrier, count = _operands(self._end(number))
            keys = wave.block_rows[lanes] * _NUMBERS + group.each(barrier, "u4").astype("i8") % _NUMBERS
            self._keys[chosen] = keys
            needed = np.full(len(lanes), wave.threads_per_block) if count is None else group.each(count, "u4")
            np.maximum.at(self._needed, keys, needed.astype("i8"))
        self._here = np.bincount(self._keys, minlength=len(self._needed))

    def _end(self, number: int) -> Instruction:
        end = self._wave.module.blocks[number].end
        assert end is not None
        return end

    def going(self) -> Ndarray:
        """The lanes whose barrier is complete; their registers have what it gives.

        Raises:
            EmulatedFault: threads of one block wait for each other at different instructions, or for some that ended.
        """
        is_whole = (self._here > 0) & (self._here >= self._needed)
        chosen = np.flatnonzero(is_whole[self._keys])
        if not len(chosen):
            self._refuse_vain()
            return self._waiting[:0]
        lanes, keys = self._waiting[chosen], self._keys[chosen]
        self._refuse_different(lanes, keys)
        for number in few(self._wave.at[lanes]):
            end = self._end(number)
            if "red" in end.opcode:
                here = self._wave.at[lanes] == number
                self._reduce(end, lanes[here], keys[here])
        return lanes

    def _refuse_different(self, lanes: Ndarray, keys: Ndarray) -> None:
        """All threads of a block that wait for all must wait at one instruction."""
        at = self._wave.at[lanes]
        first = np.full(len(self._needed), len(self._wave.module.blocks))
        np.minimum.at(first, keys, at)
        is_other = (at != first[keys]) & (self._needed[keys] == self._wave.threads_per_block)
        if is_other.any():
            k = int(np.flatnonzero(is_other)[0])
            detail = "threads of one block wait for each other at different barriers"
            raise self._wave.fault("divergent barrier", detail, int(lanes[k]), self._end(int(at[k])))

    def _refuse_vain(self) -> None:
        """Who waits for threads that have ended waits in vain."""
        wave = self._wave
        gone = np.bincount(wave.block_rows[wave.is_gone], minlength=wave.block_count)
        if not gone.any():
            return
        for lane, key in zip(self._waiting, self._keys):
            ended, here = int(gone[key // _NUMBERS]), int(self._here[key])
            if ended and ended + here == wave.threads_per_block:
                detail = f"{here} threads wait, {ended} have ended"
                raise wave.fault("divergent barrier", detail, int(lane), self._end(int(wave.at[lane])))

    def _reduce(self, end: Instruction, lanes: Ndarray, keys: Ndarray) -> None:
        """How many, whether all or whether any of the threads have a predicate."""
        group = WarpGroup(self._wave, lanes, np.arange(len(lanes)), len(lanes))
        truth = group.each(end.operands[-1], "?")
        counts = np.bincount(keys, weights=truth, minlength=len(self._needed)).astype("u4")
        register = end.operands[0]
        assert isinstance(register, int)
        values = counts[keys]
        if "popc" not in end.opcode:
            values = values == self._here[keys] if "and" in end.opcode else values > 0
        self._wave.register(register)[lanes] = values
