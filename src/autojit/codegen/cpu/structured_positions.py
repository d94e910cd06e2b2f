"""Kernels of sizes that the step counts: positions of true elements, and a size that is a number.

Where the kernel finds a size, the argument after the result is the address of the word that takes it.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule, KernelText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, int32, int64
from autojit.core.sizes import typical
from autojit.ir.graph import Node
from autojit.schedule.counts import is_counting

ELEMENT_NS = 0.8


def print_positions(node: Node) -> KernelText:
    """The kernel of a ``Positions``: in one chunk, because each place depends on all before it."""
    size = node.inputs[0].type.size
    function = KernelFunction(KernelModule(), "kernel")
    finds = is_counting(node)
    function.pointers([size, size, 1] if finds else [size, node.outputs[0].type.size])
    count = function.slot(int64)
    function.put(count, function.emit.constant(0, int64))

    def element(i: str) -> None:
        place = function.get(count, int64)
        is_true = function.load(0, bool_, i)
        if finds:
            function.store(1, Scalar(i, int64), place.text)  # stays inside: no more places than elements before
        else:
            is_inside = function.line(f"icmp slt i64 {place.text}, {function.number(node.outputs[0].type.size)}")
            with function.when(function.line(f"and i1 {is_true.text}, {is_inside}")):
                function.store(1, Scalar(i, int64), place.text)
        function.put(count, function.emit.add(place, function.emit.cast(is_true, int64)))

    function.loop("element", "0", function.number(size), element)
    found = function.get(count, int64)
    if finds:
        function.store(2, found, "0")
    else:
        differs = f"icmp ne i64 {found.text}, {function.number(node.outputs[0].type.size)}"
        _fail_if(function, node, function.line(differs))
    return _finished(function, 10.0 + ELEMENT_NS * typical(size))


def print_extent(node: Node) -> KernelText:
    """The kernel of an ``Extent``: refuses a negative number."""
    function = KernelFunction(KernelModule(), "kernel")
    finds = is_counting(node)
    function.pointers([1, 0, 1] if finds else [1, 0])
    number = function.load(0, int64, "0")
    is_negative = function.line(f"icmp slt i64 {number.text}, 0")
    _fail_if(function, node, is_negative)
    if finds:
        function.store(2, Scalar(function.line(f"select i1 {is_negative}, i64 0, i64 {number.text}"), int64), "0")
    return _finished(function, 10.0)


def _fail_if(function: KernelFunction, node: Node, condition: str) -> None:
    """Report the op's failure where a condition holds."""
    function.emit.failures.append(Scalar(function.line(f"zext i1 {condition} to i32"), int32))
    function.collect_failures(node.op)


def _finished(function: KernelFunction, estimate_ns: float) -> KernelText:
    function.finish()
    module = function.module
    failing = tuple(function.failing)
    reports = function.reports
    return KernelText(module.text(), 1, 0, estimate_ns, reports, sizes=tuple(module.sizes), failing=failing)
