"""Where a plan is written, and what its words refer to: this process.

A plan is words, some of which are addresses: of other words, of the arena, of code, of what reports errors.
`PlanMemory` gives these for a step that runs in this process. Whoever writes a plan for elsewhere (`export`) gives
others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.codegen.lowered import Callback, Reporter, Tape, Word
from autojit.core.device import CPU, Device
from autojit.core.foreign_functions import ForeignFunction
from autojit.core.types import TensorType
from autojit.runtime.bodies import builtin_address, load_kernels, watch_signals
from autojit.runtime.callbacks import calling
from autojit.runtime.failures import Failures
from autojit.runtime.memory import arena_at
from autojit.runtime.nested_plans import NestedMemory
from autojit.runtime.pool import get_num_threads
from autojit.runtime.size_program import SizeProgram


class PlanMemory:
    """The memory of one step's plan, with those inside it; it keeps what the words point to."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self.keep: list[Any] = []
        self.failures = Failures(reporters)
        self.nested = NestedMemory(self.failures)

    @property
    def workers(self) -> int:
        """How many threads scratch is laid out for."""
        return max(get_num_threads(), 1)

    @property
    def error(self) -> int:
        """The address of the words that a failing kernel writes."""
        return self.failures.address

    def zeros(self, count: int) -> tuple[Any, int]:
        """Words that live as long as the plan, and their address."""
        block = np.zeros(count, np.uint64)
        self.keep.append(block)
        return block, int(block.__array_interface__["data"][0])

    def arena(self, size_bytes: int) -> Any:
        """The host's memory for temporaries of fixed sizes."""
        return arena_at(CPU, size_bytes)

    def size_program(
        self,
        inputs: Sequence[TensorType],
        counted: Sequence[str],
        caught: Callable[[BaseException], None],
        make_arena: Callable[[Device, int], Any],
    ) -> SizeProgram:
        """What works out the words that depend on sizes; the arguments are those of `SizeProgram`."""
        return SizeProgram(inputs, counted, caught, make_arena)

    def builtin(self, name: str) -> int:
        """The address of a body of the plan runner, of a branch, a loop or a call, or of a matrix product."""
        return builtin_address(name)

    def kernel(self, text: str, symbol: str) -> int:
        """The address of a kernel."""
        (code,) = load_kernels((text,))
        self.keep.append(code)
        return code.address(symbol)

    def foreign(self, function: ForeignFunction) -> int:
        """The address of a function of another library."""
        return function.address()

    def group(self, name: str) -> int:
        """The address of the words of a group of processes."""
        from autojit.runtime.group_words import group_address  # few steps need it

        return group_address(name)

    def call(self, callback: Callback, context: int, sizes: SizeProgram | None) -> int:
        """The address of the words by which native code calls Python for an op."""
        return calling(callback, context, self.failures, sizes, self.keep)

    def word(self, symbol: Word) -> int:
        """The address of a word that entries share."""
        return int(self.nested.word(symbol).ctypes.data)

    def tape(self, symbol: Tape) -> int:
        """The address of the words of a growing tape."""
        return int(self.nested.tape(symbol).address)

    def watch_signals(self) -> bool:
        """Let a signal end long plans; whether it can."""
        watch_signals()
        return True
