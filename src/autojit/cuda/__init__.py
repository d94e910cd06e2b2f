"""torch.cuda's names: the devices that tensors can be placed on, their memory, queues and seeds; profiler and NVTX."""

from __future__ import annotations

from autojit.cuda import amp, driver, graphs, memory, nvtx, profiler, random, streams
from autojit.cuda import devices as _devices
from autojit.cuda.devices import *
from autojit.cuda.graphs import *
from autojit.cuda.memory import *
from autojit.cuda.random import *
from autojit.cuda.streams import *

__all__ = [
    "amp", "driver", "graphs", "memory", "nvtx", "profiler", "random", "streams",
    *_devices.__all__, *graphs.__all__, *memory.__all__, *random.__all__, *streams.__all__,
]  # fmt: skip
