"""Kernels of sizes that the step counts: positions of true elements, and a size that is a number.

Where the kernel finds a size, the argument after the result is the address of the word that takes it.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule, KernelText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, int32, int64
from autojit.core.sizes import typical
from autojit.ir.graph import Node
from autojit.schedule.counts import is_counting

ELEMENT_NS = 0.8  # only says what a kernel of one chunk takes; no measurement is recorded


def print_positions(node: Node) -> KernelText:
    """The kernel of a ``Positions``: in one chunk, because each place depends on all before it."""
    size = node.inputs[0].type.size
    function = CpuKernel(KernelModule(), "kernel")
    finds = is_counting(node)
    function.pointers([size, size, 1] if finds else [size, node.outputs[0].type.size])
    count = function.slot(int64)
    function.put(count, function.emit.constant(0, int64))
    with function.loop(0, size, stem="element") as i:
        place = function.get(count, int64)
        is_true = function.read(0, bool_, i)
        if finds:
            function.write(1, Scalar(i, int64), place.text)  # stays inside: no more places than elements before
        else:
            is_inside = function.test("slt", place.text, node.outputs[0].type.size)
            with function.when(function.both(is_true.text, is_inside)):
                function.write(1, Scalar(i, int64), place.text)
        function.put(count, function.emit.add(place, function.emit.cast(is_true, int64)))
    found = function.get(count, int64)
    if finds:
        function.write(2, found, "0")
    else:
        _fail_if(function, node, function.test("ne", found.text, node.outputs[0].type.size))
    return function.finished(1, 10.0 + ELEMENT_NS * typical(size))


def print_extent(node: Node) -> KernelText:
    """The kernel of an ``Extent``: refuses a negative number."""
    function = CpuKernel(KernelModule(), "kernel")
    finds = is_counting(node)
    function.pointers([1, 0, 1] if finds else [1, 0])
    number = function.read(0, int64, "0")
    is_negative = function.test("slt", number.text, 0)
    _fail_if(function, node, is_negative)
    if finds:
        function.write(2, Scalar(function.choose(is_negative, 0, number.text), int64), "0")
    return function.finished(1, 10.0)


def _fail_if(function: CpuKernel, node: Node, condition: str) -> None:
    """Report the op's failure where a condition holds."""
    function.emit.failures.append(Scalar(function.convert("zext", condition, "i1", "i32"), int32))
    function.collect_failures(node.op)
