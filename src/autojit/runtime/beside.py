"""Compiling beside the calling thread what will be needed soon, begun once per process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autojit.core.errors import CompileError
from autojit.core.locks import new_lock
from autojit.runtime.cores import available_cores

_lock = new_lock()
_begun: dict[str, threading.Thread] = {}


def begin(what: str, compile: Callable[[], object]) -> None:
    """Start to compile, if this has not been begun and a second core can do it."""
    with _lock:
        if what in _begun or available_cores() < 2:
            return
        _begun[what] = threading.Thread(target=_run, args=(compile,), name=f"autojit {what}")
        _begun[what].start()


def wait_for(what: str) -> None:
    """Until it has ended, if it has been begun."""
    thread = _begun.get(what)
    if thread is not None:
        thread.join()


def _run(compile: Callable[[], object]) -> None:
    try:
        compile()
    except CompileError:
        return  # the step that needs the result compiles it again, and raises this where the user sees it
