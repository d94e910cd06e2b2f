"""Kernels of structured ops on contiguous operands, as LLVM text.

Arguments of a kernel: the operands' pointers, the results', then those of reports (see `kernel_text`). What has no
printer here is called back from the step through its eager rule, and counted.
"""

from __future__ import annotations

from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
from autojit.codegen.cpu.structured_concatenation import print_concatenation
from autojit.codegen.cpu.structured_convolution import print_convolution
from autojit.codegen.cpu.structured_matmul import print_matmul
from autojit.codegen.cpu.structured_positions import print_extent, print_positions
from autojit.codegen.cpu.structured_scan import print_scan
from autojit.codegen.cpu.structured_scatter import print_scatter
from autojit.codegen.cpu.structured_search import print_search
from autojit.codegen.cpu.structured_sort import print_row_order, print_sort
from autojit.codegen.kernel_function import WritesKernel
from autojit.codegen.target import HostTarget
from autojit.ir.graph import Node
from autojit.ops.convolution import Trilinear
from autojit.ops.counted_positions import Counting, Extent
from autojit.ops.joining import Concatenate
from autojit.ops.matmul import Matmul
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence
from autojit.ops.scattering import Scattering
from autojit.ops.sorting import RowOrder, Searchsorted, Sort
from autojit.ops.sources import Constant


def print_structured(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a node, or None when the op has no native lowering."""
    if any(v.type.dtype.is_complex for v in (*node.inputs, *node.outputs)):
        return None
    if isinstance(node.op, Scattering):
        return print_scatter(node)
    if isinstance(node.op, Cumulative | CumulativeExtreme | LinearRecurrence):
        return print_scan(node)
    if isinstance(node.op, Trilinear):
        return print_convolution(node, target)
    if isinstance(node.op, Matmul):
        return print_matmul(node)
    if isinstance(node.op, Sort | RowOrder):
        return print_sort(node) if isinstance(node.op, Sort) else print_row_order(node)
    if isinstance(node.op, Searchsorted):
        return print_search(node)
    if isinstance(node.op, Counting):
        return print_extent(node) if isinstance(node.op, Extent) else print_positions(node)
    if isinstance(node.op, WritesKernel):
        kernel = CpuKernel.alone()
        estimate = node.op.write_kernel(kernel, node)
        return None if estimate is None else kernel.finished(1, estimate)
    if isinstance(node.op, Concatenate):
        return print_concatenation(node)
    return _print_constant(node) if isinstance(node.op, Constant) else None


def _print_constant(node: Node) -> KernelText:
    """The table as a global of the module, copied to the result."""
    assert isinstance(node.op, Constant)
    data = bytes.fromhex(node.op.data)
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    function = CpuKernel.alone()
    function.module.definitions["@table"] = f'@table = private constant [{len(data)} x i8] c"{escaped}", align 64'
    function.pointers([node.outputs[0].type.size])
    function.copy_bytes("%p0", "@table", len(data))
    return function.finished(1, 10.0 + 0.1 * len(data))
