"""The garbage collector rests during a capture and is as it was before afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest

import autojit as aj
from autojit.core import collector_pause
from autojit.core.collector_pause import uncollected


def test_the_collector_rests_while_a_step_is_captured() -> None:
    seen = []

    def step(x: aj.Tensor) -> aj.Tensor:
        note(gc.get_threshold()[0])
        return x + 1

    note = seen.append
    before = gc.get_threshold()
    aj.jit(step)(aj.ones(2))
    assert seen == [0]
    assert gc.isenabled()
    assert gc.get_threshold() == before


def test_a_step_that_asks_for_it_finds_what_eager_mode_does() -> None:
    compiled = aj.jit(lambda x: (x, gc.isenabled())[1])
    assert compiled(aj.ones(1)) is True
    gc.disable()
    try:
        assert compiled(aj.ones(1)) is False
        assert aj.jit(lambda x: (x, gc.isenabled())[1])(aj.ones(1)) is False
    finally:
        gc.enable()
    assert compiled(aj.ones(1)) is True


def test_an_error_and_nesting_leave_it_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), uncollected():
        with uncollected():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
        raise KeyError
    assert gc.get_threshold() == before


def test_who_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_cycles_made_meanwhile_are_collected_later() -> None:
    class Cycle:
        pass

    gc.collect()
    with uncollected():
        cycle = Cycle()
        cycle.me = cycle  # type: ignore[attr-defined]
        del cycle
    assert gc.collect() >= 1


def test_objects_that_the_user_froze_stay_frozen_and_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    count = gc.get_freeze_count
    monkeypatch.setattr(collector_pause, "_is_frozen", [False])
    monkeypatch.setattr(gc, "get_freeze_count", lambda: (asked.append(1), count())[1])
    gc.freeze()
    try:
        frozen = count()
        for _ in range(3):
            with uncollected():
                pass
        assert frozen - 100 < count() <= frozen and len(asked) == 1  # some may have ended
    finally:
        gc.unfreeze()


def test_what_was_dropped_goes_while_other_steps_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that count as old at once are looked at when enough of them have been handed over."""
    monkeypatch.setattr(collector_pause, "FIRST", 10_000)
    monkeypatch.setattr(collector_pause, "_enough", [10_000])
    monkeypatch.setattr(collector_pause, "_has_frozen", lambda: False)
    dropped = []
    for _ in range(40):
        model = aj.nn.Linear(2, 2)
        aj.jit(model)(aj.ones(1, 2)).sum().backward()
        dropped.append(weakref.ref(model))
        monkeypatch.setattr(collector_pause, "_enough", [10_000])  # however many objects the other tests have made
    del model
    assert sum(reference() is not None for reference in dropped) < 20


def test_whoever_switched_the_collector_off_keeps_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_pause, "_enough", [0])
    monkeypatch.setattr(collector_pause, "_has_frozen", lambda: False)
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    gc.disable()
    try:
        with uncollected():
            pass
    finally:
        gc.enable()
    assert not collected
    with uncollected(), uncollected():
        pass
    assert len(collected) == 1
