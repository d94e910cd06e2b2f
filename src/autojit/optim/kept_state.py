"""What an optimiser keeps at a moment, to be put back when the call fails that was about to begin more."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from autojit.tensor.state import bump_guard_epoch

_COUNTS = ("_step_calls",)  # that the step was captured stays true: later calls may run what the failed one compiled


def kept_state(optimizer: Any) -> Callable[[], None]:
    """How to put back what an optimiser keeps now: which entries there are, not what their tensors hold.

    Of users' own algorithms the capture itself sees what they write, and puts it back.
    """
    if not optimizer._is_followed:
        return lambda: None
    state = optimizer.__dict__["state"]
    counts = {name: optimizer.__dict__[name] for name in _COUNTS}
    tables = [(table, dict(table)) for table in (state, *state.values()) if isinstance(table, dict)]

    def put_back() -> None:
        optimizer.__dict__.update(counts)
        changed = [(table, before) for table, before in tables if not _is_as(table, before)]
        for table, before in changed:
            dict.clear(table)
            dict.update(table, before)
        if changed:
            bump_guard_epoch()

    return put_back


def _is_as(table: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Whether a dictionary holds the very items, in the order, that it held before."""
    same_keys = len(table) == len(before) and all(map(is_, table, before))
    return same_keys and all(map(is_, table.values(), before.values()))
