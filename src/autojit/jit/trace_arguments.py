"""What a trace knows of the arguments of a step, and of tensors outside that it must not change."""

from __future__ import annotations

from autojit.jit.given_memory import TraceGiven
from autojit.jit.versions import COUNTING
from autojit.tensor.storage import Storage
from autojit.tensor.tensor import Tensor


class TraceArguments(TraceGiven):
    """The part of a trace that knows what it is given, whose forms and versions it moves on, and who may not ask."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[Tensor] = []  # what stands for the tensors that the step is given
        self.gradients_given: list[Tensor] = []  # and for their gradients
        self.flags: list[tuple[Tensor, bool]] = []  # leaves outside, and whether they required gradients
        self.switched_on: list[Tensor] = []  # those that require gradients from somewhere in the step on
        self.refreshed: dict[int, Tensor] = {}  # bases of views that got new histories with them, by id
        self.unrecorded: list[Tensor] = []  # arguments whose form is another than their history shows

    def is_given(self, t: Tensor) -> bool:
        return any(t is x for x in (*self.arguments, *self.gradients_given))

    def note_flag(self, t: Tensor, flag: bool, wanted: bool) -> None:
        """The step tells a leaf outside whether it requires gradients: that it did, or did not, is a guard."""
        if wanted and not flag:
            self.switched_on.append(t)
        if not any(known is t for known, _ in self.flags):
            self.flags.append((t, flag))

    # -- forms and versions

    def note_refreshed(self, base: Tensor) -> None:
        if base._array is None:
            self.refreshed[id(base)] = base

    def note_form(self, t: Tensor) -> bool:
        is_argument = any(t is x for x in self.arguments)
        if is_argument:
            self.unrecorded.append(t)
        return is_argument

    def asked_version(self, t: Tensor) -> None:
        """The version of a tensor from outside is another one in other calls of the step: they run line by line."""
        is_given = any(t is x or (x._storage is not None and t._storage is x._storage) for x in self.arguments)
        if is_given or t._array is not None:
            self.cannot("the step asks for the version of a tensor from outside")

    def moved(self) -> list[tuple[Storage, int]]:
        """The storages outside whose versions the function has moved on, and by how much."""
        known = [(before.target, before.slots[0]) for before in self._before.values()]
        return [(t, t.version - version) for t, version in known if isinstance(t, Storage) and t.version != version]

    def changed_unseen(self) -> list[tuple[Storage, int]]:
        """The storages outside that the function has changed as no version shows (``x.data``), and how often."""
        known = [(before.target, *before.slots[:2]) for before in self._before.values()]
        found = [(t, t.changes - changes - t.version + version) for t, version, changes in known if type(t) in COUNTING]
        return [(t, n) for t, n in found if n > 0]
