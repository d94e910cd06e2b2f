"""``replace_pattern``: every part of a graph that looks like one function becomes another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from autojit.fx._symbolic_trace import symbolic_trace
from autojit.fx.graph import Graph
from autojit.fx.graph_module import GraphModule, _copy_attr
from autojit.fx.node import Argument, Node, map_arg

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A part that was found: the node of its result, and what each node of the pattern is there."""

    anchor: Node
    nodes_map: dict[Node, Node]


def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule
) -> list[Match]:
    """Put ``replacement`` wherever the graph computes ``pattern``; what was found, in order.

    Both take the same arguments. Parts overlap with no earlier one, and nothing outside reads what is inside of one.

    Example:
        >>> import autojit as aj
        >>> traced = aj.fx.symbolic_trace(lambda x, y: aj.relu(x + y) + aj.relu(y + 1))
        >>> found = aj.fx.replace_pattern(traced, lambda a, b: aj.relu(a + b), lambda a, b: aj.tanh(a) * b)
        >>> len(found), [node.name for node in traced.graph.nodes if node.op == "call_function"]
        (2, ['tanh', 'mul', 'tanh_1', 'mul_1', 'add_2'])
    """
    sought, given = _traced(pattern), _traced(replacement)
    matches: list[Match] = []
    taken: set[Node] = set()
    for node in gm.graph.nodes:
        found = _match(sought.graph, node)
        if found is None or not taken.isdisjoint(inner := _inside(sought.graph, found)):
            continue
        if any(user not in inner for part in inner - {node} for user in part.users):
            continue
        taken |= inner
        matches.append(Match(node, found))
    replaced: dict[Node, Node] = {}
    for match in matches:
        _put(gm, sought.graph, given, match, replaced)
    if matches:
        gm.recompile()
    return matches


def _traced(function: Callable[..., Any] | GraphModule) -> GraphModule:
    return function if isinstance(function, GraphModule) else symbolic_trace(function)


def _inside(pattern: Graph, found: dict[Node, Node]) -> set[Node]:
    """The nodes of a part, without its arguments."""
    return {found[node] for node in pattern.nodes if node.op not in ("placeholder", "output", "get_attr")}


def _match(pattern: Graph, anchor: Node) -> dict[Node, Node] | None:
    """What the pattern's nodes are, if its result is ``anchor``."""
    result = pattern.output_node().args[0]
    found: dict[Node, Node] = {}
    if isinstance(result, Node) and result.op != "placeholder" and _matches(result, anchor, found):
        return found
    return None


def _matches(sought: Argument, present: Argument, found: dict[Node, Any]) -> bool:
    if isinstance(sought, Node):
        if sought in found:
            return found[sought] is present or (not isinstance(present, Node) and found[sought] == present)
        found[sought] = present
        if sought.op == "placeholder":
            return True
        if not isinstance(present, Node) or (sought.op, sought.target) != (present.op, present.target):
            return False
        return _matches(sought.args, present.args, found) and _matches(sought.kwargs, present.kwargs, found)
    if isinstance(sought, tuple | list):
        same = isinstance(present, tuple | list) and len(sought) == len(present)
        return same and all(_matches(a, b, found) for a, b in zip(sought, present, strict=True))
    if isinstance(sought, dict):
        same = isinstance(present, dict) and sought.keys() == present.keys()
        return same and all(_matches(part, present[key], found) for key, part in sought.items())
    return not isinstance(present, Node) and bool(type(sought) is type(present) and sought == present)


def _put(gm: GraphModule, pattern: Graph, given: GraphModule, match: Match, replaced: dict[Node, Node]) -> None:
    """Put one replacement in, and take the part out. ``replaced`` has what stands for earlier parts' results."""
    inputs = [match.nodes_map.get(node) for node in pattern.nodes if node.op == "placeholder"]
    values: dict[Node, Any] = {}
    for node, value in zip(given.graph.find_nodes(op="placeholder"), inputs, strict=True):
        values[node] = replaced.get(value, value) if isinstance(value, Node) else value
    with gm.graph.inserting_before(match.anchor):
        for node in given.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.op in ("get_attr", "call_module"):
                _copy_attr(given, gm, str(node.target))
            values[node] = gm.graph.node_copy(node, lambda read: values[read])
    result = map_arg(given.graph.output_node().args[0], lambda read: values[read])
    match.anchor.replace_all_uses_with(result)
    replaced[match.anchor] = result
    for node in reversed(gm.graph.nodes):
        if node in _inside(pattern, match.nodes_map) and not node.users:
            gm.graph.erase_node(node)
