"""Kernels are compiled while the rest of their step is printed: Python alone would leave the other cores idle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from autojit.runtime.background import helper
from autojit.runtime.bodies import is_compiled, load_kernels
from autojit.runtime.cores import available_cores


class PrintedKernels:
    """A context that gives whom to tell the text of a kernel as soon as it is printed.

    On leaving, what has not been begun is left to who loads the step's kernels, on all cores (`bodies.Loading`). What
    LLVM rejects is rejected there once more, where the user sees it.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[str | None] | None = None
        self._told: set[str] = set()

    def __enter__(self) -> Callable[[str], None]:
        return self._begin

    def __exit__(self, *error: object) -> None:
        if self._waiting is None:
            return
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            self._waiting.put(None)

    def _begin(self, text: str) -> None:
        if text in self._told:
            return
        self._told.add(text)
        if available_cores() < 2 or is_compiled(text):
            return
        if self._waiting is None:
            waiting = self._waiting = SimpleQueue[str | None]()
            helper(lambda: _compile(waiting), "compiling what is printed")
        self._waiting.put(text)


def _compile(waiting: SimpleQueue[str | None]) -> None:
    while (text := waiting.get()) is not None:
        with suppress(Exception):  # met again by who needs the kernel
            load_kernels((text,))
