"""Literal factors and signs of products and sums are collected, so that a kernel multiplies less.

Exact: ``a + -b`` is ``a - b``, ``a - -b`` is ``a + b``, ``-a * -b`` is ``a * b``, ``-(-a)`` is ``a``, ``x * -1`` is
``-x``, and a guard on a numerator that is a literal other than 0 guards nothing.

Rounded once instead of twice: ``(x * c) * d`` becomes ``x * (c d)``, and ``-x * c`` becomes ``x * -c``, in float32 and
float64 where the inner product has no other reader and all literals are normal numbers. Both forms are within an ulp
of the exact product wherever the two-step form stays in the normal range; where ``x * c`` would overflow or fall among
the denormals, only the folded form is.

Literals also move through products to meet: ``(x * c) * (y * d)`` becomes ``(x * y) * (c d)``, and ``(x * c) * y``
becomes ``(x * y) * c`` where every reader multiplies by a literal in turn, so that no product is added. Only literals
within ``MOVABLE`` do: a partial product is then within that factor of the one written, and leaves the normal range only
where the one written is as near to its ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from autojit.core.dtypes import DType, float32, float64
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op
from autojit.ops.elementwise_arithmetic import ADD, DIV, MUL, NEG, SUB
from autojit.ops.sources import Full

NORMAL_RANGE: dict[DType, tuple[float, float]] = {
    float32: (2.0**-126, (2.0 - 2.0**-23) * 2.0**127),
    float64: (sys.float_info.min, sys.float_info.max),
}

MOVABLE = (0.25, 4.0)
"""Magnitudes of the literals that move from an operand of a product to its result."""


class Product(NamedTuple):
    """An operand times a literal."""

    operand: Value
    factor: float


class ConstantFolder:
    """One sweep: rebuilds a graph, counting who still reads what."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = GraphBuilder(graph.inputs)
        self.renamed: dict[Value, Value] = {}
        self.made_by: dict[Value, Node] = {}
        self.literals: set[Value] = set()
        self.multiples: set[Value] = set()  # and literals: no rule says anything about other operands
        self.readers = graph.use_counts()
        self.moving = _values_read_by_products(graph)

    def run(self) -> Graph:
        for node in self.graph.nodes:
            kept = node.reading(self.renamed)
            rule = RULES.get(node.op.name)
            found = None
            applies = rule is not None and not self.multiples.isdisjoint(kept.inputs)
            if applies and node.outputs[0].type.dtype in NORMAL_RANGE:
                self.builder.source = node.source
                found = rule(self, kept.inputs, node.outputs[0].type)  # type: ignore[misc]
            if found is None:
                self._keep(kept)
            else:
                self._rename(node.outputs[0], found)
        return self.builder.finish([self.renamed.get(v, v) for v in self.graph.outputs])

    def _keep(self, node: Node) -> None:
        self.builder.nodes.append(node)
        self._note(node)

    def _note(self, node: Node) -> None:
        for value in node.outputs:
            self.made_by[value] = node
        name = node.op.name
        if name == "full":
            self.literals.add(node.outputs[0])
            self.multiples.add(node.outputs[0])
        elif name == "neg" or (name == "mul" and not self.literals.isdisjoint(node.inputs)):
            self.multiples.add(node.outputs[0])

    def _rename(self, old: Value, new: Value) -> None:
        self.renamed[old] = new
        if old in self.moving:
            self.moving.add(new)
        self.readers[new] = self.readers.get(new, 0) + self.readers.get(old, 0)

    def apply(self, op: Op, *inputs: Value) -> Value:
        """Append a node; each of its operands has one more reader."""
        (output,) = self.builder.apply(op, inputs)
        self._note(self.builder.nodes[-1])
        for value in inputs:
            self.readers[value] = self.readers.get(value, 0) + 1
        return output

    def times(self, product: Product) -> Value:
        """``operand * factor``: the operand itself, its negative or a product."""
        x = product.operand
        if product.factor == 1:
            return x
        if product.factor == -1:
            return self.apply(NEG, x)
        (literal,) = self.builder.apply(Full(product.factor, x.type.dtype, (), x.type.device), ())
        self._note(self.builder.nodes[-1])
        return self.apply(MUL, x, literal)

    def operands_of(self, value: Value, op: Op) -> tuple[Value, ...] | None:
        """The operands of the node that makes ``value``, if it is an ``op``."""
        node = self.made_by.get(value)
        return node.inputs if node is not None and node.op == op else None

    def negated(self, value: Value) -> Value | None:
        """a, if the value is -a."""
        found = self.operands_of(value, NEG)
        return None if found is None else found[0]

    def literal(self, value: Value) -> float | None:
        """The number the value repeats, as its dtype rounds it, if that is a normal number."""
        node = self.made_by.get(value)
        number = node.op.value if node is not None and isinstance(node.op, Full) else None
        if isinstance(number, bool) or not isinstance(number, int | float):
            return None
        return _normal(number, value.type.dtype)

    def as_product(self, a: Value, b: Value, type: TensorType) -> Product | None:
        """``a * b`` of a type as an operand of that type times a literal, where one of them is a literal."""
        for x, factor in ((a, self.literal(b)), (b, self.literal(a))):
            if factor is not None and x.type == type:
                return Product(x, factor)
        return None

    def inner_product(self, value: Value) -> Product | None:
        """What the value is a multiple of, where no reader keeps the value (of a sign: whoever reads it)."""
        inner = self.negated(value)
        if inner is not None:
            return Product(inner, -1.0)
        factors = self.operands_of(value, MUL)
        if factors is None or (self.readers[value] != 1 and value not in self.moving):
            return None
        a, b = factors
        return self.as_product(a, b, value.type)

    def loose_product(self, value: Value, type: TensorType) -> Product | None:
        """The value as a multiple whose literal may move on to the result, of a type, of a product."""
        if value.type != type or (self.readers[value] != 1 and value not in self.moving):
            return None
        inner = self.inner_product(value)
        return inner if inner is not None and MOVABLE[0] <= abs(inner.factor) <= MOVABLE[1] else None


def _normal(number: float, dtype: DType) -> float | None:
    """The number rounded to the dtype, or None if it is infinite, NaN, zero or denormal there."""
    least, greatest = NORMAL_RANGE[dtype]
    if not least <= abs(number) <= greatest:
        return None
    return float(np.float32(number)) if dtype is float32 else float(number)


def _mul(fold: ConstantFolder, inputs: tuple[Value, ...], type: TensorType) -> Value | None:
    a, b = inputs
    product = fold.as_product(a, b, type)
    if product is None:
        return _mul_of_multiples(fold, a, b, type)
    inner = fold.inner_product(product.operand)
    if inner is None:
        return fold.times(product) if product.factor in (-1, 1) else None
    factor = _normal(product.factor * inner.factor, type.dtype)
    return None if factor is None else fold.times(Product(inner.operand, factor))


def _mul_of_multiples(fold: ConstantFolder, a: Value, b: Value, type: TensorType) -> Value | None:
    """``(x * c) * (y * d)`` as ``(x * y) * (c d)``, where c or d is 1 if the other one has a reader to meet."""
    minus_a, minus_b = fold.negated(a), fold.negated(b)
    if minus_a is not None and minus_b is not None:
        return fold.apply(MUL, minus_a, minus_b)
    x = fold.loose_product(a, type)
    y = fold.loose_product(b, type)
    if x is not None and y is not None:
        factor = _normal(x.factor * y.factor, type.dtype)
        return None if factor is None else fold.times(Product(fold.apply(MUL, x.operand, y.operand), factor))
    if x is not None and (x.factor == -1 or a in fold.moving):
        return fold.times(Product(fold.apply(MUL, x.operand, b), x.factor))
    if y is not None and (y.factor == -1 or b in fold.moving):
        return fold.times(Product(fold.apply(MUL, a, y.operand), y.factor))
    return None


def _neg(fold: ConstantFolder, inputs: tuple[Value, ...], type: TensorType) -> Value | None:
    (a,) = inputs
    inner = fold.inner_product(a)
    if inner is None:
        return None
    return inner.operand if inner.factor == -1 else fold.times(Product(inner.operand, -inner.factor))


def _add(fold: ConstantFolder, inputs: tuple[Value, ...], type: TensorType) -> Value | None:
    a, b = inputs
    minus_a, minus_b = fold.negated(a), fold.negated(b)
    if minus_b is not None:
        return fold.apply(SUB, a, minus_b)
    return None if minus_a is None else fold.apply(SUB, b, minus_a)


def _sub(fold: ConstantFolder, inputs: tuple[Value, ...], type: TensorType) -> Value | None:
    a, b = inputs
    minus_b = fold.negated(b)
    return None if minus_b is None else _add(fold, (a, minus_b), type) or fold.apply(ADD, a, minus_b)


def _div(fold: ConstantFolder, inputs: tuple[Value, ...], type: TensorType) -> Value | None:
    minus_a, minus_b = map(fold.negated, inputs)
    return fold.apply(DIV, minus_a, minus_b) if minus_a is not None and minus_b is not None else None


def _without_guard(plain: Op) -> Rule:
    def rule(fold: ConstantFolder, inputs: tuple[Value, ...], type: TensorType) -> Value | None:
        return None if fold.literal(inputs[0]) is None else fold.apply(plain, *inputs)

    return rule


Rule = Callable[[ConstantFolder, tuple[Value, ...], TensorType], Value | None]

RULES: dict[str, Rule] = {
    "mul": _mul,
    "neg": _neg,
    "add": _add,
    "sub": _sub,
    "div": _div,
    "guarded_mul": _without_guard(MUL),
    "guarded_div": _without_guard(DIV),
}


def _values_read_by_products(graph: Graph) -> set[Value]:
    """The values each of whose readers is a sign, a product by a literal, or a product with such readers only."""
    literals = {node.outputs[0] for node in graph.nodes if isinstance(node.op, Full)}
    kept = set(graph.outputs)
    read: set[Value] = set()
    for node in reversed(graph.nodes):
        value = node.outputs[0]
        kind = type(node.op)  # that of an op without parameters says as much as the op
        takes = kind is type(NEG) or (
            kind is type(MUL) and (not literals.isdisjoint(node.inputs) or (value in read and value not in kept))
        )
        read.update(node.inputs)
        if not takes:
            kept.update(node.inputs)
    return read - kept


def fold_constants(graph: Graph) -> Graph:
    """Collect literal factors and signs, front to back; nodes that nobody reads any more are left to later passes.

    Preserves results as the module says, effects and source locations. Time O(nodes + edges).
    """
    if not any(node.op.name in RULES for node in graph.nodes):
        return graph
    return ConstantFolder(graph).run()
