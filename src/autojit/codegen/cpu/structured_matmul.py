"""Matrix products of integers: rows of the result as sums of rows of the right operand, vectorised along the row."""

from __future__ import annotations

from math import prod

from autojit.codegen.cpu.chunks import MAX_CHUNKS, STEP_NS, wanted_chunks
from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule, KernelText
from autojit.core.config import config
from autojit.core.sizes import size_max, typical
from autojit.ir.graph import Node


def print_matmul(node: Node) -> KernelText:
    """The kernel of a product ``(..., m, k) @ (..., k, n)``; chunks cut the rows of the whole batch."""
    a, b = (v.type for v in node.inputs)
    *batch, m, k = a.shape
    n = b.shape[-1]
    rows = prod(batch) * m
    estimate = typical(rows) * (20.0 + typical(k) * (2.0 + 2 * STEP_NS * typical(n)))
    picoseconds = rows * (20_000 + k * (2000 + round(2000 * STEP_NS) * n))
    wanted = wanted_chunks(estimate, picoseconds, MAX_CHUNKS)
    size = size_max(1, -(-rows // wanted))
    function = KernelFunction(KernelModule(), "kernel", is_checked=config.check)
    function.pointers([a.size, b.size, rows * n])
    low = function.line(f"mul i64 %chunk, {function.number(size)}")
    top = function.line(f"add i64 {low}, {function.number(size)}")
    high = function.line(f"call i64 @llvm.smin.i64(i64 {top}, i64 {function.number(rows)})")
    function.loop("row", low, high, lambda row: _row(function, node, row))
    function.finish()
    chunks, sizes = size_max(1, -(-rows // size)), tuple(function.module.sizes)
    return KernelText(function.module.text(), chunks, 0, estimate, reports=function.reports, sizes=sizes)


def _row(function: KernelFunction, node: Node, row: str) -> None:
    dtype = node.outputs[0].type.dtype
    m, k = node.inputs[0].type.shape[-2:]
    n = node.inputs[1].type.shape[-1]
    emit = function.emit
    start = function.line(f"mul i64 {row}, {function.number(n)}")
    left = function.line(f"mul i64 {row}, {function.number(k)}")
    matrix = function.line(f"udiv i64 {row}, {function.number(size_max(m, 1))}")
    right = function.line(f"mul i64 {matrix}, {function.number(k * n)}")

    def clear(j: str) -> None:
        with function.parallel():
            function.store(2, emit.constant(0, dtype), function.line(f"add i64 {start}, {j}"))

    def add_row(depth: str) -> None:
        factor = function.load(0, dtype, function.line(f"add i64 {left}, {depth}"))
        skip = function.line(f"mul i64 {depth}, {function.number(n)}")
        line = function.line(f"add i64 {right}, {skip}")

        def element(j: str) -> None:
            with function.parallel():
                place = function.line(f"add i64 {start}, {j}")
                term = emit.mul(factor, function.load(1, dtype, function.line(f"add i64 {line}, {j}")))
                function.store(2, emit.add(function.load(2, dtype, place), term), place)

        function.loop("column", "0", function.number(n), element, is_parallel=True)

    function.loop("clear", "0", function.number(n), clear, is_parallel=True)
    function.loop("depth", "0", function.number(k), add_row)
