"""What the body of a ``cond``, ``scan`` or ``while_loop`` does besides computing, while a step is captured.

Eager mode runs a body as often as it is taken, a capture runs it once. What it appends, assigns or draws would happen
once at every call of the step, however often the compiled body runs: such a body runs turn by turn
(``stepped_bodies.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from autojit.jit.guards import same
from autojit.jit.made_state import MadeState
from autojit.jit.observer import Observer
from autojit.jit.read_hooks import active
from autojit.jit.stepped_bodies import refuse_effect

_State = dict[Any, tuple[str, Any, Any]]


@contextmanager
def effects_refused(trace: Any, functions: Sequence[Any]) -> Iterator[None]:
    """The body that ``trace`` records, made of ``functions``, runs inside, as far as a capture observes this thread.

    Raises:
        Turned: it has changed Python state outside it (see ``refuse_effect``).
    """
    observer: Observer | None = active.observer
    if observer is None:
        yield
        return
    before, around, opaque = _changed_by_now(observer), observer.body, observer.used_is_changed
    places = (*observer.written.values(), *observer.rewritten.values())
    made = MadeState(functions, [place.read() for place, _ in places], observer.outside)
    observer.body, observer.used_is_changed = trace, {**opaque, **made.opaque}
    try:
        yield
        after = _changed_by_now(observer)
        changed = [name for key, (name, was, now) in after.items() if not same(now, before.get(key, ("", 0, was))[2])]
        changed += [name for key, (name, was, now) in before.items() if key not in after and not same(now, was)]
        changed += made.changed()
        if changed:
            refuse_effect(trace, f"changes {', '.join(dict.fromkeys(changed))}")
    finally:
        observer.body, observer.used_is_changed = around, opaque


def _changed_by_now(observer: Observer) -> _State:
    """Places and containers that the capture may have changed: name, what was there before it, what is there now."""
    places: _State = {place.identity: (place.name, was, place.read()) for place, was in observer.changes()}
    return places | observer.contents.changes()
