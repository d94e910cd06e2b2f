"""What a trace notes: memory from outside, gradients of leaves, values that Python asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autojit.core.source import SourceLocation
from autojit.ir.graph import Value
from autojit.jit.spent_results import SpentNode
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor, wrap


@dataclass(eq=False)
class StateEntry:
    """A storage reached from outside: its input value and the value it has at this point of the capture."""

    storage: Storage
    array: Any
    input: Value
    value: Value
    source: SourceLocation
    owner: Tensor | None = None
    requires_grad: bool = False
    entered: Tensor | None = None  # where in-place changes gave the root a new history: it with the old one, if any
    left: Tensor | None = None  # and with the new one
    spent: SpentNode | None = None  # or what is left of that, where the step has used it up

    def root_owner(self) -> Tensor:
        """A tensor that shows the whole storage, connected to the caller's history where there is one."""
        owner = self.owner
        if owner is not None and owner._view is not None:
            owner = owner._view.base
        return owner if owner is not None else wrap(self.array)

    @property
    def is_modified(self) -> bool:
        return self.value is not self.input


@dataclass(eq=False)
class GradEntry:
    """``.grad`` of an outside leaf: what it was when first read (``was_read``) and what it is now.

    ``is_kept``: the function hands on the tensor that it read, as a result or as another leaf's gradient.
    """

    leaf: Tensor
    initial: Tensor | None
    was_read: bool
    current: Tensor | None
    is_written: bool = False
    is_kept: bool = False


@dataclass(frozen=True, eq=False)
class Split:
    """Python asked for a value: the capture after this point holds for this outcome only."""

    value: Value
    outcome: Any
    source: SourceLocation
    position: int  # nodes recorded before
    question: tuple[object, ...]  # what tells it from other questions of the same function

    @property
    def key(self) -> bytes:
        """The outcome's bits: what a compiled split compares."""
        return self.outcome.tobytes()  # type: ignore[no-any-return]
