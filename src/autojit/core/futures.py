"""Results that may not be there yet: torch's ``Future``, for forked calls, collectives and programs of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from autojit.core.locks import new_condition, new_lock
from autojit.core.user_warnings import warn

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A result, or an exception, that somebody sets once; whoever waits for it gets it.

    Args:
        devices: not looked at: results on a device are ready when they are set.

    Example:
        >>> from autojit.futures import Future
        >>> given = Future()
        >>> doubled = given.then(lambda future: 2 * future.value())
        >>> given.set_result(21)
        >>> doubled.wait()
        42
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        self._changed = new_condition()
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], Any]] = []

    def done(self) -> bool:
        """Whether it is set."""
        return self._is_done

    def wait(self) -> T:
        """The result; waits for it.

        Raises:
            Exception: the one that was set instead.
        """
        with self._changed:
            self._changed.wait_for(self.done)
        return self.value()

    def value(self) -> T:
        """The result of a future that is done.

        Raises:
            RuntimeError: it is not done.
            Exception: the one that was set instead of a result.
        """
        if not self.done():
            raise RuntimeError("Future.value: the future is not done; wait() waits for it")
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def set_result(self, result: T) -> None:
        """Set the result, and call back whoever asked for it.

        Raises:
            RuntimeError: it is done already.
        """
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an exception, which ``wait`` and ``value`` raise.

        Raises:
            RuntimeError: it is done already.
            TypeError: this is no exception.
        """
        if not isinstance(result, BaseException):
            raise TypeError(f"{result!r} is of type {type(result)}, not an Exception.")
        self._set(None, result)

    def then(self, callback: Callable[[Any], Any]) -> Future[Any]:
        """The future of what ``callback`` makes of this one when it is done, or of the exception that it raises."""
        made: Future[Any] = Future()

        def follow(future: Future[Any]) -> None:
            made._fill(lambda: callback(future))

        self.add_done_callback(follow)
        return made

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call ``callback`` with this future when it is done, or now if it is; what it raises becomes a warning, and
        the other callbacks are called.
        """
        with self._changed:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _set(self, result: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._is_done:
                raise RuntimeError("Future can only be marked completed once")
            self._result, self._error, self._is_done = result, error, True
            waiting, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in waiting:
            self._call(callback)

    def _call(self, callback: Callable[[Any], Any]) -> None:
        try:
            callback(self)
        except Exception as error:
            warn(f"Future: got the following error when running the callback: {type(error).__name__}: {error}")

    def _fill(self, call: Callable[[], Any]) -> None:
        """Set what a call returns or raises."""
        try:
            result = call()
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)


def called(call: Callable[[], Any]) -> Future[Any]:
    """The future of a call that is made now."""
    made: Future[Any] = Future()
    made._fill(call)
    return made


def collect_all(futures: list[Future[Any]]) -> Future[Any]:
    """A future of the list itself, done when all of it are.

    Example:
        >>> from autojit.futures import Future, collect_all
        >>> parts = [Future(), Future()]
        >>> together = collect_all(parts)
        >>> parts[1].set_result(2)
        >>> together.done()
        False
        >>> parts[0].set_result(1)
        >>> [part.value() for part in together.wait()]
        [1, 2]
    """
    made: Future[Any] = Future()
    left, lock = len(futures), new_lock()

    def count(future: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            made.set_result(futures)

    if not futures:
        made.set_result(futures)
    for future in futures:
        future.add_done_callback(count)
    return made


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all, in order; waits for them.

    Raises:
        Exception: the first that is a future's instead of a result.

    Example:
        >>> from autojit.futures import Future, wait_all
        >>> parts = [Future(), Future()]
        >>> for part in parts:
        ...     part.set_result("here")
        >>> wait_all(parts)
        ['here', 'here']
    """
    return [future.wait() for future in futures]
