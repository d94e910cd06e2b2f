"""Matrix products of integers: rows of the result as sums of rows of the right operand, vectorised along the row."""

from __future__ import annotations

from math import prod

from autojit.codegen.cpu.chunks import STEP_NS, even_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
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
    chunks, size = even_chunks(rows, estimate, picoseconds)
    function = CpuKernel.alone()
    function.pointers([a.size, b.size, rows * n])
    with function.loop(*function.chunk_bounds(size, rows), stem="row") as row:
        _row(function, node, row)
    return function.finished(chunks, estimate)


def _row(function: CpuKernel, node: Node, row: str) -> None:
    dtype = node.outputs[0].type.dtype
    m, k = node.inputs[0].type.shape[-2:]
    n = node.inputs[1].type.shape[-1]
    emit = function.emit
    start = function.mul(row, n)
    left = function.mul(row, k)
    matrix = function.quotient(row, size_max(m, 1))
    right = function.mul(matrix, k * n)
    with function.parallel_loop(0, n, "clear") as j:
        function.write(2, emit.constant(0, dtype), function.add(start, j))
    with function.loop(0, k, stem="depth") as depth:
        factor = function.read(0, dtype, function.add(left, depth))
        line = function.add(right, function.mul(depth, n))
        with function.parallel_loop(0, n, "column") as j:
            place = function.add(start, j)
            term = emit.mul(factor, function.read(1, dtype, function.add(line, j)))
            function.write(2, emit.add(function.read(2, dtype, place), term), place)
