"""Storage and View: what tensors that alias each other share.

A Storage is made only when it is needed (a view, an in-place change, a saved result), so a plain tensor costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autojit.core.source import UNKNOWN, SourceLocation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autojit.ir.graph import Value
    from autojit.ir.op import Op
    from autojit.tensor.node import Node
    from autojit.tensor.tensor import Tensor


class Storage:
    """Memory shared by a tensor, its views and its detached copies.

    ``array`` is the root NumPy array (None for a traced root); ``value`` the root's present IR value (traced roots
    only); ``version`` counts in-place changes; ``changed_at`` is the user's line of the last one.
    """

    __slots__ = ("__weakref__", "array", "changed_at", "changed_by", "value", "version")

    def __init__(self, array: NDArray[Any] | None, value: Value | None) -> None:
        self.array = array
        self.value = value
        self.version = 0
        self.changed_at: SourceLocation = UNKNOWN
        self.changed_by = ""

    def bump(self, op: str, source: SourceLocation) -> None:
        """Count an in-place change made by ``op``."""
        self.version += 1
        self.changed_by = op
        self.changed_at = source


class View:
    """How a tensor looks at its storage: the chain of view ops from the root.

    ``base`` is the root tensor whose history follows writes through the view; None for a detached alias, whose writes
    change the memory but no history. ``base_fn`` is the grad_fn of the base for which the view's own holds;
    ``value_version`` the storage version for which its IR value holds. ``creation`` says why a write through the view
    may be forbidden in grad mode ("" when it is allowed).
    """

    __slots__ = ("base", "base_fn", "chain", "creation", "value_version")

    def __init__(self, base: Tensor | None, chain: tuple[Op, ...], base_fn: Node | None, value_version: int) -> None:
        self.base = base
        self.chain = chain
        self.base_fn = base_fn
        self.value_version = value_version
        self.creation = ""
