"""Scatters as loops: ``result = base`` with elements of ``src`` set or folded in at run-time places, in order.

The loops are those of ``src``: rows over the axes that an index depends on, inner loops over the rest, where places are
neighbours and never meet. Rows in order make the result deterministic, whoever takes which part of the inner loops.
"""

from __future__ import annotations

from typing import Any

from autojit.ir.emitter import Emitter
from autojit.ir.graph import Node
from autojit.ir.index import Index, LoopVariable, Opaque, linearize
from autojit.ops.scattering import Scattering
from autojit.schedule.expressions import Applied, Expr, Expressions, Load, LookUp
from autojit.schedule.loops import LoopProgram, Store
from autojit.schedule.pull import Indices, loop_indices
from autojit.schedule.refine import settle


class _Fold:
    """What an `Applied` expression needs to be printed: an element folded into what is there."""

    is_cheap = True

    def __init__(self, combine: str) -> None:
        self.name = {"max": "maximum", "min": "minimum"}.get(combine, combine)

    def lower(self, emit: Emitter[Any], old: Any, new: Any) -> Any:
        return getattr(emit, self.name)(old, new)


def scatter_program(node: Node) -> LoopProgram:
    """The scatter's loops. Loads: the operands, then the result itself when its elements are added to."""
    op = node.op
    assert isinstance(op, Scattering)
    src = node.inputs[1].type
    axes = loop_indices(src.shape)
    exprs = Expressions()
    looked: set[LoopVariable] = set()

    def fetch(operand: int, where: Indices, extent: int) -> Index:
        value = node.inputs[operand]
        looked.update(t for index in where for t, _ in index.terms if isinstance(t, LoopVariable))
        position = linearize(where, value.type.shape)
        index = exprs.make(Load, value.type.dtype, positions=(position,), buffer=operand)
        name = f"x{operand}"
        exprs.lookups[name] = exprs.make(LookUp, value.type.dtype, (index,), extent=extent)
        return Index.of(Opaque(name, extent))

    target = op.target_index_at(axes, [v.type for v in node.inputs], fetch)
    place = linearize(target, node.inputs[0].type.shape)
    variables = tuple([t for axis in axes for t, _ in axis.terms if isinstance(t, LoopVariable)])
    last = max((k for k, v in enumerate(variables) if v in looked), default=-1)
    element: Expr = exprs.make(Load, src.dtype, positions=(linearize(axes, src.shape),), buffer=1)
    result = node.outputs[0]
    if op.combine != "set":
        old = exprs.make(Load, result.type.dtype, positions=(place,), buffer=len(node.inputs))
        element = exprs.make(Applied, result.type.dtype, (old, element), op=_Fold(op.combine))
    return settle(
        LoopProgram(
            rows=variables[: last + 1],
            inner=variables[last + 1 :],
            prefix=0,
            is_flat=False,
            exprs=tuple(exprs.made),
            reductions=(),
            stores=(Store(result, element, place),),
            accumulators=(),
            loads=node.inputs,
            lookups=exprs.lookups,
            lookup_nodes=dict.fromkeys(exprs.lookups, node),
        )
    )
