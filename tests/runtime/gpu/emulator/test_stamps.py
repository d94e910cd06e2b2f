"""Which two lanes of a launch a barrier orders, said of single pairs; what is a race; which bytes a node touches."""

from __future__ import annotations

from itertools import product

import numpy as np

from autojit.runtime.gpu.emulator.accesses import AccessTable, Conflict
from autojit.runtime.gpu.emulator.graphs import Footprint
from autojit.runtime.gpu.emulator.stamps import (
    launch_stamp,
    next_interval,
    next_warp_interval,
    parts_of,
    stamps_of,
    unordered,
)
from autojit.runtime.gpu.emulator.warp_operations import WARP

THREADS = (0, 1, WARP - 1, WARP, 1023)


def _stamps() -> list[tuple[int, int, int, int, int]]:
    """Stamps of a launch, with the lane's block and thread, and how many barriers of its block and warp it has met."""
    found = []
    for block, thread in product((0, 1), THREADS):
        stamp = stamps_of(0, np.array([block]), np.array([thread]))
        for met in range(2):
            of_warp = stamp
            for turns in range(2):
                found.append((int(of_warp[0]), block, thread, met, turns))
                of_warp = next_warp_interval(of_warp)
            stamp = next_interval(stamp, np.array([0]))
    return found


def test_lanes_of_a_block_are_ordered_by_its_barriers_and_those_of_a_warp_by_its_own() -> None:
    every = _stamps()
    before, now = (np.array([each[0] for each in every]).reshape(shape) for shape in ((1, -1), (-1, 1)))
    found = unordered(before, now)
    for (row, one), (column, other) in product(enumerate(every), repeat=2):
        _, block, thread, met, turns = one
        _, other_block, other_thread, other_met, other_turns = other
        is_same_warp = thread // WARP == other_thread // WARP
        is_ordered = block == other_block and (
            met != other_met or thread == other_thread or (is_same_warp and turns != other_turns)
        )
        assert found[row, column] == (not is_ordered), (one, other, parts_of(one[0]), parts_of(other[0]))


def _told(table: AccessTable, access: tuple[np.ndarray, int, np.ndarray], *, is_write: bool, is_atomic: bool) -> str:
    try:
        table.note(*access, is_write=is_write, is_atomic=is_atomic)
    except Conflict as conflict:
        return str(conflict)
    return ""


def test_a_race_is_the_same_whether_entries_are_of_words_or_of_bytes(rng: np.random.Generator) -> None:
    """A table has entries for words until a smaller piece is touched; one whose first access is of a byte, never."""
    found = []
    for launch in range(1, 81):
        tables = [AccessTable(np.zeros(160, "i8"), np.zeros(160, "i8")) for _ in range(2)]
        stamps = stamps_of(launch_stamp(launch), np.zeros(16, "i8"), np.arange(16) * WARP // 4)
        for table in tables:
            table.begin(launch_stamp(launch), None)
        _told(tables[1], (np.array([159]), 1, stamps[:1]), is_write=False, is_atomic=False)
        least, told = int(rng.choice([1, 4])), ""
        for turn in range(7):
            size = int(rng.choice([size for size in (1, 2, 4, 8, 16) if size >= (least if turn > 2 else 4)]))
            rows = rng.permutation(np.arange(0 if turn > 2 else 64 // size, 128 // size))[:12]
            lanes = (rows * size // 4 + (rng.random() < 0.1)) % 16 // max(1, size // 4)
            access, is_write, is_atomic = (
                (rows, size, stamps[lanes]),
                bool(rng.random() < 0.5),
                bool(rng.random() < 0.1),
            )
            told, expected = (_told(table, access, is_write=is_write, is_atomic=is_atomic) for table in tables)
            assert told == expected
            if told:
                break
            if rng.random() < 0.8:
                stamps = next_interval(stamps, np.zeros(16, "i8"))
        found.append(bool(told))
    assert 20 < sum(found) < 70


def test_a_footprint_has_each_byte_once_whatever_the_pieces(rng: np.random.Generator) -> None:
    for _ in range(50):
        footprint, touched = Footprint(), set[int]()
        for _ in range(rng.integers(0, 6)):
            size = int(rng.choice([1, 2, 4, 16]))
            begins = rng.integers(0, 40, 9).astype("u8") * np.uint64(size)
            footprint.add(begins, size, is_write=True)
            footprint.add_range(int(begins[0]) + 3, size, is_write=True)
            touched |= {int(begin) + k for begin in (*begins, begins[0] + np.uint64(3)) for k in range(size)}
        assert footprint.bytes_of(True).tolist() == sorted(touched)
        assert len(footprint.bytes_of(False)) == 0
