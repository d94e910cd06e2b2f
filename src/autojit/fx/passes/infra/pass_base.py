"""A pass as an object: what it requires, what it does, and what it ensures."""

from __future__ import annotations

import abc
from typing import NamedTuple

from autojit.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether the pass changed anything."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """Subclasses have ``call``; ``requires`` and ``ensures`` check the module before and after it.

    Example:
        >>> import autojit as aj
        >>> from autojit.fx.passes.infra.pass_base import PassBase, PassResult
        >>> class Smooth(PassBase):
        ...     def call(self, graph_module):
        ...         found = graph_module.graph.find_nodes(op="call_function", target=aj.relu)
        ...         for node in found:
        ...             node.target = aj.tanh
        ...         return PassResult(graph_module, bool(found))
        >>> Smooth()(aj.fx.symbolic_trace(lambda x: aj.relu(x))).modified
        True
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Check, run and check."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """What the pass does."""

    def requires(self, graph_module: GraphModule) -> None:
        """Raises if the module is not such as the pass takes."""
        return

    def ensures(self, graph_module: GraphModule) -> None:
        """Raises if the module is not such as the pass leaves it."""
        return
