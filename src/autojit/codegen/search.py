"""Searching sorted lines: where a value would be inserted, by halving what is left of the line."""

from __future__ import annotations

from autojit.codegen.kernel_function import KernelFunction
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import int64
from autojit.core.sizes import size_max
from autojit.ir.graph import Node
from autojit.ops.sorting import Searchsorted


class Search:
    """The part of a kernel that looks for values one by one; it begins where the kernel's buffers are known."""

    def __init__(self, function: KernelFunction, node: Node) -> None:
        assert isinstance(node.op, Searchsorted)
        self.function, self.right = function, node.op.right
        self.line, self.values = (v.type for v in node.inputs)
        self.length = self.line.shape[-1]
        self.last = function.number(size_max(self.length - 1, 0))
        leading = function.value(f"call i64 @llvm.ctlz.i64(i64 {function.number(self.length)}, i1 false)")
        self.steps = function.sub(64, leading)
        self.first, self.rest = function.slot(int64), function.slot(int64)

    def place(self, k: str) -> None:
        """Write where value ``k`` would be inserted into its line."""
        function = self.function
        per_line = self.values.shape[-1] if self.line.ndim != 1 else self.values.size
        wanted = function.read(1, self.values.dtype, k)
        number = function.quotient(k, size_max(per_line, 1)) if self.line.ndim != 1 else "0"
        start = function.mul(number, self.length)
        function.put(self.first, function.emit.constant(0, int64))
        function.put(self.rest, Scalar(function.number(self.length), int64))
        with function.loop(0, self.steps, stem="halve"):
            begin, left = function.get(self.first, int64).text, function.get(self.rest, int64).text
            half = function.binary("lshr", left, 1)
            middle = function.add(begin, half)
            inside = function.least(middle, self.last)
            found = function.read(0, self.line.dtype, function.add(start, inside))
            goes_on = _comes_before(function, found, wanted, self.right)
            goes_on = function.both(goes_on, function.test("sgt", left, 0))
            behind = function.add(middle, 1)
            shorter = function.sub(function.sub(left, half), 1)
            begin = function.choose(goes_on, behind, begin)
            function.put(self.first, Scalar(begin, int64))
            function.put(self.rest, Scalar(function.choose(goes_on, shorter, half), int64))
        function.write(2, function.get(self.first, int64), k)


def _comes_before(function: KernelFunction, a: Scalar, b: Scalar, also_equal: bool) -> str:
    """Whether an element of the line comes before the value (or is equal); NaN is the greatest."""
    emit = function.emit
    if a.dtype.kind == "float":
        smaller = emit.lt(a, b)
        if also_equal:
            return emit.logical_or(emit.logical_or(smaller, emit.eq(a, b)), emit.isnan(b)).text
        return emit.logical_or(smaller, emit.logical_and(emit.isnan(b), emit.logical_not(emit.isnan(a)))).text
    return (emit.le(a, b) if also_equal else emit.lt(a, b)).text
