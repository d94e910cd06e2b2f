"""What a trace notes: memory from outside, gradients of leaves, values that Python asked for; what was before."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from autojit.core.records import record
from autojit.core.source import SourceLocation
from autojit.ir.graph import Value
from autojit.jit.spent_results import SpentNode
from autojit.tensor.storage import INFERENCE_VIEW, Storage
from autojit.tensor.tensor import Tensor, storage_chain, wrap


@record(eq=False, frozen=False)
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
    met: list[Storage] = field(default_factory=list)  # by which it was reached: ``x.data`` counts changes for itself
    shown: Tensor | None = None  # the whole of the storage, where ``owner`` leads to no tensor that shows it

    def meet(self, storage: Storage) -> None:
        """The memory is met by way of this storage."""
        if all(storage is not other for other in self.met):
            self.met.append(storage)

    def note_change(self, storage: Storage) -> None:
        """The memory has changed by way of one storage: what others remember of it no longer holds."""
        for other in self.met:
            if other is not storage:
                other.changes += 1

    def root_owner(self) -> Tensor:
        """A tensor that shows the whole storage, connected to the caller's history where there is one."""
        owner = self.owner
        if owner is not None and owner._view is not None and owner._view.base is not None:
            owner = owner._view.base
        if owner is not None and owner._array is not None and not storage_chain(owner):
            return owner  # else a view that was detached, or a view of one: the base of its views is a part, too
        shown = self.shown
        if shown is None or shown._storage is not self.storage or shown._array is not self.array:
            shown = self.shown = wrap(self.array)
            shown._storage, shown._view = self.storage, INFERENCE_VIEW if self.storage.inference else None
        return shown

    @property
    def is_modified(self) -> bool:
        return self.value is not self.input


@record(eq=False, frozen=False)
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


@record(eq=False)
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
        bits: bytes = self.outcome.tobytes()
        return bits


@record(eq=False, frozen=False)
class Before:
    """What changes of an object as they were before the capture."""

    target: Any  # a storage or a tensor
    slots: tuple[Any, ...]

    @staticmethod
    def of_storage(storage: Storage) -> Before:
        return Before(storage, (storage.version, storage.changes, storage.changed_at, storage.changed_by))

    @staticmethod
    def of_tensor(t: Tensor) -> Before:
        return Before(t, (t._requires_grad, t._grad_fn, t._output_nr))

    def exchange(self) -> Before:
        """Put the slots back; what they held is returned."""
        target = self.target
        if isinstance(target, Storage):
            after = self.of_storage(target)
            target.version, target.changes, target.changed_at, target.changed_by = self.slots
            return after
        after = self.of_tensor(target)
        if target._grad_fn is not self.slots[1]:
            # else its history did not move; ``requires_grad_`` inside the step is the user's own doing
            target._requires_grad, target._grad_fn, target._output_nr = self.slots
        return after
