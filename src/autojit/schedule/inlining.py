"""Inline values: what readers compute or address themselves, without storage of its own."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from autojit.core.machine import Machine
from autojit.core.sizes import typical
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise
from autojit.ops.elementwise_arithmetic import Mul
from autojit.ops.reductions import Sum
from autojit.schedule.kinds import Kind
from autojit.schedule.padded import padded_values
from autojit.schedule.parted import parted_values
from autojit.schedule.pull import leaves, loop_indices


def inline_values(
    graph: Graph, definitions: dict[Value, Node], kinds: Mapping[Node, Kind], machine: Machine
) -> set[Value]:
    """Values that readers compute or address themselves: reindexing, sources, gathers, parts and cheap expansions.

    An expansion is a cheap elementwise op whose operands are much smaller than its result (a mask from positions, a sum
    of two broadcast vectors): computing it where it is read moves less memory than storing it.
    """
    inline: set[Value] = set()
    parted = parted_values(graph, definitions, kinds, machine.least_parts)
    terms = _terms(graph, definitions) if machine.loosens_products else set()
    for node in graph.nodes:
        kind = kinds[node]
        is_expansion = kind is Kind.POINTWISE and _is_expansion(node, definitions, inline, machine.expansion)
        # Each reader of an inline value computes it again. So only cheap ops expand (`Elementwise.is_cheap`), and parts
        # have one reader each.
        if kind is Kind.INLINE or is_expansion or node.outputs[0] in parted or node.outputs[0] in terms:
            inline.update(node.outputs)
    return inline | padded_values(graph, definitions, kinds, inline, machine)


def _terms(graph: Graph, definitions: Mapping[Value, Node]) -> set[Value]:
    """Products that repeat an operand and that one sum alone reads: a matrix-vector product never stores its terms."""
    found = {node.inputs[0] for node in graph.nodes if isinstance(node.op, Sum)}
    uses = graph.use_counts() if found else {}
    return {value for value in found if uses[value] == 1 and _repeats(definitions.get(value))}


def _repeats(node: Node | None) -> bool:
    """Whether a node multiplies by something smaller."""
    if node is None or not isinstance(node.op, Mul) or node.is_kept:
        return False
    (value,) = node.outputs
    return any(operand.type.shape != value.type.shape for operand in node.inputs)


def _is_expansion(node: Node, definitions: dict[Value, Node], inline: set[Value], expansion: int) -> bool:
    op = node.op
    if not isinstance(op, Elementwise) or not op.is_cheap or node.is_kept:  # what may refuse looks at every element
        return False
    size = typical(prod(node.outputs[0].type.shape))
    read = 0
    for operand in node.inputs:
        if operand not in inline:
            read += prod(operand.type.shape)
        else:
            index = loop_indices(operand.type.shape)
            read += sum(prod(v.type.shape) for v, _ in leaves(operand, index, definitions, inline))
        if typical(read) * expansion > size:
            return False
    return True
