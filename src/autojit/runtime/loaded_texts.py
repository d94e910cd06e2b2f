"""What was made of texts, once per text: threads that want the same one at a time share the work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from autojit.core.locks import in_forked_child, new_lock
from autojit.core.undivided_work import undivided

Made = TypeVar("Made")


class LoadedTexts(Generic[Made]):
    """What ``make`` makes of texts. It stays: its address is in code and plans.

    Args:
        make: given different texts, and the levels of passes for those that have one of their own; what it makes of
            each, in order.
    """

    def __init__(self, make: Callable[[Sequence[str], Mapping[str, int]], Iterable[Made]]) -> None:
        self._make = make
        self._made: dict[str, Made] = {}
        self._lock = new_lock()
        self._making: dict[str, tuple[int, threading.Event]] = {}  # which thread makes it, and when it is done
        in_forked_child(self._making.clear)

    def __contains__(self, text: str) -> bool:
        return text in self._made

    def get(self, texts: Sequence[str], pass_levels: Mapping[str, int]) -> list[Made]:
        """What is made of texts; those that no thread is working on are made here."""
        with undivided:
            self._make_all(texts, pass_levels)
        return [self._made[text] for text in texts]

    def _make_all(self, texts: Sequence[str], pass_levels: Mapping[str, int]) -> None:
        while True:
            with self._lock:
                missing = [text for text in dict.fromkeys(texts) if text not in self._made]
                me, done = threading.get_ident(), threading.Event()
                making = [self._making.get(text, (me, done)) for text in missing]
                mine = [text for text, (thread, _) in zip(missing, making, strict=True) if thread == me]
                self._making.update(dict.fromkeys(mine, (me, done)))
            if mine:
                self._make_mine(mine, pass_levels, done)
            elif not missing:
                return
            for thread, others_done in making:
                if thread != me:
                    others_done.wait()  # if it fails, the next round makes the text and raises its own error

    def _make_mine(self, texts: Sequence[str], pass_levels: Mapping[str, int], done: threading.Event) -> None:
        try:
            for text, made in zip(texts, self._make(texts, pass_levels), strict=True):
                self._made.setdefault(text, made)
        finally:
            with self._lock:
                for text in texts:
                    self._making.pop(text, None)
            done.set()
