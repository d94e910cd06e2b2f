"""Attention with a function of its scores as one op: the function is a graph of one place, which blocks compute inside.

``FlexAttention`` is `Attention` whose scores a graph changes: (score, numbers of batch, head, query and key, what it
reads) to a score, -inf where a query does not see a key. Its derivative, ``FlexAttentionAdjoint``, holds the graph
that gives the cotangent of a score besides. Both are composites, with these graphs batched over all places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bool_, int64
from autojit.core.errors import DTypeError, ShapeError
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.inline import inline, live
from autojit.ir.op import Ndarray, O, Operands
from autojit.ir.placed import graph_on
from autojit.ops.attention import Attending, least_score
from autojit.ops.base import EqualByText
from autojit.ops.composites_activation import softmax
from autojit.ops.composites_reduction import logsumexp
from autojit.ops.elementwise_arithmetic import ADD, MUL, WHERE, mul, sub, where
from autojit.ops.elementwise_exponential import exp
from autojit.ops.elementwise_logic import lt, ne
from autojit.ops.graph_op import Composite, adjoint_of, batched_graph
from autojit.ops.indexing import GATHER_ND
from autojit.ops.matmul import matmul, swap_last
from autojit.ops.reductions import sum
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import reshape
from autojit.ops.sources import Full, arange

__all__ = ["FlexAttending", "FlexAttention", "FlexAttentionAdjoint"]

NUMBERS = 5  # a score and the numbers of batch, head, query and key: the first inputs of a graph


@record(eq=False)
class FlexAttending(EqualByText, Attending, abstract=True):
    """What both ops are told.

    Operands are q ``f[*b, l, e]``, k ``f[*b, s, e]`` and v ``f[*b, s, d]``, whose matrices are those of all heads of
    one batch, then of the next; where ``block`` is given, a table ``bool[batches or 1, heads or 1, blocks of queries,
    blocks of keys]``, in which False promises that the graph gives -inf in a block; then what the graph reads.

    Args:
        graph: of one place.
        heads: how many there are.
        block: queries and keys of a block; empty where there is no table.
    """

    graph: Graph
    heads: int
    block: tuple[int, ...]

    masks_cotangents = True

    @property
    def has_table(self) -> bool:
        """Whether an operand says which blocks are empty."""
        return bool(self.block)

    @property
    def skips_keys(self) -> bool:
        return self.has_table

    @property
    def read(self) -> int:
        """How many operands the graph reads."""
        raise NotImplementedError(self.name)

    @property
    def count(self) -> int:
        return 3 + self.has_table + self.read

    def of_graph(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The operands that the graph reads."""
        return operands[3 + self.has_table : self.count]

    def check(self, types: Sequence[TensorType]) -> TensorType:
        found = super().check(types)
        q = types[0]
        expected = [v.type.on(q.device) for v in self.graph.inputs]
        if found.dtype is not expected[0].dtype:
            raise DTypeError(f"{self.name}: the function takes other scores", {"q": q, "expected": expected[0]})
        if prod(q.shape[:-2]) % self.heads:
            raise ShapeError(f"{self.name}: matrices are not those of {self.heads} heads", {"q": q})
        given = list(self.of_graph(types))
        if given != expected[NUMBERS : NUMBERS + self.read]:
            raise ShapeError(f"{self.name}: operands do not fit the function", {"found": given, "expected": expected})
        if self.has_table and (types[3].dtype is not bool_ or types[3].ndim != 4):
            raise DTypeError(
                f"{self.name}: a table of blocks is bool[batches, heads, rows, columns]", {"table": types[3]}
            )
        return found

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return Composite.batch(self, args, batched)

    def modified(self, graph: Graph, q: O, k: O, tables: Sequence[O], captured: Sequence[O]) -> list[O]:
        """What a graph of one place gives at all places, for tables like the scores in its first and last inputs."""
        if graph.inputs[0].type.device != q.spec.device:
            graph = graph_on(graph, q.spec.device)
        shape = tables[0].spec.shape
        extents = (prod(shape[:-2]) // self.heads, self.heads, *shape[-2:])
        flags = [v in (graph.inputs[0], *graph.inputs[NUMBERS + len(captured) :]) for v in graph.inputs]
        for place in (4, 3, 2, 1):
            varies = [flag or k == place for k, flag in enumerate(flags)]
            graph = batched_graph(graph, varies, extents[place - 1])
        wide = [reshape(x, extents) for x in tables]
        numbers = [arange(q, n) for n in extents]
        found = inline(graph, [wide[0], *numbers, *captured, *wide[1:]], q)
        return [reshape(y, shape) for y in found]


@record(eq=False)
class FlexAttention(FlexAttending):
    """softmax(f(q k^T scale)) v and the logarithms of the sums: -inf for a query that sees no key, which gets zeros.

    Source: arXiv:2412.05496.
    """

    n_outputs: ClassVar[int] = 2

    @property
    def read(self) -> int:
        return len(self.graph.inputs) - NUMBERS

    def result_type(self, *types: TensorType) -> Any:
        y = self.check(types)
        return y, TensorType(y.shape[:-1], y.dtype, y.device)

    def eager(self, *arrays: Ndarray) -> Any:
        return self.line_by_line(*arrays)

    def expand(self, *operands: O) -> Any:
        q, k, v = operands[:3]
        raw = matmul(mul(q, self.scale), swap_last(k))
        (scores,) = self.modified(self.graph, q, k, [raw], self.of_graph(operands))
        is_kept = ne(scores, -inf)
        filled = where(is_kept, scores, least_score(scores))
        weights = where(is_kept, softmax(filled), 0.0)
        lse = logsumexp(filled, -1)
        return matmul(weights, v), where(lt(lse, least_score(lse) / 2), -inf, lse)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        """Of the values by one op for q, k and v; by what the graph reads, and of the sums, from the composite."""
        return self.bars(primals, result, y_bar, [x.spec.dtype.is_differentiable for x in primals])

    def adjoint(self, is_masked: bool) -> FlexAttentionAdjoint:
        """The op of the derivative by q, k and v."""
        pulled = adjoint_of(self.graph, (0,), is_masked)
        given = (*self.graph.inputs, pulled.inputs[-1])
        renamed = dict(zip(pulled.inputs[:-1], self.graph.inputs, strict=True))
        nodes = [Node(n.op, tuple([renamed.get(v, v) for v in n.inputs]), n.outputs, n.source) for n in pulled.nodes]
        slope = renamed.get(pulled.outputs[0], pulled.outputs[0])
        joint = Graph(given, (*self.graph.nodes, *nodes), (*self.graph.outputs, slope))
        return FlexAttentionAdjoint(self.scale, False, False, 0.0, joint, self.heads, self.block, is_masked)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        return [(op, inputs) for op, inputs, _ in _cases(dtype)]


@record(eq=False)
class FlexAttentionAdjoint(FlexAttending):
    """The cotangents of q, k and v from that of the attended values, ``y_bar``.

    Operands are those of `FlexAttention`, its results and ``y_bar``. The graph has one more input, a cotangent of what
    it gives first, and gives second what this is of the score. ``is_masked``: zeros of ``y_bar`` may be masked ones.
    """

    is_masked: bool

    n_outputs: ClassVar[int] = 3

    @property
    def read(self) -> int:
        return len(self.graph.inputs) - NUMBERS - 1

    def result_type(self, *types: TensorType) -> Any:
        self.check(types)
        return tuple(types[:3])

    def eager(self, *arrays: Ndarray) -> Any:
        return self.line_by_line(*arrays)

    def expand(self, *operands: O) -> Any:
        q, k, v = operands[:3]
        y, lse, y_bar = operands[-3:]
        captured = self.of_graph(operands)
        raw = matmul(mul(q, self.scale), swap_last(k))
        (scores,) = self.modified(self.forward_graph, q, k, [raw], captured)
        base = reshape(where(ne(lse, -inf), lse, 0.0), (*lse.spec.shape, 1))
        weights = where(ne(scores, -inf), exp(sub(scores, base)), 0.0)
        weights_bar = matmul(y_bar, swap_last(v))
        scores_bar = mul(weights, sub(weights_bar, sum(mul(y, y_bar), -1, keep=True)))
        slope = live(Graph(self.graph.inputs, self.graph.nodes, self.graph.outputs[1:]))
        (raw_bar,) = self.modified(slope, q, k, [raw, scores_bar], captured)
        raw_bar = mul(raw_bar, self.scale)
        return matmul(raw_bar, k), matmul(swap_last(raw_bar), q), matmul(swap_last(weights), y_bar)

    @property
    def forward_graph(self) -> Graph:
        """The function alone."""
        return live(Graph(self.graph.inputs[:-1], self.graph.nodes, self.graph.outputs[:1]))

    @staticmethod
    def samples(dtype: DType) -> Samples:
        found: Samples = []
        for op, inputs, y_bar in _cases(dtype):
            with np.errstate(all="ignore"):
                found.append((op.adjoint(False), (*inputs, *op.eager(*inputs), y_bar)))
        return found


def _cases(dtype: DType) -> list[tuple[FlexAttention, tuple[Ndarray, ...], Ndarray]]:
    """Scores times a factor of their head, and those of keys that a table removes."""
    if dtype.kind != "float" or dtype.size_bytes < 4:
        return []
    q, k, v, bar = (
        draws(shape, dtype, seed)
        for seed, shape in enumerate(((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 3), (2, 3, 5, 3)), start=1)
    )
    keep = draws((5, 6), bool_, 5)
    keep[1], keep[:, 2] = False, True
    place, score, number = Value(TensorType((), bool_)), Value(TensorType((), dtype)), TensorType((), int64)
    numbers = [Value(number) for _ in range(4)]
    factors, kept = Value(TensorType((3,), dtype)), Value(TensorType((5, 6), bool_))
    factor, product, lowest, found, total = (Value(score.type) for _ in range(5))
    nodes = (
        Node(GATHER_ND, (factors, numbers[1]), (factor,)),
        Node(MUL, (score, factor), (product,)),
        Node(ADD, (product, factor), (total,)),
        Node(GATHER_ND, (kept, numbers[2], numbers[3]), (place,)),
        Node(Full(-inf, dtype, ()), (), (lowest,)),
        Node(WHERE, (place, total, lowest), (found,)),
    )
    op = FlexAttention(0.5, False, False, 0.0, Graph((score, *numbers, factors, kept), nodes, (found,)), 3, ())
    return [(op, (q, k, v, draws((3,), dtype, 6), keep), bar)]
