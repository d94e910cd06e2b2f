"""``autojit.eager()``: jitted functions run line by line; and the modes that a step leaves switched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.core.top_level import top_level
from autojit.tensor.state import LINE_BY_LINE, detour_of_modes, set_inference, state


@top_level
@contextmanager
def eager() -> Iterator[None]:
    """Run jitted functions line by line inside (this thread)."""
    before = state.detour, state.pieces
    state.detour, state.pieces = "eager", None
    try:
        yield
    finally:
        state.detour, state.pieces = before


@contextmanager
def line_by_line(pieces: object = None) -> Iterator[None]:
    """A call of a jitted function that no step serves runs inside: as `eager`, but for what eager mode itself compiles,
    backward passes that come again and again, and for ``pieces`` of the function.
    """
    before = state.detour, state.pieces
    is_eager = before[0] == "eager"
    state.detour, state.pieces = "eager" if is_eager else LINE_BY_LINE, None if is_eager else pieces
    try:
        yield
    finally:
        state.detour, state.pieces = before


@contextmanager
def by_steps_of_their_own() -> Iterator[None]:
    """What eager mode itself compiles runs inside, also while a call of a jitted function runs line by line."""
    before = state.detour, state.pieces
    state.detour, state.pieces = detour_of_modes(), None
    try:
        yield
    finally:
        state.detour, state.pieces = before


def set_modes(modes: tuple[bool, int]) -> None:
    """Set the thread's gradient mode and inference mode."""
    state.grad_enabled, inference = modes
    set_inference(inference)
