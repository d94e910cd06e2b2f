"""Views that a step records of views that nobody recorded: they have a node, as in eager mode, which leads nowhere."""

from __future__ import annotations

from typing import Any, NamedTuple

from autojit.core.source import here
from autojit.tensor.node import Node, node_type
from autojit.tensor.tensor import Tensor, type_of


class Severed(NamedTuple):
    """What such a view shows: the name of its node, and which of its outputs it is."""

    name: str
    number: int

    def end(self, view: Tensor) -> None:
        """A view taken again after a call, without recording, gets such a node."""
        node = node_type(SeveredNode, self.name)()
        node.edges, node.source = (None,), here(True)
        node.out_metas = [type_of(view)] * (self.number + 1)
        view._requires_grad, view._grad_fn, view._output_nr = True, node, self.number


class SeveredNode(Node):
    """The history of a view of a view without history."""

    __slots__ = ()

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> tuple[None]:
        return (None,)


def severed(leaf: object) -> Severed | None:
    """What a result shows whose history leads nowhere, if it is a view of what nobody recorded; None: it is not."""
    if not isinstance(leaf, Tensor) or leaf._array is not None:
        return None
    view, node = leaf._view, leaf._grad_fn
    if view is None or view.base is None or not view.creation:
        return None
    while node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
        if node is None and leaf._grad_fn is not None:
            return Severed(leaf._grad_fn.name_of(leaf._output_nr), leaf._output_nr)
    return None
