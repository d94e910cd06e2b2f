"""A device that runs a few blocks of each kernel once, to see which global memory they access and how.

Memory holds zeros, or what the host has copied there, and nothing is compared with what should be. So kernels take no
time whatever their size, and what their blocks access is known for the real grid and the real addresses.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.gpu.emulator.findings import EmulatedFault
from autojit.runtime.gpu.emulator.lane_memory import LaneMemory
from autojit.runtime.gpu.emulator.machine import Launch, Wave
from autojit.runtime.gpu.emulator.memory import WRITTEN
from autojit.runtime.gpu.emulator.spaces import Space

MOST_BLOCKS = 4
"""That are run, spread over the grid: kernels in which blocks differ are few, and have few kinds of them."""
MOST_ACCESSES = 500
"""Of a kernel, after which its loops have shown what they do."""
SECTOR_BYTES = 32
"""What a cache fetches at least (CUDA C++ Best Practices Guide, coalesced access)."""


class Accesses:
    """What the sampled blocks of one kernel access.

    Attributes:
        widths: bytes by the width of the access, those that lanes of a warp have in common counted once.
        sector_bytes: of the sectors that they are in.
    """

    def __init__(self) -> None:
        self.widths: Counter[int] = Counter()
        self.sector_bytes = 0
        self.count = 0

    def add(self, warps: Ndarray, addresses: Ndarray, size: int) -> None:
        """An instruction: which lanes' warps access what."""
        self.count += 1
        together = np.unique((warps.astype("u8") << np.uint64(48)) | addresses)
        self.widths[size] += size * len(together)
        self.sector_bytes += SECTOR_BYTES * len(np.unique(together // np.uint64(SECTOR_BYTES)))


class _Enough(Exception):
    """A kernel has shown what it does."""


class _CountingMemory(LaneMemory):
    """Memory that writes down who accesses it."""

    found: Accesses
    warps: Ndarray

    def check(
        self, memory: Space, address: Ndarray, position: Ndarray, lanes: Ndarray, size: int, *rest: Any
    ) -> Ndarray:
        if memory is self.global_space:
            self.found.add(self.warps[lanes], address, size)
            if self.found.count > MOST_ACCESSES:
                raise _Enough
        return super().check(memory, address, position, lanes, size, *rest)


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
        wave.memory.found, wave.memory.warps = found, wave.warps  # type: ignore[attr-defined]
        try:
            with np.errstate(all="ignore"):
                wave.run()
        except (_Enough, EmulatedFault):  # what memory holds makes no sense to kernels that read positions from it
            pass


def told(found: Accesses | None) -> dict[str, Any]:
    """What is passed on of accesses, as JSON knows it."""
    if found is None or not found.count:
        return {}
    return {"widths": {str(k): v for k, v in found.widths.items()}, "sectors": found.sector_bytes}
