"""``kernel_combine``: folds the chunks' partial results in order, so that results do not depend on threads."""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import CpuKernel
from autojit.codegen.cpu.loops.folds import FoldPrinter
from autojit.codegen.folding import partial_dtype


def print_combine(kernel: FoldPrinter) -> None:
    """Add the function to the kernel's module; its arguments are the kernel's."""
    function = CpuKernel(kernel.module, f"{kernel.signature.symbol}_combine", follows_reports=kernel.reports)
    function.pointers(kernel.argument_sizes())
    for position, offset in kernel.partials.items():
        accumulator = kernel.program.accumulators[position]
        wide, op = partial_dtype(accumulator), accumulator.op
        identity, combine = op.lower(function.emit, wide)
        total = function.slot(wide)
        with function.parallel_loop(0, kernel.walk.inner_count if accumulator.kind == "col" else 1, "combine") as i:
            function.put(total, identity)
            with function.loop(0, kernel.plan.count, stem="slot") as c:
                skip = function.add(function.mul(c, kernel.partial_bytes), offset)
                base = function.at(function.buffers[kernel.partial_argument()], skip)
                value = function.emit.load(function.address(base, wide, i), wide, function.access)
                function.put(total, combine(function.get(total, wide), value))
            result = function.emit.cast(function.get(total, wide), accumulator.value.type.dtype)
            function.write(kernel.accumulator_argument(position), result, i)
    function.finish()
