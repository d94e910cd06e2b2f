"""Searching sorted lines: where a value would be inserted, by halving what is left of the line."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import MAX_CHUNKS, wanted_chunks
from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule, KernelText
from autojit.codegen.scalar import Scalar
from autojit.core.config import config
from autojit.core.dtypes import int64
from autojit.core.sizes import size_max, typical
from autojit.ir.graph import Node
from autojit.ops.sorting import Searchsorted

STEP_NS = 2.0
STEPS = 10  # of a typical search


def print_search(node: Node) -> KernelText:
    """The kernel of a ``Searchsorted``; chunks cut the values."""
    op, (line, values) = node.op, (v.type for v in node.inputs)
    assert isinstance(op, Searchsorted)
    function = KernelFunction(KernelModule(), "kernel", is_checked=config.check)
    length, per_line = line.shape[-1], values.shape[-1] if line.ndim != 1 else values.size
    count = values.size
    function.pointers([line.size, count, count])
    estimate = 50.0 + STEP_NS * STEPS * typical(count)
    wanted = wanted_chunks(estimate, round(1000 * STEP_NS) * STEPS * count, MAX_CHUNKS)
    size = size_max(1, -(-count // wanted))
    low = function.line(f"mul i64 %chunk, {function.number(size)}")
    top = function.line(f"add i64 {low}, {function.number(size)}")
    high = function.line(f"call i64 @llvm.smin.i64(i64 {top}, i64 {function.number(count)})")
    last = function.number(size_max(length - 1, 0))
    leading = function.line(f"call i64 @llvm.ctlz.i64(i64 {function.number(length)}, i1 false)")
    steps = function.line(f"sub i64 64, {leading}")
    first, rest = function.slot(int64), function.slot(int64)

    def value(k: str) -> None:
        wanted_value = function.load(1, values.dtype, k)
        number = function.line(f"udiv i64 {k}, {function.number(size_max(per_line, 1))}") if line.ndim != 1 else "0"
        start = function.line(f"mul i64 {number}, {function.number(length)}")
        function.put(first, function.emit.constant(0, int64))
        function.put(rest, Scalar(function.number(length), int64))

        def halve(_: str) -> None:
            begin, left = function.get(first, int64).text, function.get(rest, int64).text
            half = function.line(f"lshr i64 {left}, 1")
            middle = function.line(f"add i64 {begin}, {half}")
            inside = function.line(f"call i64 @llvm.smin.i64(i64 {middle}, i64 {last})")
            found = function.load(0, line.dtype, function.line(f"add i64 {start}, {inside}"))
            goes_on = _comes_before(function, found, wanted_value, op.right)
            goes_on = function.line(f"and i1 {goes_on}, {function.line(f'icmp sgt i64 {left}, 0')}")
            behind = function.line(f"add i64 {middle}, 1")
            shorter = function.line(f"sub i64 {function.line(f'sub i64 {left}, {half}')}, 1")
            begin = function.line(f"select i1 {goes_on}, i64 {behind}, i64 {begin}")
            function.put(first, Scalar(begin, int64))
            function.put(rest, Scalar(function.line(f"select i1 {goes_on}, i64 {shorter}, i64 {half}"), int64))

        function.loop("halve", "0", steps, halve)
        function.store(2, function.get(first, int64), k)

    function.loop("value", low, high, value)
    function.finish()
    sizes = tuple(function.module.sizes)
    chunks = size_max(1, -(-count // size))
    return KernelText(function.module.text(), chunks, 0, estimate, reports=function.reports, sizes=sizes)


def _comes_before(function: KernelFunction, a: Scalar, b: Scalar, also_equal: bool) -> str:
    """Whether an element of the line comes before the value (or is equal); NaN is the greatest."""
    emit = function.emit
    if a.dtype.kind == "float":
        smaller = emit.lt(a, b)
        if also_equal:
            return emit.logical_or(emit.logical_or(smaller, emit.eq(a, b)), emit.isnan(b)).text
        return emit.logical_or(smaller, emit.logical_and(emit.isnan(b), emit.logical_not(emit.isnan(a)))).text
    return (emit.le(a, b) if also_equal else emit.lt(a, b)).text
