"""The language: typed SSA graphs and what every op must know.

Grammar of the text form::

    graph  := '(' [param {',' param}] ')' '{' {node ';'} 'return' [name {',' name}] '}'
    param  := name ':' type
    type   := dtype '[' [extent {',' extent}] ']' ['@' device]          f32[64, 784]
    node   := param {',' param} '=' op ['[' field {',' field} ']'] '(' [name {',' name}] ')'
    field  := name '=' (literal | graph | graphs)                       axes=(0,), dtype=f32, body=(x: f32[]) {return x}
    graphs := '(' [graph {',' graph}] ')'
"""

from typing import TYPE_CHECKING

from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ir.op import Op, Operand, Operands, bind, not_differentiable
from autojit.ir.printing import print_graph

if TYPE_CHECKING:
    from autojit.ir.interpreter import evaluate
    from autojit.ir.text import parse_graph
    from autojit.ir.verifier import verify

__getattr__ = _LazyNames(
    __name__,
    {
        "evaluate": "autojit.ir.interpreter",
        "parse_graph": "autojit.ir.text",
        "verify": "autojit.ir.verifier",
    },
)

__all__ = [
    "Graph", "GraphBuilder", "Node", "Op", "Operand", "Operands", "Tracer", "Value",
    "bind", "evaluate", "not_differentiable", "parse_graph", "print_graph", "replace", "verify",
]  # fmt: skip
