"""Parted values: cheap results that are read in parts only, each element by one reader.

The gates of a recurrent cell are a sum whose quarters go different ways. Computing the sum where its parts are read
does the same work as storing it first, without the way through memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from autojit.core.sizes import surely_less, typical
from autojit.ir.graph import Graph, Node, Value
from autojit.ops.base import Elementwise
from autojit.ops.shape import Slice
from autojit.schedule.kinds import Kind

# Slices of a value that are compared pair by pair, which is 28 comparisons at most; more are told apart if one axis
# alone does it. No value has more than five in the steps of tools/schedule_bounds.py.
FEW = 8


def parted_values(
    graph: Graph, definitions: Mapping[Value, Node], kinds: Mapping[Node, Kind], least: int
) -> set[Value]:
    """Values of cheap elementwise ops whose readers are slices without common elements, each read by one such op.

    With them, the operands of the same shape that are computed for them alone. Time O(edges).

    Args:
        least: slices of a value (`Machine.least_parts`).
    """
    parts: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Slice) and _is_cheap(definitions.get(node.inputs[0]), kinds):
            parts.setdefault(node.inputs[0], []).append(node)
    parts = {value: nodes for value, nodes in parts.items() if len(nodes) >= least and _are_apart(nodes)}
    if not parts:
        return set()
    owner = {node.outputs[0]: value for value, nodes in parts.items() for node in nodes}
    others = {*graph.outputs}
    once: set[Value] = set()
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            if value in owner and (value in once or not _is_elementwise(node, kinds)):
                others.add(value)
            elif value in owner:
                once.add(value)
            elif value in parts and not isinstance(node.op, Slice):
                others.add(value)
    found = [value for value, nodes in parts.items() if others.isdisjoint((value, *(n.outputs[0] for n in nodes)))]
    uses = graph.use_counts() if found else {}
    for value in found:  # grows by what is computed for it alone
        for operand in definitions[value].inputs:
            is_own = uses[operand] == 1 and operand.type.shape == value.type.shape
            if is_own and _is_cheap(definitions.get(operand), kinds):
                found.append(operand)
    return set(found)


def _is_elementwise(node: Node, kinds: Mapping[Node, Kind]) -> bool:
    return kinds[node] is Kind.POINTWISE and isinstance(node.op, Elementwise)


def _is_cheap(node: Node | None, kinds: Mapping[Node, Kind]) -> bool:
    if node is None or not _is_elementwise(node, kinds):
        return False
    op: Any = node.op
    return bool(op.is_cheap) and not node.is_kept


def _are_apart(slices: Sequence[Node]) -> bool:
    """Whether no element is in two slices; of many, whether one axis alone tells them apart."""
    ops: list[Slice] = [node.op for node in slices]  # type: ignore[misc]
    if len(ops) <= FEW:
        return all(_is_apart(a, b) for a, b in combinations(ops, 2))
    for axis in range(len(ops[0].starts)):
        in_order = sorted(ops, key=lambda op: typical(op.starts[axis]))
        if not any(_may_begin(b.starts[axis], a.stops[axis]) for a, b in pairwise(in_order)):
            return True
    return False


def _is_apart(a: Slice, b: Slice) -> bool:
    """Whether one slice ends before the other begins, along some axis."""
    bounds = zip(a.starts, a.stops, b.starts, b.stops, strict=True)
    return any(not _may_begin(b0, a1) or not _may_begin(a0, b1) for a0, a1, b0, b1 in bounds)


def _may_begin(start: int, stop: int) -> bool:
    """Whether a start may be before a stop."""
    return not surely_less(stop - 1, start)
