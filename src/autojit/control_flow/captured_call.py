"""CapturedCall: a captured body as one op, differentiated through the history that its capture left.

The engine walks that history inside the body's own trace, so that ``detach``, hooks and custom ``Function``s count as
they do in eager mode; what it records has a history again, so every order works the same way. The compiler sees through
the op: its first pass over loops puts the body's own ops in its place.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from autojit.autograd import anomaly
from autojit.autograd.edges import zeros_of
from autojit.control_flow.body import Body
from autojit.core.errors import DifferentiationError, ShapeError
from autojit.dispatch.dispatch import value_of
from autojit.history.recording import wants_grad
from autojit.ir.builder import GraphBuilder
from autojit.ir.calls_out import calls_out, without_calls
from autojit.ir.concrete import concrete, is_open
from autojit.ir.graph import Graph, Node, Value, values_of
from autojit.ir.op import Op, Operands, bind
from autojit.jit.histories import new_cotangent, pulled_back
from autojit.jit.segment import needed_nodes
from autojit.ops.base import EqualByText
from autojit.ops.graph_op import GraphOp, as_tuple, batched_graph, filled
from autojit.ops.reductions import sum
from autojit.tensor.state import below, grad_mode
from autojit.tensor.tensor import Tensor
from autojit.transforms.adjoint import adjoint

Pairs = Sequence[tuple[Value, Tensor | None]]


class Call(EqualByText, GraphOp, abstract=True):
    """``outputs = graph(*inputs)``, whose derivative is another call. Equal when the graphs' texts are.

    ``with_history`` are the outputs that can be differentiated, ``wanted`` the inputs they can be differentiated by.
    """

    opened_by = "open_bodies"
    spans_devices = True
    graph: Graph

    @property
    def with_history(self) -> list[int]:
        """Positions of outputs."""
        raise NotImplementedError(self.name)

    @property
    def wanted(self) -> list[int]:
        """Positions of inputs."""
        raise NotImplementedError(self.name)

    @property
    def calls_out(self) -> bool:
        """Whether the body calls a user's function."""
        return calls_out(self.graph)

    def silent(self) -> Call:
        """See `ir.op.Op.silent`."""
        made = copy.copy(self)
        made.__dict__.pop("_text", None)
        made.graph = without_calls(self.graph)
        return made

    def adjoint(self) -> Call:
        """Inputs, then cotangents of the outputs with a history, to cotangents of the inputs with one."""
        raise NotImplementedError(self.name)

    def of_sizes(self, sizes: Mapping[str, int]) -> Op:
        """See `ir.op.Op.of_sizes`."""
        is_closed = not any(is_open(v.type.shape) for v in values_of(self.graph))
        return self if is_closed else SizedCall(self, sizes)

    @property
    def n_outputs(self) -> int:
        return len(self.graph.outputs)

    def parameters(self) -> tuple[tuple[str, object], ...]:
        return (("graph", self.graph),)

    def result_type(self, *types: Any) -> Any:
        expected = [v.type for v in self.graph.inputs]
        if list(types) != expected:
            raise ShapeError(f"{self.name}: operands do not fit the body", {"found": types, "expected": expected})
        return self.one_or_all([v.type for v in self.graph.outputs])

    def may_refuse(self, *types: Any) -> bool:
        """As the nodes of the body."""
        return any(node.is_asked for node in self.graph.nodes)

    def graph_of(self, types: Any) -> Graph:
        return self.graph

    def wanted_of(self, primals: Operands) -> Sequence[int]:
        return self.wanted

    def kept_of(self, results: Operands) -> Sequence[int]:
        return self.with_history

    def pulled(self, wanted: Sequence[int], primals: Operands, bars: Operands) -> Sequence[Any]:
        call = self.adjoint()
        return as_tuple(bind(call, *primals, *bars), call.n_outputs)

    def vjp(self, primals: Operands, result: Any, y_bar: Any) -> Sequence[Any]:
        bars = as_tuple(y_bar, self.n_outputs)
        is_reached = any(bars[k] is not None for k in self.with_history)
        return super().vjp(primals, result, y_bar) if is_reached else (None,) * len(primals)

    def jvp(self, primals: Operands, result: Any, tangents: Operands) -> Any:
        """The derivative of the adjoint with respect to its cotangents, in which it is linear."""
        kept, wanted = self.with_history, self.wanted
        placed: list[Any] = [None] * self.n_outputs
        if not kept or all(tangents[k] is None for k in wanted):
            return None
        pulled = self.adjoint()
        twice = pulled.adjoint()
        like = primals[0]
        bars = [like._literal(0, self.graph.outputs[k].type) for k in kept]
        moving = [wanted[k] for k in pulled.with_history]
        dots = filled(like, [tangents[k] for k in moving], [primals[k].spec for k in moving])
        found = as_tuple(bind(twice, *primals, *bars, *dots), twice.n_outputs)
        order = pulled.wanted
        for place, k in enumerate(kept):
            position = len(primals) + place
            if position in order:
                placed[k] = found[order.index(position)]
        return self.one_or_all(placed)

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        size = next(a.spec.shape[0] for a, flag in zip(args, batched, strict=True) if flag)
        return bind(BatchedCall(self, batched, size, (False,) * self.n_outputs), *args)


class CapturedCall(Call):
    """A captured body. One that was read from text has no history: the graph's ops are differentiated instead."""

    body: Body

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._inputs: list[tuple[Value, Any]] = [
            (v, v if v.type.dtype.is_differentiable else None) for v in graph.inputs
        ]
        self._outputs: list[tuple[Value, Any]] = [
            (v, v if v.type.dtype.is_differentiable else None) for v in graph.outputs
        ]
        self._adjoints: dict[bool, CapturedCall] = {}  # by whether anomaly mode watches

    @staticmethod
    def of(body: Body, inputs: Pairs, outputs: Pairs, first: int = 0) -> CapturedCall:
        """The call of a finished capture; a value is paired with the tensor whose history leads to it, or None.

        ``first``: the number of the body's node from which on the call's own were recorded; others have run.
        """
        values = tuple(v for v, _ in inputs)
        wanted = tuple(v for v, _ in outputs)
        nodes = needed_nodes(body.trace.builder.nodes, wanted, dict.fromkeys(values), first)
        made = CapturedCall(Graph(values, nodes, wanted))
        made.body, made._inputs, made._outputs = body, list(inputs), list(outputs)
        _check_closed(made.graph, body)
        return made

    @property
    def with_history(self) -> list[int]:
        return [k for k, (_, t) in enumerate(self._outputs) if t is not None]

    @property
    def wanted(self) -> list[int]:
        return [k for k, (_, t) in enumerate(self._inputs) if t is not None]

    def adjoint(self) -> CapturedCall:
        is_read = "body" not in self.__dict__
        is_watched = anomaly.is_watching() and not is_read
        found = self._adjoints.get(is_watched)
        if found is None:
            made = CapturedCall(adjoint(self.graph, is_masked=True)) if is_read else self._recorded_adjoint()
            found = self._adjoints[is_watched] = made
        return found

    def _recorded_adjoint(self) -> CapturedCall:
        layer, first = self.body.layer, len(self.body.trace.builder.nodes)
        with self.body.unchanged(), self.body.entered(), grad_mode(True):
            bars = [new_cotangent(self.body.trace, self.graph.outputs[k].type) for k in self.with_history]
            tensors = [self._outputs[k][1] for k in self.with_history]
            leaves = [self._inputs[k][1] for k in self.wanted]
            with anomaly.collected([]) as checks:
                found = pulled_back(tensors, bars, leaves)
            layer.cut([g for _, g in found if g is not None])
            grads = [zeros_of(edge) if g is None else g for edge, g in found]
            with below(layer):
                anomaly.require_numbers(checks, bars)
                outputs = [(value_of(g), g if wants_grad(g) else None) for g in grads]
        given: Pairs = [(b._value, b) for b in bars]  # type: ignore[misc]
        return CapturedCall.of(self.body, [*self._inputs, *given], outputs, first)


class _Changed(Call, abstract=True):
    """A call with another graph. Its history stays that of the call."""

    call: Call

    @property
    def with_history(self) -> list[int]:
        return self.call.with_history

    @property
    def wanted(self) -> list[int]:
        return self.call.wanted


class BatchedCall(_Changed):
    """A call over a batch of ``size``: flagged inputs have the batch axis, as have outputs that are not ``summed``."""

    def __init__(self, call: Call, flags: Sequence[bool], size: int, summed: Sequence[bool]) -> None:
        self.call, self.flags, self.size, self.summed = call, tuple(flags), size, tuple(summed)
        whole = batched_graph(call.graph, flags, size)
        builder = GraphBuilder()
        builder.nodes = list(whole.nodes)
        outputs = [
            sum(builder.tracer(v), (0,)).value if add_up else v for v, add_up in zip(whole.outputs, summed, strict=True)
        ]
        self.graph = Graph(whole.inputs, tuple(builder.nodes), tuple(outputs))

    def adjoint(self) -> BatchedCall:
        """Cotangents of what was summed are the same for all elements; those of what all elements share are summed."""
        bars = [not self.summed[k] for k in self.with_history]
        return BatchedCall(
            self.call.adjoint(), (*self.flags, *bars), self.size, [not self.flags[k] for k in self.wanted]
        )


class SizedCall(_Changed):
    """A call for given values of its open sizes. In its history they stay open."""

    def __init__(self, call: Call, sizes: Mapping[str, int]) -> None:
        self.call, self.sizes = call, dict(sizes)
        self.graph = concrete(call.graph, sizes)

    def adjoint(self) -> SizedCall:
        return SizedCall(self.call.adjoint(), self.sizes)


def body_graph(body: Body) -> Graph:
    """The graph of a closed body: one CapturedCall where something can be differentiated."""
    call = CapturedCall.of(body, body.inputs, body.outputs)
    if not call.with_history:
        return call.graph
    inputs = tuple(Value(v.type) for v in call.graph.inputs)
    outputs = tuple(Value(v.type) for v in call.graph.outputs)
    return Graph(inputs, (Node(call, inputs, outputs, body.source),), outputs)


def _check_closed(graph: Graph, body: Body) -> None:
    known = set(graph.inputs)
    for node in graph.nodes:
        for value in node.inputs:
            if value not in known:
                raise DifferentiationError(
                    f"{body.name}: the derivative of the body reads a tensor that the body itself did not",
                    {"op": node.op, "at": node.source},
                    "use the tensor in the body, or pass it as an operand",
                )
        known.update(node.outputs)
