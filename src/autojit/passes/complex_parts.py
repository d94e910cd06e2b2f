"""Complex values as pairs of real ones: elementwise ops, reductions, products, reindexing, scatters, by their parts.

Complex numbers are in memory as they always were, part beside part: arguments, results, what an op without a rule here
reads and writes. ``real`` and ``imag`` take them apart where they are read, ``complex`` puts them together where they
are stored, inside the loops that compute with them; between, a value is two values. Every target gets real ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autojit.core.device import CPU
from autojit.core.dtypes import DType, bool_
from autojit.core.sizes import surely_equal
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value, values_of
from autojit.ir.op import Op, bind
from autojit.ops.base import Elementwise, Reindex
from autojit.ops.elementwise_arithmetic import add, neg
from autojit.ops.elementwise_complex import Complex, Imag, Real
from autojit.ops.elementwise_logic import logical_or, ne
from autojit.ops.formula import Formula
from autojit.ops.indexing import Gathering
from autojit.ops.joining import select, stack
from autojit.ops.matmul import Matmul
from autojit.ops.reversal import Flip
from autojit.ops.scattering import Scattering
from autojit.ops.shape import BroadcastTo, Pad, Permute, Reshape, Slice, reshape
from autojit.ops.sources import Constant, Full, Iota, SizeValue, zeros_like
from autojit.passes import complex_arithmetic as arithmetic
from autojit.passes import complex_functions as functions
from autojit.passes.complex_arithmetic import Parts
from autojit.passes.rewrite import Rewriter

Operand = Tracer | Parts
Rule = Callable[..., Any]
"""Takes the op and its operands; None: the op is left as it is, on complex numbers in memory."""

REAL, IMAG, COMPLEX = Real(), Imag(), Complex()
_MOVING = BroadcastTo, Permute, Reshape, Slice, Flip, Gathering  # each element is one of the operand's


def split_complex(graph: Graph) -> Graph:
    """Rewrite ops on complex numbers as ops on their parts.

    Preserves results as NumPy's loops compute them: products are four real ones. Time O(nodes).
    """
    if not any(v.type.dtype.is_complex for v in values_of(graph)):
        return graph
    if any(isinstance(node.op, Formula) for node in graph.nodes):
        graph = Rewriter({"formula": _opened}).run(graph)
    return _Splitter(graph).run()


def _opened(rewriter: Rewriter, op: Any, operands: tuple[Tracer, ...]) -> Any:
    """A formula that reads complex numbers is its ops."""
    return op.expand(*operands) if any(x.spec.dtype.is_complex for x in operands) else None


class _Splitter:
    """The new graph, and what stands in it for the old one's values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = GraphBuilder(graph.inputs)
        self.parts: dict[Value, Parts] = {}
        self.pairs: dict[Value, Parts] = {}  # real values with the parts of complex numbers along their last axis
        self.whole: dict[Value, Tracer] = {v: self.builder.tracer(v) for v in graph.inputs}
        self.stored = set(graph.inputs)  # what is whole before it is in parts

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.builder.source = node.source
            self._node(node)
        return self.builder.finish([self._whole(v).value for v in self.graph.outputs])

    def _whole(self, value: Value) -> Tracer:
        found = self.whole.get(value)
        if found is None and value in self.pairs:
            found = self.whole[value] = stack(self.pairs[value], value.type.ndim - 1)
        elif found is None:
            found = self.whole[value] = bind(COMPLEX, *self.parts[value])
        return found

    def _operand(self, value: Value) -> Operand:
        return self._parts(value) if value.type.dtype.is_complex else self._whole(value)

    def _parts(self, value: Value) -> Parts:
        found = self.parts.get(value)
        if found is None:
            x = self.whole[value]
            found = self.parts[value] = Parts(bind(REAL, x), bind(IMAG, x))
        return found

    def _node(self, node: Node) -> None:
        if node.op.name == "view_as_real":
            self.pairs[node.output] = self._parts(node.inputs[0])
            return
        if node.op.name == "view_as_complex":
            self.parts[node.output] = self._halves(node.inputs[0])
            return
        if self._is_on_pairs(node):
            self.pairs[node.output] = self._on_pairs(node)
            return
        if isinstance(node.op, _MOVING) and node.inputs[0] in self.stored:
            self._keep(node)  # parts are taken where they are needed: a product's operands, in the product's order
            return
        is_complex = any(v.type.dtype.is_complex for v in (*node.inputs, *node.outputs))
        rule = _rule_of(node.op) if is_complex else None
        operands = [] if rule is None else [self._operand(v) for v in node.inputs]
        before = len(self.builder.nodes)
        found: Any = None
        if rule is not None:
            found = rule(node.op, *operands) if node.inputs else rule(node.op, self.builder)
        if found is None:
            del self.builder.nodes[before:]
            self._keep(node)
            return
        (result,) = node.outputs
        if isinstance(found, Parts):
            self.parts[result] = found
        else:
            self.whole[result] = found

    def _halves(self, value: Value) -> Parts:
        """What a value holds at both places of its last axis; all of it where it has no such axis."""
        found = self.pairs.get(value)
        if found is None:
            x, last = self._whole(value), value.type.ndim - 1
            if last >= 0 and surely_equal(value.type.shape[last], 1):
                x = reshape(x, value.type.shape[:last])
            is_shared = x.spec.ndim == last or last < 0
            found = Parts(x, x) if is_shared else Parts(select(x, last, 0), select(x, last, 1))
        return found

    def _is_on_pairs(self, node: Node) -> bool:
        if not isinstance(node.op, Elementwise) or self.pairs.keys().isdisjoint(node.inputs):
            return False
        return all(_is_pairwise(v.type, node.output.type) for v in node.inputs)

    def _on_pairs(self, node: Node) -> Parts:
        """An elementwise op on the parts of complex numbers that were made visible as pairs."""
        halves = [self._halves(v) for v in node.inputs]
        return Parts(bind(node.op, *[x.re for x in halves]), bind(node.op, *[x.im for x in halves]))

    def _keep(self, node: Node) -> None:
        names = {v: self._whole(v).value for v in node.inputs}
        kept = node.reading(names)
        self.builder.nodes.append(kept)
        self.whole.update((v, self.builder.tracer(v)) for v in node.outputs)
        self.stored.update(node.outputs)


def _is_pairwise(operand: TensorType, result: TensorType) -> bool:
    """Whether an operand has something for each of two places of the result's last axis, or the same for both."""
    if operand.dtype.is_complex or result.dtype.is_complex or not surely_equal(result.shape[-1], 2):
        return False
    return not operand.ndim or surely_equal(operand.shape[-1], 1) or surely_equal(operand.shape[-1], 2)


def _rule_of(op: Op) -> Rule | None:
    known = RULES.get(op.name)
    if known is not None:
        return known
    return next((rule for family, rule in FAMILIES if isinstance(op, family)), None)


# -- ops that do the same to both parts


def _by_parts(op: Op, x: Parts, *indices: Tracer) -> Parts:
    return Parts(bind(op, x.re, *indices), bind(op, x.im, *indices))


def _later(op: Op, x: Operand, after: Operand) -> Operand:
    """Both parts, once both parts have been computed."""
    for wait in after if isinstance(after, Parts) else (after,):
        x = Parts(bind(op, x.re, wait), bind(op, x.im, wait)) if isinstance(x, Parts) else bind(op, x, wait)
    return x


def _jointly(op: Op, *operands: Parts) -> Parts:
    return Parts(bind(op, *[x.re for x in operands]), bind(op, *[x.im for x in operands]))


def _pad(op: Pad, x: Parts) -> Parts:
    value = complex(op.value)
    return Parts(bind(replace(op, value=value.real), x.re), bind(replace(op, value=value.imag), x.im))


def _scatter(op: Scattering, base: Parts, src: Parts, *indices: Tracer) -> Parts | None:
    if op.combine not in ("set", "add"):
        return None
    return Parts(bind(op, base.re, src.re, *indices), bind(op, base.im, src.im, *indices))


def _cumulative(op: Any, x: Parts) -> Parts | None:
    return _by_parts(op, x) if op.kind == "sum" else None


# -- products


def _bilinear(op: Op, x: Parts, y: Parts) -> Parts:
    """Four real products: with three, the smaller part of a result would lose digits to the larger one."""
    re = add(bind(op, neg(x.im), y.im), bind(op, x.re, y.re))
    return Parts(re, add(bind(op, x.re, y.im), bind(op, x.im, y.re)))


def _product_and_summand(op: Op, x: Parts, y: Parts, summand: Parts) -> Parts:
    return arithmetic.plus(_bilinear(Matmul(), x, y), summand)


# -- sources


def _source(op: Any, builder: GraphBuilder, dtype: DType) -> Tracer:
    return builder.tracer(builder.apply(replace(op, dtype=dtype), ())[0])


def _full(op: Full, builder: GraphBuilder) -> Parts:
    value, part = complex(op.value), op.dtype.to_real()
    made = [replace(op, dtype=part, value=number) for number in (value.real, value.imag)]
    return Parts(*[builder.tracer(builder.apply(one, ())[0]) for one in made])


def _ramp(op: Iota | SizeValue, builder: GraphBuilder) -> Parts:
    re = _source(op, builder, op.dtype.to_real())
    return Parts(re, zeros_like(re))


def _constant(op: Constant, builder: GraphBuilder) -> Parts:
    table, part = op.eager(), op.dtype.to_real()
    made = [replace(op, dtype=part, data=np.ascontiguousarray(x).tobytes().hex()) for x in (table.real, table.imag)]
    return Parts(*[builder.tracer(builder.apply(one, ())[0]) for one in made])


# -- elementwise ops with operands or parameters of several kinds


def _cast(op: Any, x: Operand) -> Operand:
    target = op.dtype
    if not isinstance(x, Parts):
        re = _converted(x, target.to_real())
        return Parts(re, zeros_like(re))
    if target.is_complex:
        return Parts(_converted(x.re, target.to_real()), _converted(x.im, target.to_real()))
    if target is bool_:
        return logical_or(ne(x.re, 0), ne(x.im, 0))
    return _converted(x.re, target)


def _converted(x: Tracer, dtype: DType) -> Tracer:
    return x if x.spec.dtype is dtype else bind(Op.registry["cast"](dtype), x)


def _where(op: Op, condition: Tracer, x: Parts, y: Parts) -> Parts:
    return arithmetic.chosen(condition, x, y)


def _of_numbers(rule: Callable[..., Any]) -> Rule:
    """The rule of an op without parameters."""

    def applied(op: Op, *operands: Operand) -> Any:
        return rule(*operands)

    return applied


_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": arithmetic.plus, "sub": arithmetic.minus, "mul": arithmetic.product, "div": arithmetic.quotient,
    "neg": arithmetic.negative, "conj": arithmetic.conjugate, "square": arithmetic.square,
    "reciprocal": arithmetic.reciprocal, "guarded_mul": arithmetic.guarded_product,
    "masked_mul": arithmetic.masked_product, "guarded_div": arithmetic.guarded_quotient,
    "abs": arithmetic.modulus, "angle": arithmetic.angle, "sign": arithmetic.direction,
    "eq": arithmetic.equal, "ne": arithmetic.differ, "is_nan": arithmetic.is_nan,
    "is_inf": arithmetic.is_infinite, "is_finite": arithmetic.is_finite, "pow": functions.power,
    **{name: getattr(functions, name) for name in functions.__all__ if not name.startswith("power")},
}  # fmt: skip
"""Ops without parameters, on numbers."""

RULES: Mapping[str, Rule] = {
    **{name: _of_numbers(rule) for name, rule in _NUMBERS.items()},
    "real": lambda op, x: x.re,
    "imag": lambda op, x: x.im,
    "complex": lambda op, re, im: Parts(*_alike(re, im)),
    "pow_number": lambda op, x: functions.power_of_number(x, op.exponent),
    "stop_gradient": _by_parts,
    "later": _later,
    "cast": _cast,
    "where": _where,
    "sum": _by_parts,
    "prod": lambda op, x: arithmetic.product_of_all(x, op.axes),
    "cumulative": _cumulative,
    "pad": _pad,
    "concatenate": _jointly,
    "slice_update": _jointly,
    "full": _full,
    "iota": _ramp,
    "size_value": _ramp,
    "constant": _constant,
    "matmul_add": _product_and_summand,
    **dict.fromkeys(("matmul", "convolution", "convolution_input", "convolution_weight"), _bilinear),
}  # fmt: skip
FAMILIES: Sequence[tuple[type[Op], Rule]] = (
    (Reindex, _by_parts),
    (Gathering, _by_parts),
    (Scattering, _scatter),
)


def _alike(re: Tracer, im: Tracer) -> tuple[Tracer, Tracer]:
    """Both in the shape of their number."""
    shape = COMPLEX.result_type(re.spec, im.spec).shape
    spread = Op.registry["broadcast_to"](shape)
    device = next((x.spec.device for x in (re, im) if x.spec.device != CPU), CPU)

    def alike(x: Tracer) -> Tracer:
        x = x if x.spec.device == device else bind(Op.registry["to_device"](device), x)
        return x if x.spec.shape == shape else bind(spread, x)

    return alike(re), alike(im)
