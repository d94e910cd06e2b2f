"""The garbage collector rests during a capture and is as it was before afterwards."""

from __future__ import annotations

import gc

import pytest

import autojit as aj
from autojit.core.uncollected import uncollected


def test_the_collector_rests_while_a_step_is_captured() -> None:
    seen = []

    def step(x: aj.Tensor) -> aj.Tensor:
        note(gc.isenabled())
        return x + 1

    note = seen.append
    assert gc.isenabled()
    aj.jit(step)(aj.ones(2))
    assert seen == [False]
    assert gc.isenabled()


def test_an_error_and_nesting_leave_it_as_it_was() -> None:
    with pytest.raises(KeyError), uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


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
