"""``kernel_combine``: folds the chunks' partial results in order, so that results do not depend on threads."""

from __future__ import annotations

from typing import Any

from autojit.codegen.cpu.chunks import partial_dtype
from autojit.codegen.cpu.folds import FoldPrinter
from autojit.codegen.cpu.kernel_text import KernelFunction
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import DType
from autojit.schedule.loops import Accumulator


def print_combine(kernel: FoldPrinter) -> None:
    """Add the function to the kernel's module; its arguments are the kernel's."""
    function = KernelFunction(kernel.module, f"{kernel.symbol}_combine", follows_reports=kernel.reports)
    function.pointers(kernel.argument_sizes())
    for position, offset in kernel.partials.items():
        accumulator = kernel.program.accumulators[position]
        count = kernel.walk.inner_count if accumulator.kind == "col" else 1
        _combine_one(function, kernel, accumulator, (kernel.accumulator_argument(position), offset, count))
    function.finish()


def _combine_one(
    function: KernelFunction, kernel: FoldPrinter, accumulator: Accumulator, place: tuple[int, int, int]
) -> None:
    """``place``: (argument of the result, byte offset in a chunk's block, number of elements)."""
    target, offset, count = place
    wide = partial_dtype(accumulator)
    op: Any = accumulator.op
    identity, combine = op.lower(function.emit, wide)
    total = function.slot(wide)

    def element(i: str) -> None:
        function.put(total, identity)

        def chunk(c: str) -> None:
            skip = function.line(f"mul i64 {c}, {function.number(kernel.partial_bytes)}")
            skip = function.line(f"add i64 {skip}, {function.number(offset)}")
            base = function.line(f"getelementptr i8, ptr %p{kernel.partial_argument()}, i64 {skip}")
            value = function.emit.load(function.element(base, wide, i), wide)
            function.put(total, combine(function.get(total, wide), value))

        function.loop("slot", "0", function.number(kernel.plan.count), chunk)
        function.store(target, _as_result(function, function.get(total, wide), accumulator.value.type.dtype), i)

    function.loop("combine", "0", function.number(count), element)


def _as_result(function: KernelFunction, total: Scalar, dtype: DType) -> Scalar:
    return function.emit.cast(total, dtype)
