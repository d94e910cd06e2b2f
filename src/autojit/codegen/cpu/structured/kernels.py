"""Kernels of structured ops on contiguous operands, as LLVM text.

Arguments of a kernel: the operands' pointers, the results', then those of reports (see `kernel_text`). What has no
printer here is called back from the step through its eager rule, and counted.
"""

from __future__ import annotations

from collections.abc import Callable

from autojit.codegen.cpu.convolutions.kernel import print_convolution
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelText
from autojit.codegen.cpu.structured.cholesky import print_cholesky
from autojit.codegen.cpu.structured.concatenation import BYTE_NS, print_concatenation
from autojit.codegen.cpu.structured.fourier import print_transform
from autojit.codegen.cpu.structured.integer_product import print_matmul
from autojit.codegen.cpu.structured.lapack import print_eigh, print_qr, print_svd
from autojit.codegen.cpu.structured.positions import print_extent, print_positions
from autojit.codegen.cpu.structured.scan import print_scan
from autojit.codegen.cpu.structured.scatter import print_scatter
from autojit.codegen.cpu.structured.search import print_search
from autojit.codegen.cpu.structured.sort import print_row_order, print_sort
from autojit.codegen.cpu.structured.systems import (
    print_determinant,
    print_log_determinant,
    print_lu_pivots,
    print_lu_square,
    print_pivot_order,
    print_solve,
)
from autojit.codegen.cpu.structured.triangular_solve import print_triangular_solve
from autojit.codegen.kernel_function import WritesKernel
from autojit.codegen.target import HostTarget
from autojit.core.sizes import typical
from autojit.ir.graph import Node
from autojit.ir.op import Op
from autojit.ops.convolution import Trilinear
from autojit.ops.counted_positions import Extent, Positions
from autojit.ops.decompositions import Eigh, Qr, Svd
from autojit.ops.definiteness import FirstBadMinor
from autojit.ops.fourier import Transform
from autojit.ops.joining import Concatenate
from autojit.ops.linalg import Cholesky, Det, Inv, Slogdet, Solve, TriangularSolve
from autojit.ops.matmul import Matmul
from autojit.ops.reflections import Geqrf
from autojit.ops.reinterpret import Bitcast
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence
from autojit.ops.scattering import Scattering
from autojit.ops.sorting import RowOrder, Searchsorted, Sort
from autojit.ops.sources import Constant
from autojit.ops.triangular_factors import LuPivots, LuSquare, PivotOrder

Printer = Callable[[Node, HostTarget], KernelText | None]


def print_structured(node: Node, target: HostTarget) -> KernelText | None:
    """The kernel of a node by the printer of its op's class or the nearest base that has one; None: call back."""
    is_transform = isinstance(node.op, Transform)
    if not is_transform and any(v.type.dtype.is_complex for v in (*node.inputs, *node.outputs)):
        return None
    if isinstance(node.op, WritesKernel):
        kernel = CpuKernel.alone()
        estimate = node.op.write_kernel(kernel, node)
        return None if estimate is None else kernel.finished(1, estimate)
    printer = next((PRINTERS[cls] for cls in type(node.op).__mro__ if cls in PRINTERS), None)
    return None if printer is None else printer(node, target)


def _for_any(print_kernel: Callable[[Node], KernelText | None]) -> Printer:
    """A printer whose text does not depend on the target."""
    return lambda node, _: print_kernel(node)


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


def _print_bitcast(node: Node) -> KernelText:
    """The bytes of the operand."""
    x, y = node.inputs[0].type, node.outputs[0].type
    function = CpuKernel.alone()
    function.pointers([x.size, y.size])
    function.copy_bytes("%p1", "%p0", x.size * x.dtype.size_bytes)
    return function.finished(1, 10.0 + BYTE_NS * typical(x.size_bytes))


PRINTERS: dict[type[Op], Printer] = {
    Bitcast: _for_any(_print_bitcast),
    Cholesky: print_cholesky,
    Constant: _for_any(_print_constant),
    Concatenate: _for_any(print_concatenation),
    Cumulative: _for_any(print_scan),
    CumulativeExtreme: _for_any(print_scan),
    Det: print_determinant,
    Eigh: print_eigh,
    Extent: _for_any(print_extent),
    FirstBadMinor: print_cholesky,
    Geqrf: print_qr,
    Inv: print_solve,
    LinearRecurrence: _for_any(print_scan),
    LuPivots: print_lu_pivots,
    LuSquare: print_lu_square,
    Matmul: _for_any(print_matmul),
    PivotOrder: _for_any(print_pivot_order),
    Positions: _for_any(print_positions),
    Qr: print_qr,
    RowOrder: _for_any(print_row_order),
    Scattering: _for_any(print_scatter),
    Searchsorted: _for_any(print_search),
    Slogdet: print_log_determinant,
    Solve: print_solve,
    Sort: _for_any(print_sort),
    Svd: print_svd,
    TriangularSolve: print_triangular_solve,
    Transform: print_transform,
    Trilinear: print_convolution,
}
"""By class of op; one that writes its own kernel says so by its method (`WritesKernel`)."""
