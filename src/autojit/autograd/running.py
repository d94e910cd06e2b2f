"""Which backward passes the thread is in, and which node is running: what hooks, ``anomaly`` and ``_C`` ask."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autojit.autograd.engine import Walk
    from autojit.tensor.node import Node


class Running(threading.local):
    """The passes that the thread is in, outermost first; ``depth`` of them were started in this very thread."""

    def __init__(self) -> None:
        self.walks: tuple[Walk, ...] = ()
        self.depth = 0


running = Running()


def current_walk() -> Walk | None:
    """The backward pass that the thread is in, or None."""
    return running.walks[-1] if running.walks else None


def current_node() -> Node | None:
    """The node whose rule the thread is running, or None."""
    return next((walk.current for walk in reversed(running.walks) if walk.current is not None), None)
