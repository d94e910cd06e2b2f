"""The text form of graphs, as `text` reads it back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from autojit.core.device import Device
from autojit.core.dtypes import DType
from autojit.core.types import TensorType

if TYPE_CHECKING:
    from autojit.ir.graph import Graph, Node, Value
    from autojit.ir.op import Op

_LINE = 120


def print_literal(value: object) -> str:
    """A static parameter as text the parser reads back."""
    if isinstance(value, DType):
        return value.short
    if hasattr(value, "as_parameter"):  # ops and graphs
        return str(value.as_parameter())
    if isinstance(value, tuple):
        inner = ", ".join(print_literal(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, TensorType):
        return repr(str(value))
    if isinstance(value, Device):
        return f"device({str(value)!r})"
    return repr(value)


def print_parameters(op: Op) -> str:
    """The static parameters of an op: ``axes=(0,)``."""
    return ", ".join(f"{k}={print_literal(v)}" for k, v in op.parameters())


def names_of(graph: Graph) -> dict[Value, str]:
    """A name for each value of a graph: its own where no earlier value has it, else ``v`` and a number."""
    taken: dict[str, Value] = {}
    names: dict[Value, str] = {}
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    for value in values:
        if value.name and value.name not in taken:
            taken[value.name] = value
            names[value] = value.name
    counter = 0
    for value in values:
        if value in names:
            continue
        while f"v{counter}" in taken:
            counter += 1
        names[value] = f"v{counter}"
        taken[f"v{counter}"] = value
    return names


def print_node(node: Node, names: dict[Value, str]) -> str:
    """One node as text: ``y: f32[4] = tanh(x)``."""
    left = ", ".join(f"{names[v]}: {v.type}" for v in node.outputs)
    return f"{left} = {node.op}({', '.join(names[v] for v in node.inputs)})"


def print_graph(
    graph: Graph,
    *,
    sources: bool = False,
    told: Mapping[Value, str] | None = None,
    names: dict[Value, str] | None = None,
) -> str:
    """The graph as text: on one line when it fits, else a line per node.

    ``sources`` appends the user's lines and modules; ``told`` says more of inputs, in lines of their own; ``names`` are
    those of another graph that the values are from.
    """
    names = names_of(graph) if names is None else names
    head, *body, tail, end = print_lines(graph, names)
    one_line = " ".join([head, *body, tail, end])
    if len(one_line) <= _LINE and not sources:
        return one_line
    if sources:
        body = [f"{text}  # {node.source.described()}" for text, node in zip(body, graph.nodes, strict=True)]
    inputs = [f"# {names[v]} is {told[v]}" for v in graph.inputs if v in told] if told else []
    return "\n".join([head, *(f"  {line}" for line in [*inputs, *body, tail]), end])


def print_lines(graph: Graph, names: dict[Value, str]) -> list[str]:
    """The graph's text in lines: the inputs, a line per node, the outputs, the end."""
    head = "(" + ", ".join(f"{names[v]}: {v.type}" for v in graph.inputs) + ") {"
    body = [print_node(node, names) + ";" for node in graph.nodes]
    return [head, *body, "return " + ", ".join(names[v] for v in graph.outputs), "}"]
