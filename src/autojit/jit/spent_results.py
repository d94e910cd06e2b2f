"""Results whose history was used up inside the step: ``loss.backward(); return loss``.

Eager mode hands out a tensor that requires gradients and whose nodes have forgotten what they kept. A compiled step
does the same with one node that leads to the same leaves and raises the same error when a gradient comes by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autojit.tensor.node import Edge, Hooks, Node
from autojit.tensor.saved import freed_error


class SpentNode(Node):
    """What is left of a history that ``backward`` has freed.

    A step's results share it, so it keeps no hooks: they would run for none but the error that follows.
    """

    def __init__(self, last: Node, ends: Sequence[Edge]) -> None:
        super().__init__()
        self.last_name = last.name()
        self.source = last.source
        self.edges = ends

    def name(self) -> str:
        """The name of the node that eager mode would show."""
        return self.last_name

    def hooks_of_output(self, number: int) -> Any:
        return Hooks()

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        raise freed_error(self)

    def with_ends(self, more: Iterable[Edge]) -> SpentNode:
        """The same for a call with leaves of its own among the arguments."""
        return SpentNode(self, [*filter(None, self.edges), *more])
