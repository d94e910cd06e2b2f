"""Expand what code generation does not know into what it knows.

``view_update`` becomes its chain of updates; matrix products of halves, integers and bool are computed in a type that
has a GEMM; sums of halves accumulate in float32.
"""

from __future__ import annotations

from typing import Any

from autojit.core.dtypes import DType, bfloat16, float16, float32
from autojit.ir.builder import Tracer
from autojit.ir.graph import Graph
from autojit.ir.op import Op, bind
from autojit.passes.rewrite import Rewriter, Rule

HALVES = (float16, bfloat16)


def _cast(x: Tracer, dtype: DType) -> Any:
    return bind(Op.registry["cast"](dtype), x)  # type: ignore[call-arg]


def _view_update(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    return op.expand(*operands)


def _in_float32(rewriter: Rewriter, op: Op, operands: tuple[Tracer, ...]) -> Any:
    dtype = operands[0].type.dtype
    if dtype not in HALVES:
        return None
    return _cast(bind(op, *[_cast(x, float32) for x in operands]), dtype)


RULES: dict[str, Rule] = {"view_update": _view_update, "matmul": _in_float32, "sum": _in_float32, "prod": _in_float32,
         "amax": _in_float32, "amin": _in_float32}


def expand(graph: Graph) -> Graph:
    """Rewrite ops without a lowering of their own.

    Preserves results (halves are rounded once at the end, as the eager rule does). Time O(nodes).
    """
    if not any(node.op.name in RULES for node in graph.nodes):
        return graph
    return Rewriter(RULES).run(graph)
