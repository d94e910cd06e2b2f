"""Products with one row, one column or one step are loops: multiplications, and sums of them.

As a kernel of its own a matrix-vector product reads its matrix once for two operations an element, and so does the
transposed product of its derivative. As loops both fuse with what they read and feed: a residual, what is done with it
row by row and the product with the transposed matrix are one pass over the rows.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from autojit.core.dtypes import DType
from autojit.core.machine import Machine
from autojit.core.types import TensorType
from autojit.ir.builder import Tracer
from autojit.ir.graph import Graph
from autojit.ir.op import bind
from autojit.ops.elementwise_arithmetic import Cast, mul
from autojit.ops.matmul import Matmul
from autojit.ops.reductions import Sum
from autojit.ops.shape import BroadcastTo, Permute, Reshape, reshape
from autojit.passes.rewrite import Rewriter


def loosen_narrow_products(graph: Graph, machine: Machine) -> Graph:
    """``a @ b`` with one row, one column or one step becomes ``mul`` and ``sum`` over the matrix as it is stored.

    Preserves results to rounding (terms are added in another order; integers exactly) and source locations. One matrix
    that meets a batch of vectors stays a product: it is read once for all of them. Time O(nodes).
    """
    if not machine.loosens_products:
        return graph
    if not any(isinstance(node.op, Matmul) and _is_narrow(*(v.type for v in node.inputs)) for node in graph.nodes):
        return graph
    return Rewriter({"matmul": partial(_loosened, machine.kind)}).run(graph)


def _is_narrow(a: TensorType, b: TensorType) -> bool:
    return 1 in (a.shape[-2], a.shape[-1], b.shape[-1]) and a.dtype.kind != "complex"


def _loosened(kind: str, rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    a, b = operands
    if not _is_narrow(a.spec, b.spec) or a.spec.device.type != kind:
        return None
    widened = partial(_widened, op.result)
    if a.spec.shape[-1] == 1:
        return mul(widened(a), widened(b))
    is_row = b.spec.shape[-1] != 1  # C^T = B^T A^T
    matrix, vector = (b, a) if is_row else (a, b)
    if _is_repeated(rewriter, matrix):
        return None
    stored, is_swapped = _as_stored(rewriter, matrix)
    stored, vector = widened(stored), widened(vector)
    *batch, lines, length = stored.spec.shape
    if is_swapped == is_row:  # the sum is along lines
        terms, axis = mul(stored, reshape(vector, (*batch, 1, length))), len(batch) + 1
    else:
        terms, axis = mul(stored, reshape(vector, (*batch, lines, 1))), len(batch)
    return reshape(bind(Sum((axis,)), terms), (*a.spec.shape[:-1], b.spec.shape[-1]))


def _widened(result: DType | None, x: Tracer) -> Any:
    """An operand of a product with results of another dtype: the loops compute in that."""
    return x if result is None else bind(Cast(result), x)


def _as_stored(rewriter: Rewriter, x: Tracer) -> tuple[Tracer, bool]:
    """What an operand shows, and whether it does with the last two axes exchanged."""
    ndim, is_swapped = x.spec.ndim, False
    while rewriter.op_of(x) == Permute((*range(ndim - 2), ndim - 1, ndim - 2)):
        x, is_swapped = rewriter.operand_of(x), not is_swapped
    return x, is_swapped


def _is_repeated(rewriter: Rewriter, x: Tracer) -> bool:
    """Whether the batch repeats a matrix."""
    if prod(x.spec.shape[:-2]) == 1:
        return False
    found = rewriter.op_of(x)
    while isinstance(found, Permute | Reshape):
        x = rewriter.operand_of(x)
        found = rewriter.op_of(x)
    return isinstance(found, BroadcastTo)
