"""Matrix products of integers: rows of the result as sums of rows of the right operand, vectorised along the row."""

from __future__ import annotations

from math import prod

from autojit.codegen.cpu.chunks import CHUNK_NS, MAX_CHUNKS, STEP_NS
from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule, KernelText
from autojit.core.config import config
from autojit.ir.graph import Node


def print_matmul(node: Node) -> KernelText:
    """The kernel of a product ``(..., m, k) @ (..., k, n)``; chunks cut the rows of the whole batch."""
    a, b = (v.type for v in node.inputs)
    *batch, m, k = a.shape
    n = b.shape[-1]
    rows = prod(batch) * m
    estimate = rows * (20.0 + k * (2.0 + 2 * STEP_NS * n))
    wanted = max(1, min(MAX_CHUNKS, int(estimate / CHUNK_NS)))
    size = max(1, -(-rows // wanted))
    function = KernelFunction(KernelModule(), "kernel", is_checked=config.check)
    function.pointers([a.size, b.size, rows * n])
    low = function.line(f"mul i64 %chunk, {size}")
    top = function.line(f"add i64 {low}, {size}")
    high = function.line(f"call i64 @llvm.smin.i64(i64 {top}, i64 {rows})")
    function.loop("row", low, high, lambda row: _row(function, node, row))
    function.finish()
    return KernelText(function.module.text(), max(1, -(-rows // size)), 0, estimate, reports=function.reports)


def _row(function: KernelFunction, node: Node, row: str) -> None:
    dtype = node.outputs[0].type.dtype
    m, k = node.inputs[0].type.shape[-2:]
    n = node.inputs[1].type.shape[-1]
    emit = function.emit
    start = function.line(f"mul i64 {row}, {n}")
    left = function.line(f"mul i64 {row}, {k}")
    matrix = function.line(f"udiv i64 {row}, {max(m, 1)}")
    right = function.line(f"mul i64 {matrix}, {k * n}")

    def clear(j: str) -> None:
        with function.parallel():
            function.store(2, emit.constant(0, dtype), function.line(f"add i64 {start}, {j}"))

    def add_row(depth: str) -> None:
        factor = function.load(0, dtype, function.line(f"add i64 {left}, {depth}"))
        skip = function.line(f"mul i64 {depth}, {n}")
        line = function.line(f"add i64 {right}, {skip}")

        def element(j: str) -> None:
            with function.parallel():
                place = function.line(f"add i64 {start}, {j}")
                term = emit.mul(factor, function.load(1, dtype, function.line(f"add i64 {line}, {j}")))
                function.store(2, emit.add(function.load(2, dtype, place), term), place)

        function.loop("column", "0", str(n), element, is_parallel=True)

    function.loop("clear", "0", str(n), clear, is_parallel=True)
    function.loop("depth", "0", str(k), add_row)
