"""Sizes that a step counts itself: which node defines each, who depends on it, how large it can get.

Memory is planned for the most that can be counted, or had when the size is known if there is no such bound (it is
*late*); a kernel whose loops depend on a count runs after the node that defines it, even if it reads none of that
node's results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autojit.core import size_expressions as expressions
from autojit.core.size_expressions import Atom, Expression
from autojit.core.sizes import expression_of, hint_of, is_symbolic, size
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ops.base import Reindex, Source
from autojit.ops.counted_positions import Counting, Extent

Bounds = Mapping[str, Expression]


def is_counting(node: Node) -> bool:
    """Whether the node defines a size that is not known without it."""
    op = node.op
    return isinstance(op, Counting) and not op.is_given and is_symbolic(op.count)


def counted_by(node: Node) -> str:
    """The name of the size that a node defines."""
    (name,) = expression_of(node.outputs[0].type.shape[0]).symbols()
    return name


def count_bounds(graph: Graph, outside: Bounds | None = None) -> dict[str, Expression]:
    """The most that each counted size can be, in sizes that are known when the step begins; itself if it is late.

    ``outside``: the bounds of sizes that the graph around this one counts.
    """
    found: dict[str, Expression] = dict(outside or {})
    for node in graph.nodes:
        if is_counting(node):
            name = counted_by(node)
            most = node.op.most if isinstance(node.op, Extent) else node.inputs[0].type.size
            found[name] = expressions.symbol(name, 0) if most is None else _bounded(expression_of(most), found)
    return found


def late_sizes(n: int, bounds: Bounds) -> frozenset[str]:
    """The late sizes that decide on the most that ``n`` can be."""
    most = upper_bound(n, bounds)
    return frozenset(expression_of(most).symbols()) & bounds.keys() if is_symbolic(most) else frozenset()


def upper_bound(n: int, bounds: Bounds) -> int:
    """A size that ``n`` does not exceed, without counted sizes; ``n`` itself if it holds none."""
    if not is_symbolic(n) or not bounds or bounds.keys().isdisjoint(expression_of(n).symbols()):
        return n
    return size(hint_of(n), _bounded(expression_of(n), bounds))


def _bounded(expression: Expression, bounds: Bounds) -> Expression:
    total = expressions.ZERO
    for monomial, coefficient in expression.terms:
        is_counted = any(not bounds.keys().isdisjoint(_symbols(atom)) for atom in monomial)
        if coefficient < 0 and is_counted:
            continue  # counts are at least 0, so without the term the sum is at least as large
        product = expressions.constant(coefficient)
        for atom in monomial:
            product = expressions.multiply(product, _bounded_atom(atom, bounds))
        total = expressions.add(total, product)
    return total


def _symbols(atom: Atom) -> tuple[str, ...]:
    return Expression((((atom,), 1),)).symbols()


def _bounded_atom(atom: Atom, bounds: Bounds) -> Expression:
    whole = Expression((((atom,), 1),))
    if bounds.keys().isdisjoint(whole.symbols()):
        return whole
    if atom.kind == "symbol":
        return bounds[atom.operands[0]]
    left, right = (_bounded(operand, bounds) for operand in atom.operands)
    if atom.kind == "remainder":
        return right
    if atom.kind == "quotient":
        return left if not bounds.keys().isdisjoint(atom.operands[1].symbols()) else expressions.quotient(left, right)
    if atom.kind == "maximum":
        return expressions.maximum(left, right)
    known = [side for side in (left, right) if bounds.keys().isdisjoint(side.symbols())]
    return known[0] if len(known) == 1 else expressions.minimum(left, right)  # no late size where there is a bound


class CountReaders:
    """For every node, the counting nodes' results that must exist before it can run."""

    def __init__(self, graph: Graph) -> None:
        self.made = {counted_by(node): node.outputs[0] for node in graph.nodes if is_counting(node)}
        # of values that may be computed where they are read: without operands, other elements of one, or from such
        self.sources: dict[Value, tuple[Value, ...]] = {}
        if self.made:
            for node in graph.nodes:
                found = self.of(node)
                if found and (isinstance(node.op, Source | Reindex) or any(v in self.sources for v in node.inputs)):
                    self.sources.update(dict.fromkeys(node.outputs, found))

    def of(self, node: Node) -> tuple[Value, ...]:
        """Results of counting nodes; none where nothing is counted."""
        if not self.made:
            return ()
        sizes = [n for v in (*node.inputs, *node.outputs) for n in v.type.shape]
        names = {name for n in (*sizes, *_sizes_in(node.op)) if is_symbolic(n) for name in expression_of(n).symbols()}
        found = dict.fromkeys(self.made[name] for name in sorted(names) if name in self.made)
        for value in node.inputs:
            found.update(dict.fromkeys(self.sources.get(value, ())))
        return tuple(v for v in found if v not in node.outputs)


def after_counting(graph: Graph) -> Graph:
    """The graph with every node after the nodes that count its sizes. Time O(nodes * counted sizes)."""
    readers = CountReaders(graph)
    if not readers.made:
        return graph
    nodes: list[Node] = []
    ready = set(graph.inputs)
    waiting = list(graph.nodes)
    # In rounds, so that the order of the program stays where it may: it says which of several errors comes first.
    while waiting:
        later: list[Node] = []
        for node in waiting:
            if ready.issuperset(node.inputs) and ready.issuperset(readers.of(node)):
                nodes.append(node)
                ready.update(node.outputs)
            else:
                later.append(node)
        assert len(later) < len(waiting), "a size is counted from what depends on it"
        waiting = later
    return replace(graph, nodes=tuple(nodes))


def _sizes_in(op: Op) -> Iterable[int]:
    for name in op.__match_args__:
        value = getattr(op, name)
        yield from (n for n in (value if isinstance(value, tuple) else (value,)) if isinstance(n, int))
