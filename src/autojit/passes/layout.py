"""Layout: transposes move into the operands of matrix products, which read any strides for free."""

from __future__ import annotations

from typing import Any

from autojit.ir.builder import Tracer
from autojit.ir.graph import Graph, Value
from autojit.ir.op import bind
from autojit.ops.matmul import Matmul
from autojit.ops.shape import Permute
from autojit.passes.rewrite import Rewriter


def _swap(ndim: int) -> tuple[int, ...]:
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def transpose_products(graph: Graph) -> Graph:
    """``(a @ b).mT`` becomes ``b.mT @ a.mT`` where the product has no other reader.

    Preserves results bit for bit (every element is the same sum in the same order). Time O(nodes).
    """
    readers = graph.use_counts()
    made_by = graph.definitions()
    chosen: dict[Value, bool] = {}
    for node in graph.nodes:
        if isinstance(node.op, Permute) and node.op.axes[-2:] == _swap(len(node.op.axes))[-2:]:
            (x,) = node.inputs
            source = made_by.get(x)
            if source is not None and isinstance(source.op, Matmul) and readers[x] == 1:
                chosen[x] = node.op.axes == _swap(len(node.op.axes))
    if not any(chosen.values()):
        return graph
    done: set[Value] = set()

    def rule(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
        (x,) = operands
        if not chosen.get(x.value) or x.value in done:
            return None
        done.add(x.value)
        a, b = rewriter.operand_of(x, 0), rewriter.operand_of(x, 1)
        swap = Permute(_swap(a.spec.ndim))
        return bind(Matmul(), bind(swap, b), bind(swap, a))

    return Rewriter({"permute": rule}).run(graph)
