"""Searching sorted lines: where a value would be inserted, by halving what is left of the line."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import int64
from autojit.core.sizes import size_max, typical
from autojit.ir.graph import Node
from autojit.ops.sorting import Searchsorted

# They only cut work into chunks; no measurement is recorded.
STEP_NS = 2.0
STEPS = 10  # of a typical search


def print_search(node: Node) -> KernelText:
    """The kernel of a ``Searchsorted``; chunks cut the values."""
    op, (line, values) = node.op, (v.type for v in node.inputs)
    assert isinstance(op, Searchsorted)
    function = CpuKernel.alone()
    length, per_line = line.shape[-1], values.shape[-1] if line.ndim != 1 else values.size
    count = values.size
    function.pointers([line.size, count, count])
    estimate = 50.0 + STEP_NS * STEPS * typical(count)
    chunks, size = even_chunks(count, estimate, round(1000 * STEP_NS) * STEPS * count)
    bounds = function.chunk_bounds(size, count)
    last = function.number(size_max(length - 1, 0))
    leading = function.value(f"call i64 @llvm.ctlz.i64(i64 {function.number(length)}, i1 false)")
    steps = function.sub(64, leading)
    first, rest = function.slot(int64), function.slot(int64)
    with function.loop(*bounds, stem="value") as k:
        wanted_value = function.read(1, values.dtype, k)
        number = function.quotient(k, size_max(per_line, 1)) if line.ndim != 1 else "0"
        start = function.mul(number, length)
        function.put(first, function.emit.constant(0, int64))
        function.put(rest, Scalar(function.number(length), int64))
        with function.loop(0, steps, stem="halve"):
            begin, left = function.get(first, int64).text, function.get(rest, int64).text
            half = function.binary("lshr", left, 1)
            middle = function.add(begin, half)
            inside = function.least(middle, last)
            found = function.read(0, line.dtype, function.add(start, inside))
            goes_on = _comes_before(function, found, wanted_value, op.right)
            goes_on = function.both(goes_on, function.test("sgt", left, 0))
            behind = function.add(middle, 1)
            shorter = function.sub(function.sub(left, half), 1)
            begin = function.choose(goes_on, behind, begin)
            function.put(first, Scalar(begin, int64))
            function.put(rest, Scalar(function.choose(goes_on, shorter, half), int64))
        function.write(2, function.get(first, int64), k)
    return function.finished(chunks, estimate)


def _comes_before(function: CpuKernel, a: Scalar, b: Scalar, also_equal: bool) -> str:
    """Whether an element of the line comes before the value (or is equal); NaN is the greatest."""
    emit = function.emit
    if a.dtype.kind == "float":
        smaller = emit.lt(a, b)
        if also_equal:
            return emit.logical_or(emit.logical_or(smaller, emit.eq(a, b)), emit.isnan(b)).text
        return emit.logical_or(smaller, emit.logical_and(emit.isnan(b), emit.logical_not(emit.isnan(a)))).text
    return (emit.le(a, b) if also_equal else emit.lt(a, b)).text
