"""Lengths of containers outside that change between calls: hidden inputs of the step.

``if len(losses) % 100 == 0`` asks how long a list is that every step makes longer. One capture guards the length that
it has found. Where the captures of one kind of arguments have found several, the length is drawn from then on: Python
asks for it before every run, and what is decided on it is a decision on a number among the step's arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from autojit.jit.draws import Draw

if TYPE_CHECKING:
    from autojit.jit.captures import Captures

LENGTHS_BEFORE = 4  # of one container, until its length counts as changing
_KINDS = (list, deque, dict, set)  # whose ``__len__`` is their own


class Lengths:
    """The containers whose lengths one function draws, those among ``draws`` at least."""

    def __init__(self, draws: Iterable[Draw] = ()) -> None:
        self._of: dict[int, Any] = {}
        for draw in draws:
            if draw.is_length:
                owner = cast("Any", draw.function).__self__
                self._of[id(owner)] = owner

    def __contains__(self, container: object) -> bool:
        return id(container) in self._of

    def notice(self, captures: Captures) -> None:
        """Lengths that the captures of one kind of arguments have found to be several, and that are others by now."""
        if captures.captures < LENGTHS_BEFORE:
            return
        found: dict[int, set[int]] = {}
        for guard in [guard for capture in captures.each() for guard in capture.guards]:
            container = guard.length_of
            if container is None or type(container) not in _KINDS or guard.holds():
                continue
            known = found.setdefault(id(container), set())
            known.add(guard.expected)
            if len(known) >= LENGTHS_BEFORE:
                self._of[id(container)] = container
