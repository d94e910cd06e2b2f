"""torch.fx: the forward of a module as a graph that Python programs read, change and write back as Python.

``symbolic_trace`` makes a `GraphModule` by running a module once with proxies. To make steps fast, compile them with
``aj.jit``: it needs no such graph, and a `GraphModule` in a step is captured like every other module.

Example:
    >>> import autojit as aj
    >>> traced = aj.fx.symbolic_trace(aj.nn.Sequential(aj.nn.Linear(2, 2), aj.nn.ReLU()))
    >>> [node.op for node in traced.graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
"""

from autojit.fx._symbolic_trace import (
    PH,
    PHBase,
    PHWithMeta,
    ProxyableClassMeta,
    Tracer,
    symbolic_trace,
    wrap,
)
from autojit.fx.code_generators import CodeGen
from autojit.fx.graph import Graph
from autojit.fx.graph_module import GraphModule
from autojit.fx.interpreter import Interpreter, Transformer
from autojit.fx.node import Node, has_side_effect, map_arg
from autojit.fx.passes import shape_prop as _shape_prop  # noqa: F401
from autojit.fx.proxy import Proxy
from autojit.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PHBase", "PHWithMeta", "Proxy",
    "ProxyableClassMeta", "Tracer", "Transformer", "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace",
    "wrap",
]  # fmt: skip
