"""Passes keep results bit for bit, signs of zeros included, where no result is rounded."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from autojit.core.dtypes import bool_, float32, float64
from autojit.core.types import TensorType
from autojit.ir import evaluate
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph, Value
from autojit.ir.op import Op
from autojit.ops.sources import Full
from tests.on_cpu import optimize

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -0.5, np.inf, -np.inf, np.nan]
LITERALS = [0.0, -0.0, 1.0, -1.0, 2.0, -0.5, float("inf"), float("nan")]
"""Zeros, units and powers of two: products and quotients of them are exact, so that no pass may change a bit."""
PAIRS = ["add", "sub", "mul", "div", "guarded_mul", "guarded_div", "masked_mul", "maximum", "minimum"]
"""Without ``copysign``, which tells the sign of a NaN: IEEE 754 leaves that of ``x * -1`` open."""
SINGLES = ["neg", "abs", "relu", "square", "reciprocal", "sign", "floor"]
TYPE = TensorType((len(SPECIAL) ** 2,), float64)


class Writer:
    """Writes graphs of elementwise ops on two operands and literals."""

    def __init__(self, dtype: Any) -> None:
        self.type = TensorType(TYPE.shape, dtype)
        self.builder = GraphBuilder()
        self.x, self.y = self.builder.input(self.type), self.builder.input(self.type)

    def literal(self, value: float) -> Value:
        return self.builder.apply(Full(value, self.type.dtype, ()), ())[0]

    def apply(self, name: str, *operands: Value) -> Value:
        return self.builder.apply(Op.registry[name](), operands)[0]

    def after(self, name: str, x: Value, y: Value) -> list[Value]:
        """The op with its operands in both places."""
        return [self.apply(name, x)] if name in SINGLES else [self.apply(name, x, y), self.apply(name, y, x)]


def check(graph: Graph, dtype: Any) -> None:
    x, y = np.array(list(itertools.product(SPECIAL, SPECIAL)), dtype.numpy).T.copy()
    with np.errstate(all="ignore"):
        expected, found = evaluate(graph, [x, y]), evaluate(optimize(graph), [x, y])
    for k, (e, f) in enumerate(zip(expected, found, strict=True)):
        same = np.isnan(e) & np.isnan(f) | (e == f) & (np.signbit(e) == np.signbit(f))
        bad = np.flatnonzero(~same)[:3]
        alone = Graph(graph.inputs, graph.nodes, (graph.outputs[k],))
        assert same.all(), f"{[(x[i], y[i], e[i], f[i]) for i in bad]}\n{optimize(alone)}"


@pytest.mark.parametrize("dtype", [float64, float32], ids=str)
def test_ops_on_literals_keep_the_signs_of_zeros(dtype: Any) -> None:
    writer = Writer(dtype)
    outputs: list[Value] = []
    for literal, name in itertools.product(LITERALS, PAIRS):
        outputs += writer.after(name, writer.x, writer.literal(literal))
    check(writer.builder.finish(outputs), dtype)


@pytest.mark.parametrize("inner", [*PAIRS[:7], *SINGLES])
def test_ops_on_ops_on_literals_keep_the_signs_of_zeros(inner: str) -> None:
    for outer in [*PAIRS, *SINGLES]:
        writer = Writer(float64)
        outputs: list[Value] = []
        for first, second in itertools.product([0.0, -0.0, -1.0, 2.0], [0.0, -1.0, -0.5, float("inf")]):
            for between in writer.after(inner, writer.x, writer.literal(first)):
                outputs += writer.after(outer, between, writer.literal(second))
                outputs += writer.after(outer, between, writer.y)
        check(writer.builder.finish(outputs), float64)


def test_a_choice_by_a_literal_keeps_the_signs_of_zeros() -> None:
    writer = Writer(float64)
    outputs = []
    for truth in (True, False):
        condition = writer.builder.apply(Full(truth, bool_, ()), ())[0]
        outputs.append(writer.apply("where", condition, writer.x, writer.y))
        outputs.append(writer.apply("where", condition, writer.literal(-0.0), writer.y))
    check(writer.builder.finish(outputs), float64)


def test_sums_of_negatives_and_zeros_keep_their_signs() -> None:
    writer = Writer(float64)
    x, y = writer.x, writer.y
    minus_x, minus_y = writer.apply("neg", x), writer.apply("neg", y)
    zero, minus_zero = writer.literal(0.0), writer.literal(-0.0)
    values = [x, y, minus_x, minus_y, zero, minus_zero]
    outputs = []
    for a, b, c in itertools.product(values, values, values):
        for inner, outer in itertools.product(("add", "sub", "mul"), ("add", "sub")):
            outputs.append(writer.apply(outer, writer.apply(inner, a, b), c))
    check(writer.builder.finish(outputs), float64)
