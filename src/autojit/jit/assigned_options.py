"""Options of optimisers that a captured step assigns: ``optimizer.param_groups[0]["lr"] *= 0.9``, ``schedule.step()``.

An option that the function assigns is a place like others (``assigned_places``): the step takes its value in and gives
it out. A schedule changes options by rules of its own; its step is a call that is made after every run of the
compiled one, so nothing in the capture may ask for what it will have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autojit.jit.places import Location
from autojit.jit.read_hooks import active
from autojit.runtime.entry_spec import MISSING


class TraceOptions:
    """The part of a trace that knows options of optimisers."""

    def assigns(self, options: dict[str, Any], name: str) -> bool:
        """An option is about to be assigned; False where nobody could do it again at the next call."""
        observer = active.observer
        if observer is not None:
            observer.note_write(Location(f"param_group[{name!r}]", options, name), dict.get(options, name, MISSING))
        return observer is not None

    def is_assigned(self, options: dict[str, Any], name: str) -> bool:
        """Whether an option has the value that the step gave it, or took in."""
        self.check_not_later(options)
        return active.observer is not None and active.observer.is_of_step(options, name)

    def change_later(
        self, holders: Sequence[object], change: Callable[..., object], *args: object, **kwargs: object
    ) -> bool:
        """Make a call that changes ``holders`` after every run; False where nobody could."""
        if active.observer is None:
            return False
        for holder in holders:
            active.observer.foreign.note_change(holder)
        active.observer.defer(change, *args, **kwargs)
        return True

    def check_not_later(self, part: object) -> None:
        """Where an optimiser or group is asked that the step changes by a later call, its calls run line by line."""
        if active.observer is not None:
            active.observer.foreign.refuse_if_changed(part)
