"""Storage and View: what tensors that alias each other share.

A Storage is made only when it is needed (a view, an in-place change, a saved result), so a plain tensor costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from autojit.core.device_array import Unreadable
from autojit.core.errors import UnsupportedError
from autojit.core.source import UNKNOWN, Place, SourceLocation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from autojit.ir.graph import Value
    from autojit.ir.op import Op
    from autojit.tensor.node import Node
    from autojit.tensor.tensor import Tensor


# the ``creation`` of a View: where it was made, which says whether a write through it may be recorded
NORMAL = ""
NO_GRAD = "no_grad"
INFERENCE = "inference"
MULTIPLE_VIEWS = "multiple views"  # by a function that returns several views
CUSTOM_FUNCTION = "custom function"


class NotInMemoryError(UnsupportedError, AttributeError):
    """What is asked of an array that a sparse tensor does not have."""


class ElsewhereArray(Unreadable):
    """Stands where a tensor has its NumPy array when the elements are kept in another way (sparse tensors).

    It tells shape and dtype and refuses to be computed with, so that an eager rule fails and dispatch takes over.
    """

    __slots__ = ("dtype", "shape")
    strides = ()

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getattr__(self, name: str) -> Any:
        raise NotInMemoryError(
            "this is not implemented for sparse tensors, whose elements are not kept in one array",
            {"shape": self.shape, "dtype": self.dtype},
            "convert to dense first: x.to_dense()",
        )

    def _refusal(self) -> str:
        return "the elements are not kept in an array; convert with to_dense()"


class Storage:
    """Memory shared by a tensor, its views and its detached copies.

    ``array`` is the root NumPy array (None for a traced root); ``value`` the root's present IR value (traced roots
    only); ``version`` counts in-place changes; ``changed_at`` is the user's line of the last one. ``changes`` counts
    those that a version does not: whoever remembers what the memory held asks it; those through ``x.data`` count for
    ``x`` as well, the storage's ``origin``. ``inference`` says that it was made in inference mode, so that its changes
    need not be noticed by anybody. ``writers``, where native steps write it: which do (`jit.versions`).
    """

    __slots__ = (
        "__weakref__", "array", "change", "changed_by", "changes", "inference", "origin", "value", "version",
        "writers",
    )  # fmt: skip

    def __init__(self, array: NDArray[Any] | None, value: Value | None) -> None:
        self.array = array
        self.value = value
        self.version = 0
        self.changes = 0
        self.inference = False
        self.origin: Storage | None = None
        self.writers: Any
        self.change: Place | SourceLocation = UNKNOWN  # what ``changed_at`` is made of
        self.changed_by = ""

    @property
    def changed_at(self) -> SourceLocation:
        """The user's line of the last change."""
        place = self.change
        if type(place) is tuple:
            place = self.change = SourceLocation(*place)
        return cast("SourceLocation", place)

    @changed_at.setter
    def changed_at(self, place: SourceLocation) -> None:
        self.change = place

    def bump(self, op: str, source: Place | SourceLocation) -> None:
        """Count an in-place change made by ``op``."""
        self.version += 1
        self.changes += 1
        if self.origin is not None:
            self.origin.changes += 1
        self.changed_by = op
        self.change = source

    @property
    def memory(self) -> Storage:
        """What is the same for two storages exactly if they are the same memory; traced roots only."""
        return self

    @property
    def counter(self) -> Storage:
        """The storage that counts the changes of this one."""
        return self


class SameMemory(Storage):
    """The memory of another storage under a version counter of its own, or under that of a third storage.

    ``x.data`` of a traced tensor needs the one; ``x.data = y`` the other, by which ``x`` counts on whatever memory it
    looks at. It refers to the third itself, however often ``x`` has been given memory.
    """

    __slots__ = ("_counter", "_memory")

    def __init__(self, memory: Storage, counter: Storage | None = None) -> None:
        self._memory = memory.memory
        self._counter = None if counter is None else counter.counter
        self.array = memory.array
        if counter is None:
            self.version = 0
        self.inference = memory.inference
        self.origin = None
        self.changed_at, self.changed_by = UNKNOWN, ""

    @property
    def memory(self) -> Storage:
        return self._memory

    @property
    def counter(self) -> Storage:
        return self if self._counter is None else self._counter

    @property
    def value(self) -> Value | None:
        return self._memory.value

    @value.setter
    def value(self, value: Value | None) -> None:
        self._memory.value = value

    @property
    def changes(self) -> int:
        return self._memory.changes

    @changes.setter
    def changes(self, changes: int) -> None:
        self._memory.changes = changes

    @property
    def version(self) -> int:
        counter = self._counter
        return _own_version.__get__(self) if counter is None else counter.version

    @version.setter
    def version(self, version: int) -> None:
        if self._counter is None:
            _own_version.__set__(self, version)
        else:
            self._counter.version = version


_own_version: Any = Storage.__dict__["version"]


class View:
    """How a tensor looks at its storage: the chain of view ops from ``base``, or without a base from the root.

    ``base`` is the tensor whose history follows writes through the view; None for a detached alias, whose writes
    change the memory but no history. ``base_chain`` leads from the root to the base as the view knew it: a base may
    become a view of itself later (``transpose_``). ``base_fn`` is the grad_fn of the base for which the view's own
    holds; ``value_changes`` the storage's ``changes`` for which its IR value holds. ``creation`` says where the view
    was made, ``version`` at which version of the storage.
    """

    __slots__ = ("base", "base_chain", "base_fn", "chain", "creation", "value_changes", "version")
    chain: tuple[Op, ...]

    def __init__(
        self, base: Tensor | None, chain: tuple[Op, ...], base_fn: Node | None, storage: Storage | None
    ) -> None:
        self.base = base
        self.base_chain: tuple[Op, ...] = () if base is None or base._view is None else base._view.chain
        self.chain = chain
        self.base_fn = base_fn
        self.value_changes = 0 if storage is None else storage.changes
        self.creation = NORMAL
        self.version = 0 if storage is None else storage.version


INFERENCE_VIEW = View(None, (), None, None)
"""The ``_view`` of every concrete tensor that was made in inference mode and is not a view: it shows the whole root. It
marks the tensor, and keeps it off the shortest ways of recording."""
INFERENCE_VIEW.creation = INFERENCE
