"""A thread whose prints are dropped: what a captured function says when it is recorded once more, it has said before.

``sys.stdout`` belongs to the process. It is replaced while any thread is unheard, by one stream for all of them, which
drops what these threads write and hands on what others do.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from autojit.core.process_changes import WhileInside


class _Selective:
    """A stream that drops what some threads write, and is another stream in everything else."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return len(text) if unheard.has_me() else int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_installed: list[_Selective] = []


def _replace() -> None:
    _installed.append(_Selective(sys.stdout))
    sys.stdout = _installed[-1]


def _restore() -> None:
    ours = _installed.pop()
    if sys.stdout is ours:  # else somebody else has replaced it meanwhile, and puts back what they found
        sys.stdout = ours.stream


unheard = WhileInside(_replace, _restore)
"""Inside ``with unheard():`` this thread's prints are dropped."""
