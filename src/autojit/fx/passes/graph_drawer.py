"""A graph as a picture: ``FxGraphDrawer(module, name).get_dot_graph().write_svg("model.svg")``."""

from __future__ import annotations

from typing import Any

from autojit.core.errors import UsageError
from autojit.fx.graph_module import GraphModule
from autojit.fx.node import Node, qualified_name

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": "AliceBlue", "get_attr": "LemonChiffon1", "call_module": "LemonChiffon1", "output": "PowderBlue",
    "call_function": "GreenYellow", "call_method": "Khaki1",
}  # fmt: skip


class FxGraphDrawer:
    """Draws a traced module with pydot, which must be installed.

    Args:
        name: the picture's.
        ignore_getattr: leave out parameters and buffers.
        ignore_parameters_and_buffers: say nothing of what modules have.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
    ) -> None:
        self.graph_module, self.name = graph_module, name
        self.ignore_getattr, self.ignore_parameters_and_buffers = ignore_getattr, ignore_parameters_and_buffers

    def get_dot_graph(self) -> Any:
        """The picture, as a ``pydot.Dot``.

        Raises:
            RuntimeError: pydot is not installed.
        """
        try:
            import pydot
        except ImportError:
            raise UsageError(
                "FXGraphDrawer requires the pydot package to be installed", fix="pip install pydot"
            ) from None
        picture = pydot.Dot(self.name, rankdir="TB")
        nodes = [n for n in self.graph_module.graph.nodes if not (self.ignore_getattr and n.op == "get_attr")]
        for node in nodes:
            picture.add_node(
                pydot.Node(node.name, label=f'"{self.label(node)}"', shape="record", style='"filled,rounded"',
                           fillcolor=_COLORS[node.op], fontcolor="#000000")
            )  # fmt: skip
        for node in nodes:
            for read in node.all_input_nodes:
                if read in nodes:
                    picture.add_edge(pydot.Edge(read.name, node.name))
        return picture

    def label(self, node: Node) -> str:
        """What is written in a node's box: name, kind, target, and shape and dtype where `ShapeProp` noted them."""
        rows = [f"name=%{node.name}", f"op_code={node.op}"]
        if node.op == "call_module":
            module = self.graph_module.get_submodule(str(node.target))
            rows.append(f"{type(module).__name__}({module.extra_repr()})")
            if not self.ignore_parameters_and_buffers:
                named = [*module.named_parameters(), *module.named_buffers()]
                rows += [f"{name}: {tuple(tensor.shape)}" for name, tensor in named]
        elif node.op != "output":
            rows.append(f"target={node.target if isinstance(node.target, str) else qualified_name(node.target)}")
        rows.append(f"num_users={len(node.users)}")
        told = node.meta.get("tensor_meta")
        if told is not None and hasattr(told, "dtype"):
            rows.append(f"dtype={told.dtype}, shape={tuple(told.shape)}")
        return "{" + "|".join(_escaped(row) for row in rows) + "}"


def _escaped(text: str) -> str:
    return "".join(f"\\{letter}" if letter in '"{}|<>' else letter for letter in text)
