"""The language: typed SSA graphs and what every op must know.

Grammar of the text form::

    graph  := '(' [param {',' param}] ')' '{' {node ';'} 'return' [name {',' name}] '}'
    param  := name ':' type
    type   := dtype '[' [extent {',' extent}] ']' ['@' device]          f32[64, 784]
    node   := param {',' param} '=' op ['[' field {',' field} ']'] '(' [name {',' name}] ')'
    field  := name '=' literal                                          axes=(0,), dtype=f32
"""

from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ir.interpreter import evaluate
from autojit.ir.op import Op, Operand, Operands, bind, not_differentiable
from autojit.ir.text import parse_graph, print_graph
from autojit.ir.verifier import verify

__all__ = [
    "Graph", "GraphBuilder", "Node", "Op", "Operand", "Operands", "Tracer", "Value",
    "bind", "evaluate", "not_differentiable", "parse_graph", "print_graph", "replace", "verify",
]  # fmt: skip
