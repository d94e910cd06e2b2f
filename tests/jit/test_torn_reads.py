"""What another thread changes between two reads of a capture: the step is for one state of it, not for two."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import autojit as aj

from .preempting import lines_of, try_at

scale = 2.0
STOPS = 20
READERS = ("jit/observer.py", "jit/contents.py", "jit/held_contents.py", "jit/read_hooks.py")


def _of_globals(value: float) -> None:
    global scale
    scale = value


def _places() -> dict[str, tuple[Callable[[], float], Callable[[float], None]]]:
    held = SimpleNamespace(value=2.0, table={"k": 2.0}, items=[2.0])
    return {
        "attribute": (lambda: held.value, lambda v: setattr(held, "value", v)),
        "item": (lambda: held.table["k"], lambda v: held.table.update(k=v)),
        "element": (lambda: held.items[0], lambda v: held.items.__setitem__(0, v)),
        "global": (lambda: scale, _of_globals),
    }


@pytest.mark.parametrize("lines", ["all", "reading"])
@pytest.mark.parametrize("place", _places())
def test_a_step_is_for_one_value_of_what_another_thread_changes_meanwhile(place: str, lines: str) -> None:
    within, stops = (READERS, 3 * STOPS) if lines == "reading" else (("",), STOPS)
    read, write = _places()[place]
    x = aj.ones(2)

    def make() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]:
        write(2.0)
        step = aj.jit(lambda x: (x * read(), (x + 1) * read()))
        found: list[Any] = []

        def check() -> None:
            found.append(step(x))
            write(2.0)
            found.append(step(x))
            assert found[-1][0].tolist() == [2.0, 2.0]
            for first, second in found:
                assert (first * 2).tolist() == second.tolist()

        return lambda: found.append(step(x)), lambda: write(3.0), check

    try:
        count = lines_of(make()[0], within)
        try_at(range(1, count + 1, max(count // stops, 1)), make, within)
    finally:
        write(2.0)
