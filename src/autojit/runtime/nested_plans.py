"""What plans inside a plan need of memory: shared words, and tapes that grow while a loop runs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.codegen.cpu.plan.records import TapeWords
from autojit.codegen.lowered import Tape, Word
from autojit.core.device import CPU, Device, reaches
from autojit.runtime.callbacks import kept_address
from autojit.runtime.failures import Failures
from autojit.runtime.memory import arena_at, bucket_size

FIRST_STEPS = 16
"""A tape begins with room for this many steps."""


class GrowingTape:
    """The memory of one loop's tape. It keeps its size from call to call, as an arena does.

    Native code calls `_make_room`; the word it counts up tells that no signal has come in its place.

    Args:
        record_bytes: of one step.
        failures: those of the step.
        device: whose memory it is in.
        beside: tapes that grow with it.
    """

    def __init__(
        self, record_bytes: int, failures: Failures, device: Device = CPU, beside: Sequence[GrowingTape] = ()
    ) -> None:
        self.record_bytes = record_bytes
        self.device = device
        self.beside = beside
        self.failures = failures
        self._keep: list[Any] = []
        address = kept_address(self._make_room, self._keep)
        words = TapeWords(address=0, capacity=0, record_bytes=record_bytes, make_room=address, answers=0)
        self.words = np.array(words, np.int64)
        self.address = int(self.words.ctypes.data)
        self._arena: Any = None

    def _make_room(self, context: int, steps: int, worker: int) -> None:
        try:
            if self.record_bytes and steps > self._capacity():
                for tape in (*self.beside, self):
                    tape.grow(max(steps, 2 * self._capacity(), FIRST_STEPS))
            self.words[TapeWords.answers.place] += 1
        except BaseException as error:  # must not cross native code: raised when the step has ended
            self.failures.caught(error)
            self.words[TapeWords.answers.place] += 1

    def _capacity(self) -> int:
        return int(self.words[TapeWords.capacity.place])

    def grow(self, steps: int) -> None:
        """Have room for at least so many steps."""
        arena = arena_at(self.device, bucket_size(steps * self.record_bytes))
        if self._arena is not None:
            self._copy(arena.address, self._arena.address, self._capacity() * self.record_bytes)
        self._arena = arena
        self.words[TapeWords.address.place] = arena.address
        self.words[TapeWords.capacity.place] = arena.size_bytes // self.record_bytes

    def _copy(self, target: int, source: int, size_bytes: int) -> None:
        if reaches(self.device):
            ctypes.memmove(target, source, size_bytes)
            return
        from autojit.runtime.gpu.devices import cuda_device  # a process without devices needs none of it

        found = cuda_device(self.device.index or 0)
        found.use()
        found.driver.copy_within(target, source, size_bytes, found.stream)
        found.driver.synchronize(found.stream)  # the old memory may be another stream's, which does not wait


class NestedMemory:
    """The words and tapes of one step, by the symbols that stand for them."""

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self._words: dict[Any, Any] = {}
        self._tapes: dict[Tape, GrowingTape] = {}

    def word(self, symbol: Word) -> Any:
        """The word behind a symbol."""
        found = self._words.get(symbol)
        if found is None:
            found = self._words[symbol] = np.array([symbol.initial], np.int64)
        return found

    def tape(self, symbol: Tape) -> GrowingTape:
        """The tape behind a symbol."""
        found = self._tapes.get(symbol)
        if found is None:
            beside = [self.tape(other) for other in symbol.beside]
            found = GrowingTape(symbol.record_bytes, self.failures, symbol.device, beside)
            self._tapes[symbol] = found
        return found
