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

    So does any permutation that makes the rows of the product its innermost axis; what is left of it follows.

    Preserves results bit for bit (every element is the same sum in the same order). Time O(nodes).
    """
    readers = graph.use_counts()
    made_by = graph.definitions()
    chosen: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Permute) and len(node.op.axes) > 1 and node.op.axes[-1] == len(node.op.axes) - 2:
            (x,) = node.inputs
            source = made_by.get(x)
            if source is not None and isinstance(source.op, Matmul) and readers[x] == 1:
                chosen.add(x)
    if not chosen:
        return graph
    done: set[Value] = set()

    def rule(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
        (x,) = operands
        if x.value not in chosen or x.value in done:
            return None
        done.add(x.value)
        a, b = rewriter.operand_of(x, 0), rewriter.operand_of(x, 1)
        exchanged = _swap(a.spec.ndim)
        swap = Permute(exchanged)
        multiply = rewriter.op_of(x)
        assert multiply is not None, "it was chosen"
        product = bind(multiply, bind(swap, b), bind(swap, a))
        rest = tuple(exchanged[axis] for axis in op.axes)
        return product if rest == tuple(range(len(rest))) else bind(Permute(rest), product)

    return Rewriter({"permute": rule}).run(graph)
