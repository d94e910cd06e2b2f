"""A schedule as text: one line per kernel with its loops, what it reads and writes, and its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autojit.ir.index import LoopVariable
from autojit.ir.printing import names_of
from autojit.schedule.bands import Band
from autojit.schedule.batches import Batch
from autojit.schedule.kernels import CopyKernel, Kernel, LoopKernel, MatmulKernel, StructuredKernel

if TYPE_CHECKING:
    from autojit.schedule.schedule import Schedule


def print_schedule(schedule: Schedule) -> str:
    """The kernels in order."""
    names = names_of(schedule.graph)
    lines = [f"{len(schedule.kernels)} kernels, arena {schedule.memory.peak_bytes} bytes"]
    for number, kernel in enumerate(_flat(schedule, lines)):
        reads = ", ".join(names.get(v, v.name or "?") for v in kernel.reads())
        writes = ", ".join(f"{names.get(v, v.name or '?')}: {v.type}" for v in dict.fromkeys(kernel.writes()))
        lines.append(f"{number:3d} {kernel_head(kernel)}  ({reads}) -> {writes}")
        lines += [f"      {node.op}  {node.source.described()}" for node in kernel.nodes]
    return "\n".join(lines)


def _flat(schedule: Schedule, lines: list[str]) -> Iterator[Kernel]:
    for item in schedule.kernels:
        if isinstance(item, Batch):
            lines.append(f"batch of {len(item.kernels)} independent kernels")
            yield from item.kernels
            lines.append("end of batch")
            continue
        if not isinstance(item, Band):
            yield item
            continue
        count, size = item.slices.count, item.local_bytes
        lines.append(f"band of {len(item.kernels)} kernels, {count} slices, {size} bytes per worker")
        yield from item.kernels
        lines.append("end of band")


def kernel_head(kernel: Kernel) -> str:
    """What a kernel is, in a few words: the loops it runs, or its op."""
    if isinstance(kernel, LoopKernel):
        program = kernel.program
        loops = _extents(program.rows)
        if not program.is_flat:
            phases = len({r.expr.phase for r in program.reductions})
            loops = f"rows {loops} inner {_extents(program.inner)}, {phases} row phases"
        return f"loops {loops}, {len(program.accumulators)} accumulators"
    if isinstance(kernel, MatmulKernel):
        more = "" if kernel.epilogue is None else f", then loops {_extents(kernel.epilogue.program.rows)}"
        return f"matmul {kernel.node.inputs[0].type} @ {kernel.node.inputs[1].type}{more}"
    if isinstance(kernel, StructuredKernel) and kernel.epilogue is not None:
        return f"{kernel.node.op.name}, then loops {_extents(kernel.epilogue.program.rows)}"
    return "copy" if isinstance(kernel, CopyKernel) else kernel.nodes[0].op.name


def _extents(loops: Sequence[LoopVariable]) -> str:
    return "x".join(str(v.extent) for v in loops) or "1"
