"""What the body of a ``cond``, ``scan`` or ``while_loop`` may not do while a step is captured: change Python state.

Eager mode runs a body as often as it is taken, a capture runs it once. What it appends, assigns or draws would happen
once at every call of the step, however often the compiled body runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.jit.guards import same
from autojit.jit.observer import Observer
from autojit.jit.read_hooks import active

_State = dict[Any, tuple[str, Any, Any]]


@contextmanager
def effects_refused(body: str) -> Iterator[None]:
    """A body runs inside, as far as a capture observes this thread: what is deferred or drawn there is refused at once.

    Raises:
        TraceError: it has changed Python state outside.
    """
    observer: Observer | None = active.observer
    if observer is None:
        yield
        return
    before, around = _changed_by_now(observer), observer.body
    observer.body = body
    try:
        yield
        after = _changed_by_now(observer)
        changed = [name for key, (name, was, now) in after.items() if not same(now, before.get(key, ("", 0, was))[2])]
        changed += [name for key, (name, was, now) in before.items() if key not in after and not same(now, was)]
        if changed:
            observer.refuse_in_body(", ".join(dict.fromkeys(changed)))
    finally:
        observer.body = around


def _changed_by_now(observer: Observer) -> _State:
    """Places and containers that the capture may have changed: name, what was there before it, what is there now."""
    places: _State = {place.identity: (place.name, was, place.read()) for place, was in observer.changes()}
    return places | observer.contents.changes()
