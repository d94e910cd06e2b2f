"""Transfers that are no copies: a few bytes of the host go to the kernels of a device by value, as numbers do.

Keys of generators and small tables are computed by the host in every call. A copy of them is a call of the driver, and
a wait, of its own; what kernels read by value travels with the launch. Whoever reads the copy reads the original.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from autojit.core.device import CPU
from autojit.ir.graph import Value
from autojit.schedule.kernels import CopyKernel, Kernel, LoopKernel, StructuredKernel


def pass_by_value(kernels: Sequence[Kernel], kept: Collection[Value], most_bytes: int) -> list[Kernel]:
    """The kernels without copies of at most so many bytes from the host that only loops and attention read.

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
        if not all(map(_takes_values, mine)):
            found.append(kernel)
            continue
        for reader in mine:
            _read_original(reader, kernel)
    return found


def _takes_values(reader: Kernel) -> bool:
    """Whether a kernel may read what the host has: loops, and attention, which draws random numbers."""
    return isinstance(reader, LoopKernel) or (isinstance(reader, StructuredKernel) and bool(reader.accesses))


def _read_original(reader: Kernel, copy: CopyKernel) -> None:
    """Let a kernel read what was copied in place of the copy."""
    if isinstance(reader, LoopKernel):
        loads = [copy.source if load is copy.target else load for load in reader.program.loads]
        reader.program = replace(reader.program, loads=tuple(loads))
    elif isinstance(reader, StructuredKernel):
        accesses = [
            replace(access, value=copy.source) if access.value is copy.target else access for access in reader.accesses
        ]
        reader.accesses = tuple(accesses)
        reader.operands = tuple([access.value for access in accesses])


def _suits(copy: CopyKernel, kept: Collection[Value], most_bytes: int) -> bool:
    if copy.source.type.device != CPU or copy.target.type.device == CPU:
        return False
    return copy.source.type.size_bytes <= most_bytes and copy.target not in kept and copy.source not in kept
