"""Calls that MPI works on while the program goes on, and their buffers: those live until MPI is done with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

MESSAGES = ("isend", "irecv")
_kept: list[Any] = []  # buffers that MPI may still read and write, of groups that were left


class Unwatched:
    """What was begun in a group and nobody waits for any more."""

    def __init__(self) -> None:
        self._calls: deque[tuple[str, Any, Any]] = deque()

    def add(self, name: str, request: Any, buffers: Any) -> None:
        """A call whose handle is gone; on any thread."""
        self._calls.append((name, request, buffers))

    def let_go(self, call: Callable[..., Any]) -> None:
        """Forget the buffers of what is done; ``call(name, function)`` is the way to MPI."""
        for _ in range(len(self._calls)):
            name, request, buffers = self._calls.popleft()
            if not call(name, request.Test, is_look=True):
                self.add(name, request, buffers)

    def end(self) -> None:
        """Wait for collectives. Messages may have nobody on the other side: their buffers stay."""
        for name, request, _ in self._calls:
            if name not in MESSAGES:
                request.Wait()
        self.keep()

    def keep(self) -> None:
        """Let all buffers stay as long as the process."""
        _kept.append(self._calls)


class Pending:
    """A call that was begun."""

    is_done = False

    def __init__(self, owner: Any, name: str, request: Any, buffers: Sequence[Any]) -> None:
        self.owner, self.name, self.request, self.buffers = owner, name, request, buffers
        self.source: int | None = None

    def test(self) -> bool:
        """Whether it is done; drives it on."""
        self.is_done = bool(self.owner.call(self.name, self.request.Test, is_look=True))
        return self.is_done

    def wait(self) -> None:
        """Return when it is done."""
        status = self.owner.MPI.Status()
        self.owner.call(self.name, self.request.Wait, status)
        self.is_done, self.source = True, status.Get_source()

    def __del__(self) -> None:
        if not self.is_done:
            self.owner.unwatched.add(self.name, self.request, self.buffers)
