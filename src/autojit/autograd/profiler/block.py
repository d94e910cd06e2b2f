"""Block: what ``profile`` and the ``emit_*`` managers share: one observer of this thread from entry to exit."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Self

from autojit.autograd.profiler.observer import Observer
from autojit.core.errors import UsageError

if TYPE_CHECKING:
    from autojit.autograd.profiler.ranges import Ranges
    from autojit.autograd.profiler.recorder import Recorder


class ObservedBlock(abc.ABC):
    """Context manager that tells a sink what this thread does inside; it is entered once.

    ``what`` is its name in messages; with ``enabled`` False it does nothing.
    """

    what: str
    enabled: bool
    _observer: Observer | None = None
    _was_entered = False

    @abc.abstractmethod
    def _open(self) -> Recorder | Ranges:
        """The sink for this block."""

    @abc.abstractmethod
    def _close(self) -> None:
        """The block has ended; nothing is reported any more."""

    def __enter__(self) -> Self:
        if not self.enabled:
            return self
        if self._was_entered:
            raise UsageError(f"{self.what} context manager is not reentrant", {}, "make a new one for every block")
        observer = Observer(self._open(), self.what)
        observer.install()
        self._was_entered = True
        self._observer = observer
        return self

    def __exit__(self, *exception: object) -> None:
        if self._observer is None:
            return
        self._observer.remove()
        self._observer = None
        self._close()
