"""Attention with a function of its scores stays an op where kernels can compute the function; else it is written out.

A kernel computes what is one number per place: elementwise ops, and elements of what the function reads, picked by
indices that surely are within. That excludes functions that draw random numbers, reduce, or index by what they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from autojit.core.types import TensorType
from autojit.ir.graph import Graph, Node
from autojit.ir.inline import inline
from autojit.ops.attention import adjoint_of_one
from autojit.ops.base import Elementwise
from autojit.ops.elementwise_rounding import Quotient
from autojit.ops.flex_attention import NUMBERS, FlexAttending, FlexAttention, FlexAttentionAdjoint
from autojit.ops.formula import is_lowered
from autojit.ops.indexing import GatherNd
from autojit.ops.sources import Full
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.index_bounds import Bounds, IndexBounds
from autojit.passes.open_bodies import open_bodies
from autojit.passes.simplify import simplify

KINDS = ("float", "int", "uint", "bool")


def opened(op: FlexAttending, types: Sequence[TensorType]) -> FlexAttending | None:
    """The op with a function that kernels can compute; None: they cannot."""
    graph = eliminate_dead_code(simplify(open_bodies(op.graph)))
    shape = types[0].shape
    extents = (prod(shape[:-2]) // op.heads, op.heads, shape[-2], types[1].shape[-2])
    bounds = IndexBounds(graph)
    for value, extent in zip(graph.inputs[1:NUMBERS], extents, strict=True):
        bounds.assume(value, Bounds(0, extent))
    if not all(_is_of_one_place(node, graph, bounds) for node in graph.nodes):
        return None
    return replace(op, graph=graph)


def _is_of_one_place(node: Node, graph: Graph, bounds: IndexBounds) -> bool:
    op, types = node.op, [v.type for v in (*node.inputs, *node.outputs)]
    if any(t.dtype.kind not in KINDS for t in types):
        return False
    if isinstance(op, GatherNd):
        base, *places = node.inputs
        is_whole = base in graph.inputs and len(places) == base.type.ndim
        return is_whole and all(bounds.are_within(v, n) for v, n in zip(places, base.type.shape, strict=True))
    if any(t.shape for t in types):
        return False
    if isinstance(op, Full):
        return True
    if not isinstance(op, Elementwise) or not is_lowered(type(op)):
        return False
    return not op.may_fail(*types[:-1]) or (isinstance(op, Quotient) and bounds.are_positive(node.inputs[1]))


def written_out(op: FlexAttending, operands: Sequence[Any]) -> Any:
    """The composite: of the derivative, the adjoint of the composite, which has the forward weights."""
    types = [x.spec for x in operands]
    if isinstance(op, FlexAttentionAdjoint):
        forward = FlexAttention(op.scale, op.is_causal, op.has_mask, op.dropped, op.forward_graph, op.heads, op.block)
        operands = [*operands[: op.count], operands[-1]]
        graph = forward.derived(types[: op.count], adjoint_of_one, 0, (0, 1, 2), op.is_masked)
    else:
        graph = op.graph_of(types)
    return tuple(inline(open_bodies(graph), operands, operands[0]))
