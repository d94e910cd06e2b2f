"""``split_module``: a graph as one of submodules, each with the nodes that a function of the user's assigns to it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from autojit.core.errors import UsageError
from autojit.fx.graph import Graph
from autojit.fx.graph_module import GraphModule
from autojit.fx.node import Node, map_arg
from autojit.nn import Module

__all__ = ["Partition", "split_module"]

_OF_WHOLE = ("placeholder", "get_attr", "output")


class Partition:
    """The nodes of one submodule, and the nodes of others that it reads and that read it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.reads: dict[str, None] = {}  # the partitions

    def __repr__(self) -> str:
        return f"name: {self.name}, nodes: {self.nodes}, inputs: {[*self.inputs]}, outputs: {[*self.outputs]}"


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], int | str],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
) -> GraphModule:
    """A module that calls ``submod_0``, ``submod_1``, ... in the place of a graph's nodes.

    Args:
        m: a traced module.
        root_m: the module that has its parameters and submodules.
        split_callback: of a node, the number or name of the part that it goes to.
        qualname_map: gets the old path of every submodule by the new one.
        keep_original_order: let the parts run in the order in which the graph first enters them.
        keep_original_node_name: call nodes in parts as in the graph.

    Raises:
        RuntimeError: two parts need each other.

    Example:
        >>> import autojit as aj
        >>> from autojit.fx.passes.split_module import split_module
        >>> model = aj.nn.Sequential(aj.nn.Linear(2, 3), aj.nn.ReLU(), aj.nn.Linear(3, 1))
        >>> traced = aj.fx.symbolic_trace(model)
        >>> parts = split_module(traced, model, lambda node: int(node.target == "2"))
        >>> print(parts.code.strip())
        def forward(self, input):
            input_1 = input
            submod_0 = self.submod_0(input_1);  input_1 = None
            submod_1 = self.submod_1(submod_0);  submod_0 = None
            return submod_1
    """
    parts = _partitions(m.graph, split_callback)
    whole, values = Graph(), {}
    root: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            values[node] = whole.node_copy(node)
            if node.op == "get_attr":
                root[str(node.target)] = _found(root_m, str(node.target))
    for part in [*parts.values()] if keep_original_order else _in_order(parts):
        names = qualname_map if qualname_map is not None else {}
        root[part.submod_name] = _submodule(part, root_m, names, bool(keep_original_node_name))
        given = tuple(values[node] for node in part.inputs if node.op != "get_attr")
        made = whole.call_module(part.submod_name, given)
        for place, node in enumerate(part.outputs):
            values[node] = made if len(part.outputs) == 1 else whole.call_function(operator.getitem, (made, place))
    result = m.graph.output_node()
    whole.output(map_arg(result.args[0], lambda read: values[read]), result.type)
    for node in whole.find_nodes(op="get_attr"):
        if not node.users:
            whole.erase_node(node)
    whole.set_codegen(m.graph._codegen)
    return GraphModule(root, whole)


def _partitions(graph: Graph, split_callback: Callable[[Node], int | str]) -> dict[str, Partition]:
    parts: dict[str, Partition] = {}
    of_node: dict[Node, Partition] = {}
    for node in graph.nodes:
        own = None
        if node.op not in _OF_WHOLE:
            name = str(split_callback(node))
            own = of_node[node] = parts.setdefault(name, Partition(name))
            own.nodes.append(node)
        for read in node.all_input_nodes:
            other = of_node.get(read)
            if other is own or (own is None and node.op != "output"):
                continue
            if own is not None:
                own.inputs.setdefault(read)
            if other is not None:
                other.outputs.setdefault(read)
                if own is not None:
                    own.reads.setdefault(other.name)
    return parts


def _in_order(parts: dict[str, Partition]) -> list[Partition]:
    """The parts, each after those that it reads, otherwise in the order of the graph."""
    done: dict[str, Partition] = {}
    while len(done) < len(parts):
        ready = next(
            (part for name, part in parts.items() if name not in done and part.reads.keys() <= done.keys()), None
        )
        if ready is None:
            raise UsageError("cycle exists between partitions!", {"parts": [n for n in parts if n not in done]},
                             "assign the nodes so that no two parts need each other's results")  # fmt: skip
        done[ready.name] = ready
    return [*done.values()]


def _submodule(part: Partition, root_m: Module, names: dict[str, str], keeps_names: bool) -> GraphModule:
    graph, values = Graph(), {}
    root: dict[str, Any] = {}
    for node in part.inputs:
        if node.op == "get_attr":
            values[node] = graph.get_attr(str(node.target))
            root[str(node.target)] = _found(root_m, str(node.target))
        else:
            values[node] = graph.placeholder(node.name, node.type)
        values[node].meta = node.meta.copy()
    for node in part.nodes:
        made = values[node] = graph.create_node(
            node.op,
            node.target,
            map_arg(node.args, lambda read: values[read]),
            map_arg(node.kwargs, lambda read: values[read]),
            node.name if keeps_names else None,
            node.type,
        )
        made.meta = node.meta.copy()
        if node.op == "call_module":
            made.target = str(node.target).replace(".", "_")
            root[made.target] = _found(root_m, str(node.target))
            names[f"{part.submod_name}.{made.target}"] = str(node.target)
    results = tuple(values[node] for node in part.outputs)
    graph.output(results[0] if len(results) == 1 else results)
    return GraphModule(root, graph)


def _found(root: Module, path: str) -> Any:
    found: Any = root
    for name in path.split("."):
        found = getattr(found, name)
    return found
