"""GraphOp: several ops as one. It holds a graph, and the graph transforms give its rules.

How to read: a subclass says which graph it is for operands of given types (``graph_of``), and may say how eager mode
computes it (``eager``: the graph's ops line by line, if it does not), what is saved for backward and how (``vjp``), and
what becomes of the graph of a derivative or a batch (``through``: its ops are written at the place of use, unless it is
an op in turn). ``opened_by`` names the pass that writes the graph's ops in the op's place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

from autojit.core.dtypes import dtype_of_numpy
from autojit.core.ports import ports
from autojit.core.types import TensorType
from autojit.ir.builder import GraphBuilder
from autojit.ir.graph import Graph
from autojit.ir.inline import inline, live
from autojit.ir.interpreter import evaluate
from autojit.ir.op import Ndarray, O, Op, Operands, Rule
from autojit.ir.result_types import holds_plain
from autojit.ops.base import Elementwise
from autojit.ops.cotangent_masks import masking

__all__ = ["Composite", "ElementwiseGraph", "GraphOp"]

Transform = Callable[..., Graph]


def one_or_all(results: Sequence[Any]) -> Any:
    """Results as an op gives them: one alone, several as a tuple."""
    return results[0] if len(results) == 1 else tuple(results)


class GraphOp(Op, abstract=True):
    """``outputs = graph(*inputs)``.

    The VJP rule is the adjoint of the graph, which computes again what it needs: it reads operands and no results.
    """

    reads_operands: ClassVar[bool] = True
    opened_by: ClassVar[Literal["expand", "open_bodies", None]] = "expand"

    def graph_of(self, types: Sequence[TensorType]) -> Graph:
        """The graph for operands of these types."""
        raise NotImplementedError(self.name)

    def fitted(self, operands: Operands) -> Operands:
        """The operands as the graph takes them."""
        return operands

    def derived(self, types: Sequence[TensorType], transform: Transform, *arguments: Any) -> Graph:
        """What a transform makes of the graph for operands of these types."""
        return transform(self.graph_of(types), *arguments)

    def through(self, operands: Operands, types: Sequence[TensorType], transform: Transform, *arguments: Any) -> Any:
        """The results of what a transform makes of the graph, in a sequence."""
        graph = self.derived(types, transform, *arguments)
        return inline(graph, self.fitted(operands), operands[0])

    def expand(self, *operands: O) -> Any:
        """The graph's ops on the operands."""
        graph = self.graph_of([x.spec for x in operands])
        return self.one_or_all(inline(graph, self.fitted(operands), operands[0]))

    one_or_all = staticmethod(one_or_all)

    def types_of_outputs(self, *types: TensorType) -> Any:
        """The types that the graph's results have."""
        return self.one_or_all([v.type for v in self.graph_of(types).outputs])

    result_type: Rule = types_of_outputs

    def line_by_line(self, *arrays: Ndarray) -> Any:
        """The results by the interpreter."""
        return self.one_or_all(evaluate(self.graph_of(types_of(arrays)), arrays))

    eager: Rule = line_by_line

    # -- derivatives

    def wanted_of(self, primals: Operands) -> Sequence[int]:
        """The positions of the operands that have cotangents."""
        return [k for k, x in enumerate(primals) if x.spec.dtype.is_differentiable]

    def kept_of(self, results: Operands) -> Sequence[int]:
        """The positions of the results that have cotangents."""
        return [k for k, y in enumerate(results) if y.spec.dtype.is_differentiable]

    def pulled(self, wanted: Sequence[int], primals: Operands, bars: Operands) -> Sequence[Any]:
        """Cotangents of the operands ``wanted`` from those of the results `kept_of`."""
        types = [x.spec for x in primals]
        found: Sequence[Any] = self.through([*primals, *bars], types, adjoint_of, tuple(wanted), masking.is_on)
        return found

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        # what small eager ops pay in backward: no helper is called that a line can replace
        results, bars = ((result,), (y_bar,)) if self.n_outputs == 1 else (result, y_bar)
        wanted = self.wanted_of(primals)
        given = [primals[0]._literal(0, results[k].spec) if bars[k] is None else bars[k] for k in self.kept_of(results)]
        found = self.pulled(wanted, primals, given) if wanted else ()
        return found if len(wanted) == len(primals) else placed(len(primals), wanted, found)

    def jvp(self, primals: Operands, result: O, tangents: Operands) -> Any:
        moving = tuple([k for k, t in enumerate(tangents) if t is not None])
        operands = [*primals, *[tangents[k] for k in moving]]
        return self.one_or_all(self.through(operands, [x.spec for x in primals], tangents_of, moving))

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        size = next(x.spec.shape[0] for x, flag in zip(args, batched, strict=True) if flag)
        examples = [x.spec.drop((0,)) if flag else x.spec for x, flag in zip(args, batched, strict=True)]
        return self.one_or_all(self.through(args, examples, batched_graph, batched, size))


class Composite(GraphOp, abstract=True):
    """A function of operands as one op: its graph is what the function records on operands of the types."""

    def expand(self, *operands: O) -> Any:
        """The function."""
        raise NotImplementedError(self.name)

    def graph_of(self, types: Sequence[TensorType]) -> Graph:
        key = tuple(types)
        return _known_graph(self, key) if holds_plain(key) else self.new_graph(key)

    def derived(self, types: Sequence[TensorType], transform: Transform, *arguments: Any) -> Graph:
        key = tuple(types)
        if holds_plain(key) and holds_plain(arguments):
            return _known_derived(self, key, transform, arguments)
        return super().derived(key, transform, *arguments)

    def new_graph(self, types: Sequence[TensorType]) -> Graph:
        """The graph, recorded."""
        builder = GraphBuilder()
        found = self.expand(*[builder.tracer(builder.input(t)) for t in types])
        return builder.finish([y.value for y in as_tuple(found, self.n_outputs)])


@lru_cache(maxsize=1024)
def _known_graph(op: Composite, types: tuple[TensorType, ...]) -> Graph:
    return op.new_graph(types)


@lru_cache(maxsize=1024)
def _known_derived(
    op: Composite, types: tuple[TensorType, ...], transform: Transform, arguments: tuple[Any, ...]
) -> Graph:
    return transform(op.graph_of(types), *arguments)


class ElementwiseGraph(GraphOp, Elementwise, abstract=True):
    """A graph of elementwise ops: its operands broadcast, and a batch of it is itself."""

    result_type: Rule = Elementwise.result_type
    batch = Elementwise.batch

    eager: Rule = GraphOp.line_by_line  # in the order in memory that one loop gives


def adjoint_of(graph: Graph, wanted: Sequence[int], is_masked: bool) -> Graph:
    """Inputs, then cotangents of outputs, to the cotangents of the inputs ``wanted``; without dead nodes."""
    return live(ports.transforms.adjoint(graph, wanted, is_masked))


def tangents_of(graph: Graph, moving: Sequence[int]) -> Graph:
    """Inputs, then tangents of the inputs ``moving``, to the tangents of the outputs; without dead nodes."""
    pushed = ports.transforms.jvp(graph, moving)
    return live(Graph(pushed.inputs, pushed.nodes, pushed.outputs[len(graph.outputs) :]))


def batched_graph(graph: Graph, flags: Sequence[bool], size: int, leading: Sequence[bool] | None = None) -> Graph:
    """The graph over a batch; the outputs in ``leading`` (by default all) have the batch axis."""
    return ports.transforms.vmap(graph, flags, size, leading) if any(flags) else graph


def types_of(arrays: Sequence[Ndarray]) -> list[TensorType]:
    """The types of arrays on the CPU."""
    return [TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays]


def as_tuple(results: Any, count: int) -> tuple[Any, ...]:
    """The results of an op as a tuple, also of one."""
    return (results,) if count == 1 else tuple(results)


def placed(count: int, places: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """Values at their places among ``count``; elsewhere None, a symbolic zero."""
    found: list[Any] = [None] * count
    for k, value in zip(places, values, strict=True):
        found[k] = value
    return tuple(found)


def filled(like: Any, given: Sequence[Any], types: Sequence[TensorType]) -> list[Any]:
    """Cotangents or tangents with zeros in place of the symbolic ones."""
    return [like._literal(0, t) if x is None else x for x, t in zip(given, types, strict=True)]
