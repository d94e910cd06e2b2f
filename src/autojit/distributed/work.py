"""What a collective with ``async_op=True`` returns: a handle to wait for."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from autojit.core import communicator
from autojit.core.futures import Future

__all__ = ["Future", "Work"]


def begun(collective: Callable[..., Any], is_async: bool, *arguments: Any) -> Any:
    """Call a communicator's collective; what is to be waited for, if it can be left to go on, else None."""
    return communicator.begun(collective, *arguments) if is_async else collective(*arguments)


class WorkFuture(Future[Any]):
    """What ``Work.get_future`` gives: the result, when it is there. Whoever waits for it drives the work on."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def wait(self) -> Any:
        """The result; waits for it."""
        self._work.wait()
        return self.value()

    def done(self) -> bool:
        """Whether it is there."""
        return self._work.is_completed()

    def value(self) -> Any:
        """The result: tensors that the collective has filled."""
        return self._work.result()

    def then(self, callback: Callable[[Any], Any]) -> Future[Any]:
        """The future of what ``callback`` makes of this one: computed when it is waited for."""
        return _Then(self, callback)

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Wait, and call ``callback`` with this future: nothing but a waiting program drives the work on."""
        self.wait()
        callback(self)

    def set_result(self, result: Any) -> None:
        """Always RuntimeError: the collective sets it."""
        raise RuntimeError("Future of a collective: the collective sets its result")

    def set_exception(self, result: BaseException) -> None:
        """Always RuntimeError: the collective sets it."""
        raise RuntimeError("Future of a collective: the collective sets its result")


class _Then(WorkFuture):
    def __init__(self, before: WorkFuture, callback: Callable[[Any], Any]) -> None:
        super().__init__(before._work)
        self._before, self._callback = before, callback
        self._made: list[Any] = []  # what the callback has made, when it was called

    def wait(self) -> Any:
        self._before.wait()
        return self.value()

    def value(self) -> Any:
        if not self._made:
            self._made.append(self._callback(self._before))
        return self._made[0]


class Recorded:
    """In a captured step, what a step begins when it runs; whoever waits for it records that."""

    source = None

    def test(self) -> bool:
        """Never known while a step is captured."""
        return False

    def wait(self) -> None:
        """Recorded by whoever calls it."""


class Work:
    """A collective that was begun.

    Args:
        pending: what the engine works on; None: it is done.
        finish: called once, when the engine is done: makes the results visible.
        tensors: the results.
    """

    def __init__(self, pending: Any, finish: Callable[[], None], tensors: Any = ()) -> None:
        self._pending, self._finish, self._tensors = pending, finish, tensors
        self._is_finished = False
        self._error: BaseException | None = None
        self._source = -1
        if pending is None:
            self._end()

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Return when the results are there; True.

        Args:
            timeout: not looked at; the watchdog has that of the group.
        """
        if self._error is not None:
            raise self._error
        if not self._is_finished:
            try:
                self._pending.wait()
            except BaseException as error:
                self._error = error
                raise
            self._source = -1 if self._pending.source is None else self._pending.source
            self._end()
        return True

    def is_completed(self) -> bool:
        """Whether the results are there; drives the engine on."""
        if not self._is_finished and self._error is None and self._pending.test():
            self._end()
        return self._is_finished

    def is_success(self) -> bool:
        """Whether it is done without an error."""
        return self._is_finished

    def exception(self) -> BaseException | None:
        """What `wait` has raised."""
        return self._error

    def result(self) -> Any:
        """The tensors that it fills."""
        return list(self._tensors)

    def source_rank(self) -> int:
        """Which rank sent what was received."""
        return self._source

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def get_future(self) -> WorkFuture:
        """The result, to wait for."""
        return WorkFuture(self)

    def _end(self) -> None:
        self._is_finished = True
        self._finish()
        self._pending = None


class Works(Work):
    """Several collectives that are waited for together."""

    def __init__(self, works: Sequence[Work], tensors: Sequence[Any]) -> None:
        self._works = list(works)
        super().__init__(self, lambda: None, tensors)

    source = None

    def wait(self, timeout: Any = None) -> bool:
        """Return when all are done."""
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)
