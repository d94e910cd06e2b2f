"""Positions of true elements: one pass that writes the next position and moves on where it counts.

The third argument is the address of the word that takes their number.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import KernelFunction, KernelModule, KernelText
from autojit.codegen.scalar import Scalar
from autojit.core.dtypes import bool_, int64
from autojit.core.sizes import typical
from autojit.ir.graph import Node

ELEMENT_NS = 0.8


def print_positions(node: Node) -> KernelText:
    """The kernel of a ``Positions``: in one chunk, because each place depends on all before it."""
    size = node.inputs[0].type.size
    function = KernelFunction(KernelModule(), "kernel")
    function.pointers([size, size, 1])
    count = function.slot(int64)
    function.put(count, function.emit.constant(0, int64))

    def element(i: str) -> None:
        place = function.get(count, int64)
        function.store(1, Scalar(i, int64), place.text)  # stays inside: no more places than elements before
        is_true = function.load(0, bool_, i)
        function.put(count, function.emit.add(place, function.emit.cast(is_true, int64)))

    function.loop("element", "0", function.number(size), element)
    function.store(2, function.get(count, int64), "0")
    function.finish()
    estimate = 10.0 + ELEMENT_NS * typical(size)
    return KernelText(function.module.text(), 1, 0, estimate, reports=False, sizes=tuple(function.module.sizes))
