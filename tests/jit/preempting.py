"""One thread is stopped at a chosen line of autojit, another does its work meanwhile: every such place can be tried.

Racing threads meet where the interpreter happens to switch; two lines of which something depends on nobody coming in
between are met once in thousands of runs, or never. Here the switch is put there.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import autojit as aj

PACKAGE = str(Path(aj.__file__).parent)
WAIT_S = 0.02  # for a thread that waits for a lock of the one that was stopped: that goes on then
PATIENCE_S = 60.0


class Stopped:
    """Runs ``first``, and ``meanwhile`` in another thread as soon as ``first`` has come to its line number ``at``.

    ``within``: ends of the names of the files whose lines count.
    """

    def __init__(
        self, first: Callable[[], Any], meanwhile: Callable[[], Any], at: int | None, within: tuple[str, ...] = ("",)
    ) -> None:
        self.lines = 0
        self._within = within
        self.where = "nowhere"
        self._at = at
        self._errors: list[BaseException] = []
        self._other = threading.Thread(target=self._guarded, args=(meanwhile,), daemon=True)
        thread = threading.Thread(target=self._guarded, args=(self._traced, first), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        if self._at is not None and not self._other.ident:
            self._other.start()
        if self._other.ident:
            self._other.join(PATIENCE_S)
        assert not thread.is_alive() and not self._other.is_alive(), f"a thread still waits, stopped at {self.where}"
        if self._errors:
            raise AssertionError(f"stopped at {self.where}") from self._errors[0]

    def _guarded(self, work: Callable[..., Any], *given: Any) -> None:
        try:
            work(*given)
        except BaseException as error:
            self._errors.append(error)

    def _traced(self, first: Callable[[], Any]) -> None:
        sys.settrace(self._call)
        try:
            first()
        finally:
            sys.settrace(None)

    def _call(self, frame: Any, event: str, given: Any) -> Any:
        file = frame.f_code.co_filename
        return self._line if file.startswith(PACKAGE) and file.endswith(self._within) else None

    def _line(self, frame: Any, event: str, given: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self._other.start()
                self._other.join(WAIT_S)
        return self._line


def lines_of(work: Callable[[], Any], within: tuple[str, ...] = ("",)) -> int:
    """How many lines of autojit a piece of work runs through."""
    return Stopped(work, lambda: None, None, within).lines


def try_at(
    places: Iterable[int],
    make: Callable[[], tuple[Callable[[], Any], Callable[[], Any], Any]],
    within: tuple[str, ...] = ("",),
) -> None:
    """For each place: ``make`` gives what the two threads do, and what checks afterwards that both did it."""
    for at in places:
        first, meanwhile, check = make()
        found = Stopped(first, meanwhile, at, within)
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"wrong after a stop at {found.where}") from error
