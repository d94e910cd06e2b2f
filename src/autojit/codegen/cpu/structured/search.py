"""Searching sorted lines (`codegen.search`); chunks cut the values."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import even_chunks
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
from autojit.codegen.search import Search
from autojit.core.sizes import typical
from autojit.ir.graph import Node

# They only cut work into chunks; no measurement is recorded.
STEP_NS = 2.0
STEPS = 10  # of a typical search


def print_search(node: Node) -> KernelText:
    """The kernel of a ``Searchsorted``."""
    line, values = (v.type for v in node.inputs)
    count = values.size
    function = CpuKernel.alone()
    function.pointers([line.size, count, count])
    estimate = 50.0 + STEP_NS * STEPS * typical(count)
    chunks, size = even_chunks(count, estimate, round(1000 * STEP_NS) * STEPS * count)
    bounds = function.chunk_bounds(size, count)
    search = Search(function, node)
    with function.loop(*bounds, stem="value") as k:
        search.place(k)
    return function.finished(chunks, estimate)
