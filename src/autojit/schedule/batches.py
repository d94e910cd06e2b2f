"""Batches: neighbouring loop kernels that do not touch each other's results, run as one parallel loop.

An optimiser updates every parameter with the same few loops; one after another they pay a fork and join each and leave
threads idle at every end. A batch hands the chunks of all of them out together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autojit.core.machine import Machine
from autojit.core.records import record
from autojit.core.sizes import typical
from autojit.ir.graph import Value
from autojit.schedule.bands import Band
from autojit.schedule.kernels import Apart, Kernel, LoopKernel, device_of

# Kernels of a batch. The largest one in the golden corpus has 27; no measurement of larger ones is recorded.
MOST_KERNELS = 512


@record(eq=False, frozen=False)
class Batch:
    """Independent loop kernels."""

    kernels: list[LoopKernel]

    def reads(self) -> list[Value]:
        return list(dict.fromkeys(v for k in self.kernels for v in k.reads()))

    def writes(self) -> list[Value]:
        return [v for k in self.kernels for v in k.writes()]


class _Collector:
    """Grows a batch of independent kernels; ``overwritten`` maps a result to the input whose memory it takes."""

    def __init__(self, overwritten: Mapping[Value, Value], apart: Apart) -> None:
        self.overwritten = overwritten
        self.apart = apart
        self.kernels: list[LoopKernel] = []
        self.read: set[Value] = set()
        self.written: set[Value] = set()

    def join(self, kernel: Kernel) -> bool:
        if not isinstance(kernel, LoopKernel) or len(self.kernels) >= MOST_KERNELS:
            return False
        if any(not a.prefix for a in kernel.program.accumulators):
            return False  # its partial results must be combined before the next reader
        if self.apart.separates(kernel, self.kernels):
            return False
        if self.kernels and device_of(kernel) != device_of(self.kernels[0]):
            return False
        writes = set(kernel.writes())
        clobbers = writes | {self.overwritten[v] for v in writes if v in self.overwritten}
        reads = set(kernel.reads())
        # Nothing orders the writes of one kernel and the reads of another here, not even reads of an old value.
        if not self.written.isdisjoint(reads | clobbers) or not self.read.isdisjoint(clobbers):
            return False
        self.kernels.append(kernel)
        self.read |= reads
        self.written |= clobbers
        return True


def form_batches(
    items: Sequence[Kernel | Band], overwritten: Mapping[Value, Value], apart: Apart, machine: Machine
) -> list[Kernel | Band | Batch]:
    """Runs of independent loop kernels as batches; everything else as it is. Time O(kernels)."""
    result: list[Kernel | Band | Batch] = []
    collector = _Collector(overwritten, apart)
    for item in items:
        if not isinstance(item, Band) and collector.join(item):
            continue
        result += _finish(collector, machine)
        collector = _Collector(overwritten, apart)
        if isinstance(item, Band) or not collector.join(item):
            result.append(item)
    return result + _finish(collector, machine)


def _finish(collector: _Collector, machine: Machine) -> list[Kernel | Band | Batch]:
    touched = sum(typical(v.type.size_bytes) for k in collector.kernels for v in (*k.reads(), *k.writes()))
    if len(collector.kernels) < 2 or touched < machine.batch_bytes:
        return list(collector.kernels)
    return [Batch(collector.kernels)]
