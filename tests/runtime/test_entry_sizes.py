"""The entry point of a step with open sizes: it reads their values, compares, and asks about new ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autojit.core.sizes import named_size
from autojit.runtime.entry import make_entry
from autojit.runtime.entry_spec import ArrayArgument, ArrayCheck, EntrySizes, Refusal

from .test_entry import ENTRIES, F4, MakeEntry, Tensor, filled, needs_layout, ring, spec_of

N, M = named_size("s0", 8), named_size("s1", 3)
CHECKS = (ArrayCheck((N, 4), F4), ArrayCheck((M, N), F4))


def _arrays(n: int, m: int) -> tuple[Any, Any]:
    return np.zeros((n, 4), F4), np.zeros((m, n), F4)


def _spec(table: Any, accepts: Any = None, **changes: Any) -> Any:
    plain = spec_of()
    arguments = (*plain.arguments, *(ArrayArgument(check, None) for check in CHECKS))
    return plain._replace(arguments=arguments, sizes=EntrySizes(("s0", "s1"), table, accepts), **changes)


@pytest.mark.parametrize("entry_type", ENTRIES)
def test_the_values_are_read_from_the_arguments(entry_type: MakeEntry) -> None:
    table = np.zeros(2, np.int64)
    entry = entry_type(_spec(table))
    for n, m in ((8, 3), (5, 7), (2, 2), (1000, 9)):
        assert isinstance(entry.call(filled(), *_arrays(n, m)), Tensor)
        assert tuple(table) == (n, m)


@pytest.mark.parametrize("entry_type", ENTRIES)
def test_extents_that_do_not_fit_are_refused(entry_type: MakeEntry) -> None:
    entry = entry_type(_spec(np.zeros(2, np.int64)))
    for arrays in (
        _arrays(1, 3),
        _arrays(0, 3),
        (np.zeros((8, 5), F4), np.zeros((3, 8), F4)),
        (np.zeros((8, 4), F4), np.zeros((3, 7), F4)),
        (np.zeros((8, 4), F4), np.zeros(3, F4)),
    ):
        assert entry.call(filled(), *arrays) is Refusal.SLOW
    assert isinstance(entry.call(filled(), *_arrays(8, 3)), Tensor)


@pytest.mark.parametrize("entry_type", ENTRIES)
def test_new_values_are_asked_about_once(entry_type: MakeEntry) -> None:
    asked: list[tuple[int, ...]] = []

    def accepts(values: tuple[int, ...]) -> bool:
        asked.append(values)
        return values[0] < 100

    refused = object()
    rings = (ring(is_open=True),)
    entry = entry_type(_spec(np.zeros(2, np.int64), accepts, rings=rings, fallback=lambda *a: refused))
    for n, wanted in ((8, Tensor), (8, Tensor), (9, Tensor), (100, object), (9, Tensor), (9, Tensor)):
        assert type(entry.call(filled(), *_arrays(n, 3))) is wanted
    assert asked == [(8, 3), (9, 3), (100, 3)]


@pytest.mark.parametrize("entry_type", ENTRIES)
def test_tensors_for_sizes_that_come_in_turn_are_not_mixed_up(entry_type: MakeEntry) -> None:
    table, made = np.zeros(2, np.int64), []

    def make() -> Tensor:
        made.append(int(table[0]))
        return Tensor(np.full(16, table[0], F4))

    entry = entry_type(_spec(table, lambda values: True, rings=(ring(is_open=True, make=make),)))
    held: list[tuple[int, Tensor, np.ndarray]] = []
    for turn in range(40):
        n = 2 + turn * 7 % 11
        found = entry.attempt(filled(turn), *_arrays(n, 3))
        assert isinstance(found, Tensor)
        assert (found._array == turn + 1).all()
        assert all((t._array == array).all() for _, t, array in held)
        if turn % 3 == 0:
            held.append((n, found, found._array.copy()))
    assert set(made) - {0} == {2 + k for k in range(11)}


@needs_layout
def test_sizes_that_come_in_turn_are_asked_about_once() -> None:
    asked: list[tuple[int, ...]] = []

    def accepts(values: tuple[int, ...]) -> bool:
        asked.append(values)
        return True

    entry = make_entry(_spec(np.zeros(2, np.int64), accepts, rings=(ring(is_open=True),)))
    for n in (8, 9, 8, 10, 9, 8, 10, 11, 8, 9, 10, 11):
        assert isinstance(entry.attempt(filled(), *_arrays(n, 3)), Tensor)
    assert asked == [(8, 3), (9, 3), (10, 3), (11, 3)]
