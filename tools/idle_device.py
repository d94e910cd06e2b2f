"""A device that runs a few blocks of each kernel once, to see which global memory they access and how.

Memory holds zeros, or what the host has copied there, and nothing is compared with what should be. So kernels take no
time whatever their size, and what their blocks access is known for the real grid and the real addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.emulator.lane_memory import LaneMemory
from autojit.runtime.gpu.emulator.machine import Launch, Wave
from autojit.runtime.gpu.emulator.memory import WRITTEN
from autojit.runtime.gpu.emulator.spaces import Space
from tools.access_classes import Asked, Range, asked, classified

MOST_BLOCKS = 4
"""That are run, spread over the grid: kernels in which blocks differ are few, and have few kinds of them."""
MOST_ACCESSES = 500
"""Of a kernel, after which its loops have shown what they do."""


class Accesses:
    """What the sampled blocks of one kernel access.

    Attributes:
        asked: instruction by instruction, in the order of time.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    @property
    def widths(self) -> Counter[int]:
        """Bytes by the width of the access, those that lanes of a warp have in common counted once."""
        found = Counter[int]()
        for each in self.asked:
            found[each.size] += each.size * len(each.together)
        return found


class _Enough(Exception):
    """A kernel has shown what it does."""


class _CountingMemory(LaneMemory):
    """Memory that writes down who accesses it."""

    found: Accesses
    warps: Ndarray
    blocks: Ndarray

    def check(
        self,
        memory: Space,
        address: Ndarray,
        position: Ndarray,
        lanes: Ndarray,
        size: int,
        instruction: int,
        *rest: Any,
    ) -> Ndarray:
        if memory is self.global_space and len(lanes):
            who = self.warps[lanes].astype("u8"), self.blocks[lanes].astype("u8")
            self.found.asked.append(asked(instruction, size, *who, address.astype("u8")))
            if len(self.found.asked) > MOST_ACCESSES:
                raise _Enough
        return super().check(memory, address, position, lanes, size, instruction, *rest)


class IdleDriver(EmulatedDriver):
    """See the module. ``accesses`` are those of kernels by their PTX, if blocks are run at all (``samples``)."""

    def __init__(self, architecture: str, *, samples: bool) -> None:
        super().__init__(architecture)
        self._samples = samples
        self.accesses: dict[str, Accesses] = {}
        self._texts: dict[int, str] = {}

    def allocate(self, size_bytes: int) -> int:
        """Memory that may be read at once."""
        address = super().allocate(size_bytes)
        self.memory.state[self.memory.part(address, size_bytes, "fill")] |= WRITTEN
        return address

    def load(self, code: bytes) -> int:
        """A module, of which the text is kept."""
        number = super().load(code)
        self._texts[number] = code[code.index(b"\n") + 1 :].decode()
        return number

    def _run(
        self,
        function: int,
        blocks: tuple[int, int, int],
        threads: tuple[int, int, int],
        arguments: bytes,
        shared_bytes: int = 0,
        footprint: Any = None,
        **how: Any,
    ) -> None:
        module, text = self._functions[function]
        ptx, is_single = self._texts[module], blocks == threads == (1, 1, 1)  # those that write a table of addresses
        if not is_single and (ptx in self.accesses or not self._samples):
            return
        parsed, variables = self._modules[module]
        if parsed.synchronises and np.prod(blocks) > MOST_BLOCKS:
            return  # a few blocks would wait for the others
        found = self.accesses[ptx] = Accesses()
        content = np.frombuffer(arguments, "u1")
        launch = Launch(parsed, text, function, blocks, threads, content, variables, shared_bytes, None)
        least = self.memory.begin_launch(None)
        chosen = np.unique(np.linspace(0, np.prod(blocks) - 1, MOST_BLOCKS).astype("i8"))
        wave = Wave(launch, chosen, least, self.memory, None)
        wave.memory.__class__ = _CountingMemory
        memory: Any = wave.memory
        memory.found, memory.warps, memory.blocks = found, wave.warps, wave.block_rows
        try:
            with np.errstate(all="ignore"):
                wave.run()
        except (_Enough, EmulatedFault):  # what memory holds makes no sense to kernels that read positions from it
            pass


def told(found: Accesses | None, buffers: Sequence[Range]) -> dict[str, Any]:
    """What is passed on of accesses, as JSON knows it."""
    if found is None or not found.asked:
        return {}
    what = classified(found.asked, buffers)
    return {
        "widths": {str(k): v for k, v in found.widths.items()},
        "classes": dict(what.bytes),
        "sectors": dict(what.sectors),
    }
