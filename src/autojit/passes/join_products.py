"""A sum of many short matrix products is one product of the operands joined along the axis that is summed.

The gradient of a weight used at every step of a loop is such a sum: each term alone reads and writes the whole result
for a few multiplications, and cannot be divided among threads.
"""

from __future__ import annotations

from math import prod

from autojit.core.machine import Machine
from autojit.core.sizes import is_symbolic, typical
from autojit.ir.concrete import is_open
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ops.joining import Concatenate
from autojit.ops.matmul import Matmul
from autojit.ops.shape import Permute, Reshape, Slice
from autojit.passes.stacks import reshaped, rows_of_stack, unstacked
from autojit.passes.sums import added, sums

FEWEST = 4  # products
LENIENCE = 2
SWAPPED = Permute((1, 0))


def join_products(graph: Graph, machine: Machine) -> Graph:
    """``a0 @ b0 + a1 @ b1 + ...`` becomes ``[a0, a1, ...] @ [b0; b1; ...]`` where that moves less memory.

    Preserves results to rounding (terms are added in another order) and source locations. Time O(nodes).
    """
    waiting = [(node, terms) for node, terms in sums(graph) if len(terms) >= FEWEST and _is_of_products(node, machine)]
    if not waiting:
        return graph
    work = _Joiner(graph)
    work.count_sharing([terms for _, terms in waiting])
    joined: dict[Value, list[Node]] = {}
    waiting.sort(key=lambda item: not work.has_whole(item[1]))  # the order of a whole is nobody's choice
    for _ in range(2):  # what the first sums join may serve the others
        found = [(node, terms, work.joined(node, terms)) for node, terms in waiting]
        joined.update((node.outputs[0], nodes) for node, _, nodes in found if nodes is not None)
        waiting = [(node, terms) for node, terms, nodes in found if nodes is None]
    if not joined:
        return graph
    nodes = [new for node in graph.nodes for new in joined.get(node.outputs[0], (node,))]
    return replace(graph, nodes=tuple(nodes))


def _is_of_products(node: Node, machine: Machine) -> bool:
    (total,) = node.outputs
    return total.type.ndim == 2 and total.type.dtype in machine.product_dtypes


class _Joiner:
    """Joins the operands of products; what some concatenation joins already is joined in the same order."""

    def __init__(self, graph: Graph) -> None:
        self.made_by = graph.definitions()
        self.stacks: dict[frozenset[Value], Node] = {}
        self.sharing: dict[frozenset[Value], int] = {}  # first operands -> how many sums have these
        for node in graph.nodes:
            if isinstance(node.op, Concatenate) and node.op.axis == 0:
                self.stacks.setdefault(frozenset(unstacked(v, self.made_by) for v in node.inputs), node)

    def count_sharing(self, sums_of_terms: list[list[Value]]) -> None:
        """Note which sums could share the copy of their first operands."""
        for terms in sums_of_terms:
            sources = self._first_operands([p for p in map(self._product, terms) if p is not None])
            self.sharing[sources] = self.sharing.get(sources, 0) + 1

    def _first_operands(self, products: list[Node]) -> frozenset[Value]:
        return frozenset(self._source(product.inputs[0])[0] for product in products)

    def joined(self, node: Node, terms: list[Value]) -> list[Node] | None:
        """The nodes that take the place of a sum, or None when it stays."""
        products: list[Node] = []
        rest: list[Value] = []
        for term in terms:
            product = self._product(term)
            if product is None or (products and not _is_alike(product, products[0])):
                rest.append(term)
            else:
                products.append(product)
        if len(products) < FEWEST:
            return None
        sharing = self.sharing.get(self._first_operands(products), 1)
        products, stack = self._ordered(products)
        if not _moves_less(products, sharing, stack is not None):
            return None
        nodes: list[Node] = []
        a = self._side(products, 0, stack, node, nodes)
        b = self._side(products, 1, None, node, nodes)
        outputs = (Value(node.outputs[0].type),) if rest else node.outputs
        nodes.append(Node(products[0].op, (a, b), outputs, node.source))
        return [*nodes, *added([*rest, *outputs], node.outputs, node)] if rest else nodes

    def _product(self, value: Value) -> Node | None:
        node = self.made_by.get(value)
        return node if node is not None and isinstance(node.op, Matmul) and value.type.ndim == 2 else None

    def _source(self, value: Value) -> tuple[Value, bool]:
        """What an operand is the transpose of, and that it is one; or itself."""
        node = self.made_by.get(value)
        if node is not None and node.op == SWAPPED:
            return node.inputs[0], True
        return value, False

    def _ordered(self, products: list[Node]) -> tuple[list[Node], Node | None]:
        """The products in the order of a stack of their first operands, and that stack if there is one.

        Where there is none they are in the order in which operands are rows of one whole, if they are.
        """
        by_source = {self._source(p.inputs[0])[0]: p for p in products}
        stack = self.stacks.get(frozenset(by_source))
        if stack is None or len(by_source) != len(products):
            return self._in_rows(products) or products, None
        return [by_source[unstacked(v, self.made_by)] for v in stack.inputs], stack

    # -- operands that are rows of one whole need not be joined

    def has_whole(self, terms: list[Value]) -> bool:
        """Whether the operands of a sum's products are the rows of one whole."""
        products = [p for p in map(self._product, terms) if p is not None]
        return len(products) >= FEWEST and self._in_rows(products) is not None

    def _in_rows(self, products: list[Node]) -> list[Node] | None:
        """The products in the order of the rows that the operands of one side are, if they are."""
        for side in (1, 0):
            places = [self._rows(self._source(p.inputs[side])[0]) for p in products]
            order = sorted(range(len(products)), key=lambda k: -1 if (place := places[k]) is None else place[1])
            in_order = [products[k] for k in order]
            if self._whole([self._source(p.inputs[side])[0] for p in in_order]) is not None:
                return in_order
        return None

    def _rows(self, value: Value) -> tuple[Value, int] | None:
        """The whole of which a matrix is some rows, all axes but the last being one, and the first of the rows."""
        node = self.made_by.get(value)
        if node is not None and isinstance(node.op, Reshape):
            node = self.made_by.get(node.inputs[0])
        if node is None or not isinstance(node.op, Slice):
            return None
        (x,), op = node.inputs, node.op
        if is_open((*x.type.shape, *value.type.shape)) or any(step != 1 for step in op.steps):
            return None
        if any(op.starts[1:]) or op.stops[1:] != x.type.shape[1:]:
            return None
        rows = prod(x.type.shape[1:-1])
        if value.type.shape != ((op.stops[0] - op.starts[0]) * rows, x.type.shape[-1]):
            return None
        return x, op.starts[0] * rows

    def _whole(self, values: list[Value]) -> Value | None:
        """What the matrices one below the other are; None where that is nothing yet."""
        places = [self._rows(value) for value in values]
        if places[0] is None:
            return None
        whole, reached = places[0][0], 0
        for value, place in zip(values, places, strict=True):
            if place != (whole, reached):
                return None
            reached += value.type.shape[0]
        return whole if reached * values[0].type.shape[1] == whole.type.size else None

    def _side(self, products: list[Node], side: int, stack: Node | None, node: Node, nodes: list[Node]) -> Value:
        """The joined operands of one side; ``nodes`` gets what makes them."""
        sources = [self._source(p.inputs[side]) for p in products]
        is_swapped = all(swapped for _, swapped in sources)
        values = [value for value, _ in sources] if is_swapped else [p.inputs[side] for p in products]
        axis = 1 - side if not is_swapped else side  # of the values, the one that is summed over
        whole = self._stacked(values, stack, node, nodes) if stack is not None and axis == 0 else None
        if whole is None and axis == 0:
            whole = self._flat_whole(values, node, nodes)
        if whole is None:
            op = Concatenate(axis)
            whole = Value(op.result_type(*[v.type for v in values]))
            nodes.append(Node(op, tuple(values), (whole,), node.source))
            if axis == 0:
                self.stacks.setdefault(frozenset(values), nodes[-1])
        if not is_swapped:
            return whole
        swapped = Value(SWAPPED.result_type(whole.type))
        nodes.append(Node(SWAPPED, (whole,), (swapped,), node.source))
        return swapped

    def _flat_whole(self, values: list[Value], node: Node, nodes: list[Node]) -> Value | None:
        """The whole that the matrices one below the other are, as a matrix."""
        found = self._whole(values)
        if found is None or found.type.ndim == 2:
            return found
        columns = values[0].type.shape[1]
        return reshaped(found, (found.type.size // columns, columns), node, nodes)

    def _stacked(self, values: list[Value], stack: Node, node: Node, nodes: list[Node]) -> Value | None:
        """The matrices one below the other by the stack they are in."""
        if [unstacked(v, self.made_by) for v in stack.inputs] != values:
            return None
        return rows_of_stack(stack, self.made_by, node, nodes)


def _is_alike(product: Node, other: Node) -> bool:
    """Whether products multiply the same dtypes."""
    return product.op == other.op and product.inputs[0].type.dtype is other.inputs[0].type.dtype


def _moves_less(products: list[Node], sharing: int, is_stacked: bool) -> bool:
    """Whether joining copies fewer elements than adding up the products reads and writes.

    Open lengths are joined up to twice that: short ones lose more by staying apart than long ones by being copied.

    Args:
        sharing: this many sums share the copy of the first operands.
        is_stacked: the first operands are joined elsewhere already.
    """
    first, second = (sum(product.inputs[side].type.size for product in products) for side in (0, 1))
    copied = second if is_stacked else second + first // sharing
    moved = sum(2 * product.outputs[0].type.size for product in products)
    return typical(copied) <= typical(moved) * (LENIENCE if is_symbolic(copied) else 1)
