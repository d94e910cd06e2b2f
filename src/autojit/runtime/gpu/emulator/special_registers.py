"""Registers that say where a lane is: thread and block numbers, extents, masks of a warp's lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autojit.ir.op import Ndarray
from autojit.runtime.gpu.emulator.warp_operations import WARP

if TYPE_CHECKING:
    from autojit.runtime.gpu.emulator.machine import Launch, Wave


class SpecialRegisters(dict[str, Ndarray]):
    """What ``%tid.x`` and its like are for each lane; made as they are asked for."""

    def __init__(self, launch: Launch, wave: Wave) -> None:
        super().__init__()
        self._launch, self._wave = launch, wave

    def __missing__(self, name: str) -> Ndarray:
        found = self[name] = np.broadcast_to(self._value(name), self._wave.count).astype("u4")
        return found

    def _value(self, name: str) -> Ndarray | int:
        wave, launch = self._wave, self._launch
        word, _, axis = name[1:].partition(".")
        if axis:
            number, extents = (wave.blocks, launch.grid) if "cta" in word else (wave.threads, launch.extents)
            k = "xyz".index(axis)
            if word[0] == "n":
                return extents[k]
            return number // int(np.prod(extents[:k], dtype=np.int64)) % extents[k]
        own = np.int64(1) << wave.places
        values: dict[str, Ndarray | int] = {
            "laneid": wave.places,
            "warpid": wave.threads // WARP,
            "nwarpid": -(-wave.threads_per_block // WARP),
            "lanemask_eq": own,
            "lanemask_lt": own - 1,
            "lanemask_le": 2 * own - 1,
            "lanemask_gt": (1 << WARP) - 2 * own,
            "lanemask_ge": (1 << WARP) - own,
        }
        return values.get(word, 0)  # clocks stand still
