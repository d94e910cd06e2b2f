"""Ops that hold graphs: what they share, and ``Cond``, a branch.

The graphs are ordinary ones, differentiated and batched by the graph transforms (through ``core.ports``, because these
are above the ops). Everything the graphs read comes in as an operand; nothing inside has an effect outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autojit.core.dtypes import DType, bool_
from autojit.core.errors import AutojitError, DTypeError, ShapeError
from autojit.core.ports import ports
from autojit.core.records import record
from autojit.core.types import TensorType
from autojit.ir.calls_out import calls_out, without_calls
from autojit.ir.graph import Graph, Value
from autojit.ir.inline import inline
from autojit.ir.interpreter import evaluate
from autojit.ir.op import O, Operands, bind
from autojit.ir.text import parse_graph
from autojit.ops.base import EqualByText, Structured
from autojit.ops.elementwise_arithmetic import where
from autojit.ops.graph_op import as_tuple, batched_graph, one_or_all, placed
from autojit.ops.samples import Samples, draws
from autojit.ops.shape import broadcast_to, reshape

__all__ = ["Cond", "HoldsGraphs"]


class HoldsGraphs(EqualByText, Structured, abstract=True):
    """An op whose graphs run as plans of their own."""

    spans_devices = True
    reads_operands = True  # the derivative runs the graphs again; what both compute is shared by a pass

    def graphs(self) -> tuple[Graph, ...]:
        """The graphs, in the order of the fields."""
        raise NotImplementedError(self.name)

    def with_graphs(self, graphs: Sequence[Graph]) -> HoldsGraphs:
        """The op with other graphs of the same inputs and outputs."""
        raise NotImplementedError(self.name)

    @property
    def calls_out(self) -> bool:
        """Whether a graph calls a user's function."""
        return any(calls_out(graph) for graph in self.graphs())

    def silent(self) -> HoldsGraphs:
        """See `ir.op.Op.silent`."""
        return self.with_graphs([without_calls(graph) for graph in self.graphs()])

    def may_refuse(self, *types: TensorType) -> bool:
        """A graph that nobody reads refuses what eager mode refuses in it."""
        return any(node.is_asked for graph in self.graphs() for node in graph.nodes)

    def _check_operands(self, graph: Graph, types: Sequence[TensorType], what: str) -> None:
        expected = [v.type for v in graph.inputs]
        if len(types) != len(expected):
            raise ShapeError(f"{self.name}: {what} takes {len(expected)} operands, not {len(types)}")
        for place, (found, wanted) in enumerate(zip(types, expected, strict=True)):
            check_type(f"{self.name}: operand {place} of {what}", found, wanted)


def evaluate_round(body: Graph, arrays: Sequence[Any], number: int) -> list[Any]:
    """One round of a loop by the reference; what goes wrong in it is reported with its number."""
    try:
        return evaluate(body, arrays)
    except AutojitError as error:
        raise error.in_round(number) from None


def check_type(what: str, found: TensorType, wanted: TensorType) -> None:
    """Raise an error when a type is not the wanted one."""
    if found.shape != wanted.shape:
        raise ShapeError(f"{what} has another shape", {"found": found, "expected": wanted})
    if found.dtype is not wanted.dtype:
        raise DTypeError(f"{what} has another dtype", {"found": found, "expected": wanted})


def floats(values: Sequence[Value]) -> list[int]:
    """The positions of the values that have derivatives."""
    return [k for k, v in enumerate(values) if v.type.dtype.is_differentiable]


def flows(graph: Graph, flags: Sequence[bool]) -> list[bool]:
    """Per output, whether it depends on a flagged input."""
    reached = {v for v, flag in zip(graph.inputs, flags, strict=True) if flag}
    for node in graph.nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    return [v in reached for v in graph.outputs]


def with_batch_axis(x: O, size: int) -> O:
    """``x`` repeated along a new leading axis."""
    shape = x.spec.shape
    return broadcast_to(reshape(x, (1, *shape)), (size, *shape))


def select(mask: O, on_true: O, on_false: O) -> O:
    """Elements of a batch by a mask of one bool per element."""
    shape = (mask.spec.shape[0], *(1,) * (on_true.spec.ndim - 1))
    return where(reshape(mask, shape), on_true, on_false)


@record(eq=False)
class Cond(HoldsGraphs):
    """``on_true(*operands)`` where the first operand, one bool, is true, else ``on_false(*operands)``."""

    on_true: Graph
    on_false: Graph

    @property
    def n_outputs(self) -> int:
        return len(self.on_true.outputs)

    def graphs(self) -> tuple[Graph, ...]:
        return self.on_true, self.on_false

    def with_graphs(self, graphs: Sequence[Graph]) -> Cond:
        return Cond(*graphs)

    def result_type(self, *types: TensorType) -> Any:
        predicate, *rest = types
        if predicate.dtype is not bool_ or predicate.shape:
            raise DTypeError("cond: the predicate must be one bool", {"predicate": predicate})
        self._check_operands(self.on_true, rest, "the true branch")
        self._check_operands(self.on_false, rest, "the false branch")
        for place, (a, b) in enumerate(zip(self.on_true.outputs, self.on_false.outputs, strict=True)):
            check_type(f"cond: output {place} of the false branch", b.type, a.type)
        return one_or_all([v.type for v in self.on_true.outputs])

    def eager(self, predicate: Any, *arrays: Any) -> Any:
        return one_or_all(evaluate(self.on_true if predicate else self.on_false, arrays))

    def vjp(self, primals: Operands, result: O, y_bar: O) -> Sequence[Any]:
        predicate, *operands = primals
        bars = as_tuple(y_bar, self.n_outputs)
        kept = [k for k in floats(self.on_true.outputs) if bars[k] is not None]
        wanted = floats(self.on_true.inputs)
        if not wanted or not kept:
            return (None,) * len(primals)
        adjoints = [ports.transforms.adjoint(only_outputs(g, kept), wanted) for g in self.graphs()]
        found = bind(Cond(*adjoints), predicate, *operands, *[bars[k] for k in kept])
        return (None, *placed(len(primals) - 1, wanted, as_tuple(found, len(wanted))))

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        predicate, *operands = primals
        moving = [k for k in floats(self.on_true.inputs) if tangents[k + 1] is not None]
        pushed = [ports.transforms.jvp(g, moving) for g in self.graphs()]
        count = self.n_outputs
        kept = floats(self.on_true.outputs)
        if not moving or not kept:
            return None
        branches = [only_outputs(g, [count + k for k in kept]) for g in pushed]
        found = as_tuple(bind(Cond(*branches), predicate, *operands, *[tangents[k + 1] for k in moving]), len(kept))
        return one_or_all(placed(count, kept, found))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        (predicate, *operands), (is_mask, *flags) = args, batched
        size = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
        everything = (True,) * self.n_outputs
        if not is_mask:
            branches = [batched_graph(g, flags, size, everything) for g in self.graphs()]
            return bind(Cond(*branches), predicate, *operands)
        both: list[list[Any]] = []
        for graph in self.graphs():
            results = inline(batched_graph(graph, flags, size, everything), operands, predicate)
            both.append(results if any(flags) else [with_batch_axis(y, size) for y in results])
        return one_or_all([select(predicate, a, b) for a, b in zip(*both, strict=True)])

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if not dtype.is_floating_point or dtype.short not in ("f32", "f64"):
            return []
        t = dtype.short
        on_true = parse_graph(f"(x: {t}[3], w: {t}[3]) {{ a: {t}[3] = mul(x, w); b: {t}[3] = sin(a); return b, x }}")
        on_false = parse_graph(f"(x: {t}[3], w: {t}[3]) {{ a: {t}[3] = exp(x); return a, w }}")
        operands = draws((3,), dtype, 1), draws((3,), dtype, 2)
        found = [(Cond(on_true, on_false), (np.asarray(value), *operands)) for value in (True, False)]
        one = Cond(only_outputs(on_true, (0,)), only_outputs(on_false, (0,)))
        return [*found, (one, (np.asarray(True), *operands))]


def only_outputs(graph: Graph, chosen: Sequence[int]) -> Graph:
    """The graph with some of its outputs, by position."""
    return Graph(graph.inputs, graph.nodes, tuple(graph.outputs[k] for k in chosen))
