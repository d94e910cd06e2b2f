"""Many blocks of memory one behind the other, each copied as a whole. Chunks cut the list of blocks."""

from __future__ import annotations

from autojit.codegen.cpu.chunks import CHUNK_NS
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
from autojit.core.sizes import typical
from autojit.ir.graph import Node

# They only cut work into chunks: a byte out of memory and the call of ``memcpy``. No measurement is recorded.
BYTE_NS = 0.1
BLOCK_NS = 10.0


def print_concatenation(node: Node) -> KernelText:
    """The kernel of a concatenation along the outermost axis of extent above 1 (the schedule sends no others)."""
    sizes = [v.type.size for v in node.inputs]
    item_bytes = node.outputs[0].type.dtype.size_bytes
    function = CpuKernel.alone()
    *sources, result = function.pointers([*sizes, node.outputs[0].type.size])
    estimate = BYTE_NS * typical(node.outputs[0].type.size_bytes) + BLOCK_NS * len(sizes)
    wanted = max(1, int(estimate / CHUNK_NS))
    per_chunk = max(1, -(-len(sizes) // wanted))
    start: int = 0
    for first in range(0, len(sizes), per_chunk):
        is_ours = function.test("eq", "%chunk", first // per_chunk)
        with function.when(is_ours):
            for k in range(first, min(first + per_chunk, len(sizes))):
                place = function.number(start * item_bytes)
                target = function.at(result, place)
                function.copy_bytes(target, sources[k], sizes[k] * item_bytes)
                start += sizes[k]
    return function.finished(-(-len(sizes) // per_chunk), estimate)
