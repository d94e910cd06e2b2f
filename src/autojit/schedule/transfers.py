"""Transfers that are no copies: a few bytes of the host go to the kernels of a device by value, as numbers do.

Keys of generators and small tables are computed by the host in every call. A copy of them is a call of the driver, and
a wait, of its own; what kernels read by value travels with the launch. Whoever reads the copy reads the original.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from autojit.core.device import CPU
from autojit.core.sizes import surely_less
from autojit.ir.graph import Value
from autojit.schedule.kernels import CopyKernel, Kernel, LoopKernel


def pass_by_value(kernels: Sequence[Kernel], kept: Collection[Value], most_bytes: int) -> list[Kernel]:
    """The kernels without copies of at most so many bytes from the host that loops alone read.

    Preserves results: the original must be as it was until the last reader has run. Time O(reads of kernels).

    Args:
        kept: values that need memory of their own, and inputs whose memory is overwritten.
    """
    readers: dict[Value, list[Kernel]] = {}
    for kernel in kernels:
        for value in set(kernel.reads()):
            readers.setdefault(value, []).append(kernel)
    found: list[Kernel] = []
    for kernel in kernels:
        if not isinstance(kernel, CopyKernel) or not _suits(kernel, kept, most_bytes):
            found.append(kernel)
            continue
        mine = readers.get(kernel.target, [])
        loops = [reader for reader in mine if isinstance(reader, LoopKernel)]
        if len(loops) < len(mine):
            found.append(kernel)
            continue
        for reader in loops:
            loads = [kernel.source if load is kernel.target else load for load in reader.program.loads]
            reader.program = replace(reader.program, loads=tuple(loads))
    return found


def _suits(copy: CopyKernel, kept: Collection[Value], most_bytes: int) -> bool:
    if copy.source.type.device != CPU or copy.target.type.device == CPU:
        return False
    is_small = surely_less(copy.source.type.size_bytes, most_bytes + 1)
    return is_small and copy.target not in kept and copy.source not in kept
