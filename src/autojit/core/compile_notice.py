"""A line on the terminal while a compile takes longer than a second: what is compiled, what is done to it.

It is drawn by a thread that waits for that second, and taken away at the end. There is none where standard error is no
terminal, or with ``AUTOJIT_NOTICE=0``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from autojit.core.config import config

PATIENCE_S = 1.0  # what takes no longer needs no word
REDRAW_S = 0.25
CLEAR = "\r\x1b[K"


class _Current(threading.local):
    notice: Notice | None = None


_current = _Current()


class Notice:
    """The line of one compile."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self.stream = stream
        self.stage = "begins"
        self._began = time.monotonic()
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="autojit notice", daemon=True)
        self._thread.start()

    def _tell(self) -> None:
        is_drawn = False
        wait = PATIENCE_S
        while not self._is_done.wait(wait):
            wait, is_drawn = REDRAW_S, True
            elapsed = time.monotonic() - self._began
            self._write(f"{CLEAR}autojit: compiling {self.name}: {self.stage}, {elapsed:.0f} s")
        if is_drawn:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._is_done.set()

    def end(self) -> None:
        """Take the line away."""
        self._is_done.set()
        self._thread.join()


@contextmanager
def noticed(name: str) -> Iterator[None]:
    """Tell what is done inside if it takes long; what is compiled inside of a compile is part of that."""
    stream = sys.stderr
    if not config.notice or _current.notice is not None or stream is None or not stream.isatty():
        yield
        return
    notice = _current.notice = Notice(name, stream)
    try:
        yield
    finally:
        _current.notice = None
        notice.end()


def stage(text: str) -> None:
    """What the compile in hand does from now on."""
    notice = _current.notice
    if notice is not None:
        notice.stage = text
