"""``replace_pattern``: every part of a graph that looks like one function becomes another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from autojit.core.errors import UsageError
from autojit.fx._symbolic_trace import symbolic_trace
from autojit.fx.graph import Graph
from autojit.fx.graph_module import GraphModule, _copy_attr
from autojit.fx.node import Node
from autojit.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from autojit.nn import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Program = Callable[..., Any] | Graph | GraphModule
Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A part that was found: the node of its result, and what each node of the pattern is there."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A `Match`, and the nodes that are there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Program, replacement: Program) -> list[Match]:
    """Put ``replacement`` wherever the graph computes ``pattern``; what was found, in order.

    Both take the same arguments and return as many values. Parts overlap with no earlier one, and nothing outside reads
    what is inside of one.

    Example:
        >>> import autojit as aj
        >>> traced = aj.fx.symbolic_trace(lambda x, y: aj.relu(x + y) + aj.relu(y + 1))
        >>> found = aj.fx.replace_pattern(traced, lambda a, b: aj.relu(a + b), lambda a, b: aj.tanh(a) * b)
        >>> len(found), [node.name for node in traced.graph.nodes if node.op == "call_function"]
        (2, ['tanh', 'mul', 'tanh_1', 'mul_1', 'add_2'])
    """
    replaced = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(found.anchor, found.nodes_map) for found in replaced]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Program,
    replacement: Program | None = None,
    match_filters: Sequence[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
) -> list[ReplacedPatterns]:
    """``replace_pattern`` of the parts that all filters agree to.

    Args:
        match_filters: functions of (match, graph, pattern) that say whether a part is replaced.
        ignore_literals: numbers and texts of the pattern stand for any.
        replacement_callback: gives the graph that replaces a part, in place of ``replacement``.

    Raises:
        UsageError: neither is given, or the replacement has not the pattern's arguments and results.
    """
    if replacement is None and replacement_callback is None:
        raise UsageError("replace_pattern: Must provide either a replacement GraphModule or a replacement callback")
    sought, given = _graph_of(pattern), None if replacement is None else _graph_of(replacement)
    found = SubgraphMatcher(sought, ignore_literals=ignore_literals).match(gm.graph)
    matches = [match for match in found if all(agrees(match, gm.graph, sought) for agrees in match_filters or ())]
    now: dict[Node, Any] = {}
    replaced = []
    for match in matches:
        used = given if replacement_callback is None else replacement_callback(match, gm.graph, sought)
        assert used is not None
        replaced.append(ReplacedPatterns(match.anchors[0], match.nodes_map, _put(gm, sought, used, match, now)))
    if isinstance(replacement, Module) and matches:
        gm.delete_all_unused_submodules()
    gm.recompile()
    return replaced


def _graph_of(program: Program) -> Graph:
    if isinstance(program, Graph):
        return program
    return (program if isinstance(program, GraphModule) else symbolic_trace(program)).graph


def _put(gm: GraphModule, pattern: Graph, given: Graph, match: InternalMatch, now: dict[Node, Any]) -> list[Node]:
    """Put one replacement in, and take the part out; the new nodes. ``now``: what earlier parts' results are."""
    inputs = given.find_nodes(op="placeholder")
    if len(inputs) != len(match.placeholder_nodes):
        raise _unequal("has", "arguments", len(match.placeholder_nodes), len(inputs))
    for node, there in match.nodes_map.items():
        match.nodes_map[node] = now.get(there, there) if isinstance(there, Node) else there
    match.placeholder_nodes = [match.nodes_map[node] for node in pattern.find_nodes(op="placeholder")]
    values = dict(zip(inputs, match.placeholder_nodes, strict=True))
    for node in given.nodes:
        if node.op in ("get_attr", "call_module") and given.owning_module is not None:
            _copy_attr(given.owning_module, gm, str(node.target))
    before = [*values.values()]
    with gm.graph.inserting_before(_place(gm.graph, match)):
        result = gm.graph.graph_copy(given, values)
    results = list(result) if isinstance(result, tuple | list) else [result]
    if len(results) != len(match.returning_nodes):
        raise _unequal("returns", "values", len(match.returning_nodes), len(results))
    for there, made in zip(match.returning_nodes, results, strict=True):
        there.replace_all_uses_with(made)
        now[there] = made
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            gm.graph.erase_node(match.nodes_map[node])
    return [made for made in values.values() if not any(made is old for old in before)]


def _unequal(verb: str, what: str, pattern: int, replacement: int) -> UsageError:
    return UsageError(
        f"replace_pattern: the pattern {verb} {pattern} {what}, and the replacement {replacement}",
        fix=f"write both with the same {what}",
    )


def _place(graph: Graph, match: InternalMatch) -> Node | None:
    """Before which node the replacement goes: the first that reads a result, else the one after the last result."""
    readers = {user for node in match.returning_nodes for user in node.users}
    first = next((node for node in graph.nodes if node in readers), None)
    last = next(node for node in reversed(graph.nodes) if node in match.returning_nodes)
    return first if first is not None else last.next
