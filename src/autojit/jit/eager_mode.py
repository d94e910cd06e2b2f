"""``autojit.eager()``: jitted functions run line by line; and the modes that a step leaves switched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autojit.core.top_level import top_level
from autojit.tensor.state import LINE_BY_LINE, set_inference, state


@top_level
@contextmanager
def eager() -> Iterator[None]:
    """Run jitted functions line by line inside (this thread)."""
    before, state.detour = state.detour, "eager"
    try:
        yield
    finally:
        state.detour = before


@contextmanager
def line_by_line() -> Iterator[None]:
    """A call of a jitted function that no step serves runs inside: as `eager`, but for what eager mode itself compiles,
    backward passes that come again and again.
    """
    before = state.detour
    state.detour = before if before == "eager" else LINE_BY_LINE
    try:
        yield
    finally:
        state.detour = before


def set_modes(modes: tuple[bool, int]) -> None:
    """Set the thread's gradient mode and inference mode."""
    state.grad_enabled, inference = modes
    set_inference(inference)
