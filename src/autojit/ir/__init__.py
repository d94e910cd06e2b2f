"""The language: typed SSA graphs and what every op must know.

Grammar of the text form::

    graph  := '(' [param {',' param}] ')' '{' {node ';'} 'return' [name {',' name}] '}'
    param  := name ':' type
    type   := dtype '[' [extent {',' extent}] ']' ['@' device]          f32[64, 784]
    node   := param {',' param} '=' op ['[' field {',' field} ']'] '(' [name {',' name}] ')'
    field  := name '=' (literal | graph | graphs)                       axes=(0,), dtype=f32, body=(x: f32[]) {return x}
    graphs := '(' [graph {',' graph}] ')'
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from autojit.core.undivided import undivided as _undivided
from autojit.ir.builder import GraphBuilder, Tracer
from autojit.ir.graph import Graph, Node, Value, replace
from autojit.ir.op import Op, Operand, Operands, bind, not_differentiable

if TYPE_CHECKING:
    from autojit.ir.interpreter import evaluate
    from autojit.ir.text import parse_graph, print_graph
    from autojit.ir.verifier import verify

_LATER = {"evaluate": "interpreter", "parse_graph": "text", "print_graph": "text", "verify": "verifier"}


def __getattr__(name: str) -> _Any:
    """Import the interpreter, the text form and the verifier when they are first used."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _undivided:
        found = globals()[name] = getattr(_import_module(f"{__name__}.{_LATER[name]}"), name)
    return found


__all__ = [
    "Graph", "GraphBuilder", "Node", "Op", "Operand", "Operands", "Tracer", "Value",
    "bind", "evaluate", "not_differentiable", "parse_graph", "print_graph", "replace", "verify",
]  # fmt: skip
