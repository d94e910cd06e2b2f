"""The verifier: every invariant of a graph, checked between passes in tests and under ``AUTOJIT_CHECK=1``."""

from __future__ import annotations

from autojit.core.errors import VerificationError
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.result_types import placed_types


def verify(graph: Graph, after: str = "construction") -> Graph:
    """Return the graph unchanged, or raise VerificationError naming the broken invariant and the node.

    Checks: each value is defined once and before its uses; operand types satisfy the op's type rule and give the
    recorded result types, on the operands' device; extents are Python's numbers; outputs are defined.
    """
    defined: set[Value] = set()
    for value in graph.inputs:
        _define(value, defined, after)
    for node in graph.nodes:
        for value in node.inputs:
            if value not in defined:
                raise _broken(f"{value} is used before it is defined", node, after)
        _check_types(node, after)
        for value in node.outputs:
            _define(value, defined, after)
    for value in graph.outputs:
        if value not in defined:
            raise VerificationError(f"after {after}: output {value} is not defined")
    return graph


def _define(value: Value, defined: set[Value], after: str) -> None:
    if value in defined:
        raise VerificationError(f"after {after}: {value} is defined twice")
    if not all(isinstance(extent, int) for extent in value.type.shape):  # NumPy's overflow, and have no bit_length
        raise VerificationError(f"after {after}: {value} has extents that are no plain numbers: {value.type.shape!r}")
    defined.add(value)


def _check_types(node: Node, after: str) -> None:
    found = placed_types(node.op, *[v.type for v in node.inputs])
    expected = (found,) if node.op.n_outputs == 1 else tuple(found)
    recorded = tuple(v.type for v in node.outputs)
    if expected != recorded:
        raise _broken(f"types {list(map(str, recorded))}, the rule gives {list(map(str, expected))}", node, after)


def _broken(what: str, node: Node, after: str) -> VerificationError:
    return VerificationError(f"after {after}: {what}", {"op": node.op, "source": node.source})
