"""Results whose history is of no use to the caller: ``loss.backward(); return loss``.

Where ``backward`` has used it up inside the step, eager mode hands out a tensor that requires gradients and whose nodes
have forgotten what they kept. A compiled step does the same with one node that leads to the same leaves and raises the
same error when a gradient comes by. Where the history ends at leaves that the step has made, gradients go nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autojit.core.errors import DifferentiationError
from autojit.history.saved import freed_error
from autojit.tensor.node import Edge, Hooks, Node


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


class InnerNode(SpentNode):
    """The history of a result that depends on nothing but leaves which the step has made.

    ``is_seen``: such a leaf is a result, too; its gradient would have to be found through the compiled step.
    """

    def __init__(self, last: Node, is_seen: bool) -> None:
        super().__init__(last, ())
        self.is_seen = is_seen

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        if not self.is_seen:
            return ()
        raise DifferentiationError(
            "a result of a compiled step is differentiated by a tensor that the step has made",
            {"op": self.name(), "recorded": self.source},
            "make the leaf outside and pass it as an argument, or differentiate inside the step",
        )
