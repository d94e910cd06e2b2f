"""Kernels of structured ops by the class of the op, on contiguous operands, of attention on strided ones.

Buffers: the operands in the order of the node's inputs, then the results. A scatter finds its base in its result, which
is passed in both places. What has no printer here is called back from the step through its eager rule, and counted.
"""

from __future__ import annotations

from collections.abc import Callable

from autojit.codegen.cuda import linear_algebra
from autojit.codegen.cuda.attention import print_attention
from autojit.codegen.cuda.cofactors import print_cofactors
from autojit.codegen.cuda.convolution import print_convolution
from autojit.codegen.cuda.grid_function import GLOBAL
from autojit.codegen.cuda.orthogonal import print_geqrf, print_qr
from autojit.codegen.cuda.positions import print_packed_positions
from autojit.codegen.cuda.products import print_product
from autojit.codegen.cuda.rare_elementwise import print_bitcast, print_common_factor
from autojit.codegen.cuda.scan import print_scan
from autojit.codegen.cuda.scatter import print_scatter
from autojit.codegen.cuda.sort import print_row_order, print_sort
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.cuda.thread_items import ItemKernel
from autojit.codegen.grid_text import GridText
from autojit.codegen.search import Search
from autojit.ir.graph import Node
from autojit.ir.op import Op
from autojit.ops.attention import Attending
from autojit.ops.convolution import Trilinear
from autojit.ops.counted_positions import PackedPositions
from autojit.ops.decompositions import Qr
from autojit.ops.definiteness import FirstBadMinor
from autojit.ops.integer_factors import Gcd, Lcm
from autojit.ops.linalg import Cholesky, Cofactor, Det, Inv, Slogdet, Solve, TriangularSolve
from autojit.ops.matmul import Matmul, MatmulAdd
from autojit.ops.reflections import Geqrf
from autojit.ops.reinterpret import Bitcast
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence
from autojit.ops.scattering import Scattering
from autojit.ops.sorting import RowOrder, Searchsorted, Sort
from autojit.ops.sources import Constant
from autojit.ops.triangular_factors import LuPivots, LuSquare, PivotOrder
from autojit.schedule.kernels import MatmulKernel, StructuredKernel, contiguous_access

Printer = Callable[[Node, CudaTarget], GridText | None]


def print_structured(kernel: StructuredKernel, target: CudaTarget) -> GridText | None:
    """The kernel of an op by the printer of its class or the nearest base that has one; None: call back."""
    node = kernel.node
    if any(v.type.dtype.kind in ("complex", "float8") for v in (*node.inputs, *node.outputs)):
        return None
    if isinstance(node.op, Attending):
        return print_attention(kernel, target)
    if kernel.epilogue is not None:
        return print_convolution(node, target, kernel.epilogue)
    printer = next((PRINTERS[cls] for cls in type(node.op).__mro__ if cls in PRINTERS), None)
    return None if printer is None else printer(node, target)


def _print_search(node: Node, target: CudaTarget) -> GridText:
    """A thread for each value that is looked for."""
    kernel = ItemKernel(node, node.inputs[1].type.size)
    search = Search(kernel, node)
    with kernel.item() as value:
        search.place(value)
    return kernel.text()


def _print_constant(node: Node, target: CudaTarget) -> GridText:
    """The table as a global of the module; a thread copies an element."""
    assert isinstance(node.op, Constant)
    data = bytes.fromhex(node.op.data)
    kernel = ItemKernel(node, node.outputs[0].type.size)
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    kernel.module.definitions["@table"] = (
        f'@table = internal {GLOBAL} constant [{len(data)} x i8] c"{escaped}", align 16'
    )
    kind = f"i{8 * node.op.dtype.size_bytes}"
    with kernel.item() as place:
        bits = kernel.load(kind, kernel.element(f"{GLOBAL} @table", kind, place))
        kernel.store(kind, bits, kernel.element(kernel.buffers[0], kind, place))
    return kernel.text()


def _print_matmul(node: Node, target: CudaTarget) -> GridText:
    """A product of a dtype that the schedule knows no products of."""
    a, b = (contiguous_access(x, x.type.shape) for x in node.inputs)
    return print_product(MatmulKernel(node, a, b), target)


def _print_matmul_add(node: Node, target: CudaTarget) -> GridText:
    """Such a product with a summand."""
    a, b = (contiguous_access(x, x.type.shape) for x in node.inputs[:2])
    return print_product(MatmulKernel(node, a, b, node.inputs[2]), target)


PRINTERS: dict[type[Op], Printer] = {
    Bitcast: print_bitcast,
    Cholesky: linear_algebra.print_cholesky,
    Cofactor: print_cofactors,
    Constant: _print_constant,
    Cumulative: print_scan,
    CumulativeExtreme: print_scan,
    Det: linear_algebra.print_determinant,
    FirstBadMinor: linear_algebra.print_first_bad_minor,
    Gcd: print_common_factor,
    Geqrf: print_geqrf,
    Inv: linear_algebra.print_inverse,
    Lcm: print_common_factor,
    LinearRecurrence: print_scan,
    LuPivots: linear_algebra.print_lu_pivots,
    LuSquare: linear_algebra.print_lu_square,
    Matmul: _print_matmul,
    MatmulAdd: _print_matmul_add,
    PackedPositions: print_packed_positions,
    PivotOrder: linear_algebra.print_pivot_order,
    Qr: print_qr,
    RowOrder: print_row_order,
    Scattering: print_scatter,
    Searchsorted: _print_search,
    Slogdet: linear_algebra.print_log_determinant,
    Solve: linear_algebra.print_solve,
    Sort: print_sort,
    TriangularSolve: linear_algebra.print_triangular_solve,
    Trilinear: print_convolution,
}
