"""Steps of one function ask each other: a call that is not for one of them is run by another, natively."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from autojit.runtime.entry import NativeEntry
from autojit.runtime.entry_spec import EqualIntArgument, Refusal, TensorArgument

from .test_entry import CHECK, PLAIN, Tensor, filled, needs_layout, spec_of

pytestmark = needs_layout


def _entry(number: int, **changes: Any) -> NativeEntry:
    """Takes a tensor and the number."""
    arguments = (TensorArgument(Tensor, CHECK, 0, slot_equals=PLAIN), EqualIntArgument(number))
    return NativeEntry(spec_of(arguments=arguments, **changes))


def test_the_first_other_that_fits_runs_and_the_fallback_what_nobody_takes() -> None:
    refused: list[Any] = []

    def fallback(*args: Any, **kwargs: Any) -> str:
        refused.append((args, kwargs))
        return "refused"

    entries = [_entry(k, fallback=fallback) for k in range(3)]
    for entry in entries:
        entry.set_others([other for other in entries if other is not entry])
    for k in (0, 1, 2, 1, 2, 0):
        found = entries[0].call(filled(k), k)
        assert (found._array == k + 1).all()
    assert not refused
    assert [entry.calls() for entry in entries] == [2, 2, 2]
    assert entries[1].call(filled(), 3) == "refused"
    assert entries[1].call(filled(), 1, named=1) == "refused"
    assert len(refused) == 2
    entries[0].set_others(())
    assert entries[0].call(filled(), 1) == "refused"


def test_what_another_raises_is_raised() -> None:
    word = np.ones(1, np.int64)

    def raises() -> Any:
        raise FloatingPointError("planted")

    first = _entry(0, fallback=lambda *args: "refused")
    failing = _entry(1, error_address=word.ctypes.data, on_error=raises)
    first.set_others([failing])
    with pytest.raises(FloatingPointError, match="planted"):
        first.call(filled(), 1)
    word[0] = 0
    assert (first.call(filled(4), 1)._array == 5).all()


def test_another_that_is_out_of_tensors_leaves_the_call_to_the_fallback() -> None:
    first, other = _entry(0, fallback=lambda *args: "refused"), _entry(1)
    first.set_others([other])
    held = [first.call(filled(k), 1) for k in range(3)]
    assert first.call(filled(), 1) == "refused"
    assert other.attempt(filled(), 1) is Refusal.NEED_OUTPUT or held.pop()
    held.clear()


def test_entries_that_ask_each_other_are_collected() -> None:
    entries = [_entry(k, fallback=lambda *args: None) for k in range(2)]
    for entry in entries:
        entry.set_others([other for other in entries if other is not entry])
    refs = [weakref.ref(entry) for entry in entries]
    del entry, entries
    gc.collect()
    assert all(ref() is None for ref in refs)
