"""Dead-code elimination."""

from __future__ import annotations

from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.requirements import InRange
from autojit.passes.index_checks import IndexChecks


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drop nodes that no graph output reaches; of look-ups a check of their indices is left.

    Preserves results, effects, refusals and source locations. Time O(nodes + edges), one backward liveness sweep, and
    another one if checks are left.
    """
    checks = IndexChecks(graph) if any(node.op.looks_up or type(node.op) is InRange for node in graph.nodes) else None
    found = replace(graph, nodes=tuple(reversed(_kept(graph, set(graph.outputs), checks))))
    missing = {} if checks is None else checks.missing()
    if not missing:
        return found
    nodes: list[Node] = []
    for node in graph.nodes:
        if type(node.op) is not InRange:
            nodes.append(node)
        nodes += missing.get(node, ())
    return replace(graph, nodes=tuple(reversed(_kept(replace(graph, nodes=tuple(nodes)), set(graph.outputs), None))))


def _kept(graph: Graph, live: set[Value], checks: IndexChecks | None) -> list[Node]:
    """The nodes that are read or kept, from the last to the first; checks of indices do not count while ``checks``
    takes note of them.
    """
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        is_live = not live.isdisjoint(node.outputs) or (
            node.is_kept and (checks is None or type(node.op) is not InRange)
        )
        if checks is not None:
            checks.see(node, is_live)
        if is_live:
            kept.append(node)
            live.update(node.inputs)
    return kept
