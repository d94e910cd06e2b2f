"""Where a graph computes what a smaller graph, the pattern, computes.

The search begins at the pattern's results that nothing else of it reads (its anchors), with every node of the graph
that could be one, and goes from readers to what they read. A choice that leads nowhere is taken back: what is known so
far is a dict that each choice copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autojit.core.errors import UsageError
from autojit.fx.graph import Graph
from autojit.fx.node import Argument, Node

__all__ = ["InternalMatch", "SubgraphMatcher"]

Found = dict[Node, Any]


@dataclass
class InternalMatch:
    """A part that was found: what each node of the pattern, argument and result is there."""

    anchors: list[Node]
    nodes_map: Found = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)


class SubgraphMatcher:
    """Finds a pattern. Its arguments stand for anything.

    Args:
        match_output: the part's results are those of the graph, too.
        match_placeholder: arguments of the pattern stand for arguments only.
        remove_overlapping_matches: of parts that share a node, give the first.
        ignore_literals: numbers and texts of the pattern stand for any.

    Example:
        >>> import autojit as aj
        >>> from autojit.fx.passes.utils.matcher_utils import SubgraphMatcher
        >>> traced = aj.fx.symbolic_trace(lambda x: aj.relu(x + 1) - aj.relu(x + 2))
        >>> pattern = aj.fx.symbolic_trace(lambda x: aj.relu(x + 2)).graph
        >>> [match.returning_nodes for match in SubgraphMatcher(pattern).match(traced.graph)]
        [[relu_1]]
        >>> len(SubgraphMatcher(pattern, ignore_literals=True).match(traced.graph))
        2
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if not node.users and not node.is_impure():
                raise UsageError(
                    "SubgraphMatcher cannot be initialized with a pattern with dead code",
                    {"unread": node},
                    "pattern.eliminate_dead_code()",
                )
        output = pattern.output_node()
        self.pattern_placeholder_nodes = pattern.find_nodes(op="placeholder")
        self.pattern_returning_nodes = output.all_input_nodes
        self.pattern_anchors = [output] if match_output else [n for n in output.all_input_nodes if len(n.users) == 1]

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The parts of a graph, in its order; nothing outside of one reads what is inside, results excepted."""
        matches = []
        taken: set[Node] = set()
        for found in self._from_anchors(graph, self.pattern_anchors, {}) if self.pattern_anchors else ():
            inner = {there for node, there in found.items() if node.op not in ("placeholder", "output")}
            if not self._is_contained(found) or (self.remove_overlapping_matches and not taken.isdisjoint(inner)):
                continue
            taken |= inner
            matches.append(
                InternalMatch(
                    self.pattern_anchors,
                    found,
                    [found[node] for node in self.pattern_placeholder_nodes],
                    [found[node] for node in self.pattern_returning_nodes],
                )
            )
        return matches

    def _from_anchors(self, graph: Graph, anchors: list[Node], found: Found) -> Iterator[Found]:
        if not anchors:
            if all(node in found for node in self.pattern_placeholder_nodes):
                yield found
            return
        for candidate in graph.nodes:
            more = self._with(anchors[0], candidate, found)
            if more is not None:
                yield from self._from_anchors(graph, anchors[1:], more)

    def _with(self, sought: Node, there: Any, found: Found) -> Found | None:
        """What is known if a node of the pattern is this one; None: it cannot be."""
        if sought in found:
            return found if _same(found[sought], there) else None
        if sought.op == "placeholder" and not self.match_placeholder:
            return {**found, sought: there}
        if not isinstance(there, Node) or there in found.values() or not _are_alike(sought, there):
            return None
        if len(sought.args) != len(there.args) or sought.kwargs.keys() != there.kwargs.keys():
            return None
        if sought.op == "placeholder":
            return {**found, sought: there}
        by_name = [there.kwargs[name] for name in sought.kwargs]
        return self._with_all(
            [*sought.args, *sought.kwargs.values()], [*there.args, *by_name], {**found, sought: there}
        )

    def _with_all(self, sought: Argument, there: Argument, found: Found) -> Found | None:
        if len(sought) != len(there):
            return None
        known: Found | None = found
        for part, present in zip(sought, there, strict=True):
            known = None if known is None else self._with_argument(part, present, known)
        return known

    def _with_argument(self, sought: Argument, there: Argument, found: Found) -> Found | None:
        if isinstance(sought, Node):
            return self._with(sought, there, found)
        if isinstance(sought, tuple | list) and isinstance(there, tuple | list):
            return self._with_all(sought, there, found)
        if isinstance(sought, dict) and isinstance(there, dict) and sought.keys() == there.keys():
            return self._with_all([*sought.values()], [there[key] for key in sought], found)
        return found if self.ignore_literals or (not isinstance(there, Node) and _same(sought, there)) else None

    def _is_contained(self, found: Found) -> bool:
        inner = {there for node, there in found.items() if node.op != "placeholder"}
        hidden = [n for n in found if n.op != "placeholder" and n not in self.pattern_returning_nodes]
        return all(user in inner for node in hidden for user in found[node].users)


def _same(a: object, b: object) -> bool:
    return a is b or (not isinstance(a, Node) and type(a) is type(b) and bool(a == b))


def _are_alike(sought: Node, there: Node) -> bool:
    """Whether two nodes do the same with what they read; attributes are alike that both are tensors."""
    if sought.op != there.op:
        return False
    if sought.op in ("placeholder", "output"):
        return True
    if sought.op == "get_attr":
        return all(node.graph.owning_module is None for node in (sought, there)) or _kind(sought) is _kind(there)
    return sought.target == there.target


def _kind(node: Node) -> type:
    found: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return type(found)
