"""What is done to branches and loops as wholes, and then to their bodies."""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.machine import Machine
from autojit.ir.graph import Graph, Node
from autojit.passes.common_subexpressions import eliminate_common_subexpressions
from autojit.passes.dead_code import eliminate_dead_code
from autojit.passes.hoist_steps import hoist_steps
from autojit.passes.open_bodies import NESTED, has_bodies, open_bodies
from autojit.passes.prune_bodies import merge_scans, prune_bodies
from autojit.passes.resume_loops import resume_loops
from autojit.passes.share_steps import share_steps
from autojit.passes.simplify import simplify

Optimize = Callable[[Graph], Graph]


def optimize_bodies(graph: Graph, machine: Machine, optimize: Optimize) -> Graph:
    """Open, merge, prune and share branches and loops, then run all passes on their bodies.

    Preserves results to the rounding of ``optimize``. Graphs without branches and loops come back as they are.
    """
    if not has_bodies(graph):
        return graph
    graph = open_bodies(merge_scans(eliminate_dead_code(graph)))
    graph = _in_bodies(graph, eliminate_common_subexpressions)
    graph = prune_bodies(share_steps(prune_bodies(graph)))
    graph = prune_bodies(hoist_steps(_in_bodies(graph, simplify), machine))
    return _in_bodies(resume_loops(graph), optimize)


def _in_bodies(graph: Graph, change: Optimize) -> Graph:
    """Change every body."""
    nodes = [
        Node(n.op.with_graphs([change(g) for g in n.op.graphs()]), n.inputs, n.outputs, n.source)  # type: ignore[attr-defined]
        if n.op.name in NESTED
        else n
        for n in graph.nodes
    ]
    return Graph(graph.inputs, tuple(nodes), graph.outputs)
