"""Compiling beside the calling thread: helpers, and what will be needed soon, begun once per process.

Helpers are daemons, so that a process whose own daemon threads compile for ever can end; what LLVM is in the middle of
is waited for (`core.undivided_work`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from autojit.core.errors import CompileError
from autojit.core.late_interrupts import late_interrupts
from autojit.core.locks import new_lock
from autojit.core.undivided_work import undivided
from autojit.runtime.cores import available_cores

Item = TypeVar("Item")
Made = TypeVar("Made")

_lock = new_lock()
_begun: dict[str, tuple[threading.Thread, Any]] = {}  # with a lock for those who wait for it


def helper(work: Callable[[], object], name: str) -> threading.Thread | None:
    """A thread that works, or None where none can be had (the interpreter ends): the caller works itself then."""

    def run() -> None:
        undivided.let_in()  # whoever waits for the helper may be inside
        work()

    thread = threading.Thread(target=run, name=f"autojit {name}", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def on_all_cores(work: Callable[[Item], Made], items: Sequence[Item], name: str) -> list[Made]:
    """What work makes of items, begun in their order, on as many threads as there are cores.

    Raises:
        what the work of an item raises: a CompileError when all is done, anything else as soon as the rest allows.
    """
    waiting = deque(enumerate(items))
    results: dict[int, Made | BaseException] = {}

    def work_off() -> None:
        while waiting:
            try:
                index, item = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                late_interrupts.poll()
                results[index] = work(item)
            except CompileError as error:
                results[index] = error
            except BaseException as error:
                results[index] = error
                waiting.clear()  # who is stopped stops all

    helpers = [helper(work_off, name) for _ in range(min(available_cores(), len(items)) - 1)]
    work_off()
    for thread in helpers:
        if thread is not None:
            thread.join()
    made: list[Made] = []
    errors = [result for result in results.values() if isinstance(result, BaseException)]
    if errors:
        raise errors[0]
    for _, result in sorted(results.items()):
        assert not isinstance(result, BaseException)
        made.append(result)
    return made


def begin(what: str, compile: Callable[[], object]) -> None:
    """Start to compile, if this has not been begun and a second core can do it."""
    with _lock:
        if what in _begun or available_cores() < 2:
            return
        thread = helper(lambda: _run(compile), what)
        if thread is not None:
            _begun[what] = thread, new_lock()


def wait_for(what: str) -> None:
    """Until it has ended, if it has been begun.

    One thread after the other: Python's own ``join`` may raise an AssertionError where another thread leaves it, too.
    """
    if what in _begun:
        thread, waiting = _begun[what]
        with waiting:
            thread.join()


def _run(compile: Callable[[], object]) -> None:
    try:
        compile()
    except CompileError:
        return  # the step that needs the result compiles it again, and raises this where the user sees it
