"""Compiling beside the calling thread: helpers, and what will be needed soon, begun once per process.

Helpers are daemons, so that a process whose own daemon threads compile for ever can end; what LLVM is in the middle of
is waited for (`core.undivided_work`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from autojit.core.errors import CompileError
from autojit.core.locks import new_lock
from autojit.core.undivided_work import undivided
from autojit.runtime.cores import available_cores

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
