"""Ops and graphs as they are where their values are on another device."""

from __future__ import annotations

from autojit.core.device import Device
from autojit.ir.graph import Graph, Node, Value
from autojit.ir.op import Op


def op_on(op: Op, place: Device) -> Op:
    """The op with its graphs, and what these make of nothing, on a device."""
    fields = {name: _parameter_on(getattr(op, name), place) for name in op.__match_args__}
    if "device" in fields:
        fields["device"] = place
    return type(op)(**fields)


def graph_on(graph: Graph, place: Device) -> Graph:
    """The graph of the same ops on values on a device."""
    made = [v for node in graph.nodes for v in node.outputs]
    values = {v: Value(v.type.on(place), v.name) for v in (*graph.inputs, *made)}
    nodes = [
        Node(op_on(n.op, place), tuple(values[v] for v in n.inputs), tuple(values[v] for v in n.outputs), n.source)
        for n in graph.nodes
    ]
    return Graph(tuple(values[v] for v in graph.inputs), tuple(nodes), tuple(values[v] for v in graph.outputs))


def _parameter_on(parameter: object, place: Device) -> object:
    if isinstance(parameter, tuple):
        return tuple(_parameter_on(item, place) for item in parameter)
    return graph_on(parameter, place) if isinstance(parameter, Graph) else parameter
