"""What holds for the running thread: gradient mode, the active trace; and for the process: the guard epoch."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from autojit.core.ports import Trace


class State(threading.local):
    """Thread-local switches.

    ``quiet`` is a context in which NumPy keeps silent about floating-point events; running an eager rule in it costs
    30 ns where ``np.errstate`` costs 1000, and leaves the user's own error state alone. Each thread's switches are in
    ``state.__dict__`` of that thread, which the eager path fetches once per op.
    """

    grad_enabled: bool
    inference: bool
    trace: Trace | None
    anomaly: bool
    anomaly_check_nan: bool
    recording_hooks: Any  # the stack of saved-tensor hooks, or None

    def __init__(self) -> None:
        self.grad_enabled = True
        self.inference = False
        self.trace = None
        self.anomaly = False
        self.anomaly_check_nan = True
        self.recording_hooks = None
        self.quiet = contextvars.Context()
        self.quiet.run(np.seterr, all="ignore")
        self.run = self.quiet.run


state = State()

guard_epoch = np.zeros(1, np.int64)
"""Counts changes of anything a trace may have baked in; native code compares it by address."""


def bump_guard_epoch() -> None:
    """Say that Python state which a trace may have read has changed."""
    guard_epoch[0] += 1


def is_tracing() -> bool:
    """Whether this thread is capturing a step."""
    return state.trace is not None


@contextmanager
def outside_trace() -> Iterator[None]:
    """Suspend the active capture: ops compute at once, factories give concrete tensors."""
    trace, state.trace = state.trace, None
    try:
        yield
    finally:
        state.trace = trace


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record (or do not record) the history of ops inside."""
    before, state.grad_enabled = state.grad_enabled, enabled
    try:
        yield
    finally:
        state.grad_enabled = before


def quietly(function: Any, *arguments: Any) -> Any:
    """Call with NumPy's floating-point warnings off, also from within an eager rule."""
    try:
        return state.quiet.run(function, *arguments)
    except RuntimeError as error:
        if "cannot enter context" not in str(error):
            raise
    with np.errstate(all="ignore"):
        return function(*arguments)
