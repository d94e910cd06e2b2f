"""What accesses are said to be (`tools.access_classes`), on patterns made up: laws of the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from tools.access_classes import CLASSES, SECTOR_BYTES, WIDEST, Asked, Classified, asked, classified

WARP, BASE = 32, 1 << 20
FLOATS = (BASE, BASE + (1 << 16), 4)
BOOLS = (BASE + (1 << 16), BASE + (1 << 17), 1)
BUFFERS = (FLOATS, BOOLS)


def lanes(places: Sequence[int], size: int, *, instruction: int = 0, warp: int = 0, block: int = 0) -> Asked:
    """What a warp asks for, a place for each lane."""
    count = len(places)
    numbers = np.array(places, np.uint64)
    return asked(instruction, size, np.full(count, warp, np.uint64), np.full(count, block, np.uint64), numbers)


def neighbours(begin: int, size: int, *, stride: int = 1, instruction: int = 0, warp: int = 0, block: int = 0) -> Asked:
    places = [begin + lane * size * stride for lane in range(WARP)]
    return lanes(places, size, instruction=instruction, warp=warp, block=block)


def only(found: Classified) -> str:
    (name,) = found.bytes
    return name


def scattered(seed: int) -> list[Asked]:
    """Runs, strides and chance, of every size, in several warps and blocks."""
    rng = np.random.default_rng(seed)
    found: list[Asked] = []
    for instruction in range(12):
        size = int(rng.choice([1, 2, 4, 8, 16]))
        begin, stride = BASE + size * int(rng.integers(256)), int(rng.choice([0, 1, 1, 1, 2, 5]))
        places = [begin + lane * size * stride for lane in range(WARP)]
        if rng.random() < 0.3:
            places = [BASE + size * int(n) for n in rng.integers(0, 512, WARP)]
        found.append(lanes(places, size, instruction=instruction % 5, warp=instruction, block=instruction // 4))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_each_place_of_a_warp_counts_once_and_in_one_class(seed: int) -> None:
    everything = scattered(seed)
    found = classified(everything, BUFFERS)
    assert sum(found.bytes.values()) == sum(each.size * len(set(each.together.tolist())) for each in everything)
    assert set(found.bytes) == set(found.sectors) <= set(CLASSES)
    assert found.bytes["wide"] == sum(each.size * len(each.together) for each in everything if each.size == WIDEST)
    assert all(count % SECTOR_BYTES == 0 for count in found.sectors.values())


@pytest.mark.parametrize("seed", range(6))
def test_classes_follow_from_places_alone(seed: int) -> None:
    """Not from the order of lanes, the names of warps and blocks, nor from where memory begins, in whole sectors."""
    everything, rng = scattered(seed), np.random.default_rng(seed)
    moved: list[Asked] = []
    for number, each in enumerate(everything):
        order = rng.permutation(len(each.together))
        warps = np.full(len(order), 100 - number, np.uint64)
        there = each.addresses[order] + np.uint64(8 * SECTOR_BYTES)
        moved.append(asked(each.instruction, each.size, warps, np.uint64(7) - each.block_of[order], there))
    there_too = [(begin + 8 * SECTOR_BYTES, end + 8 * SECTOR_BYTES, element) for begin, end, element in BUFFERS]
    assert classified(everything, BUFFERS) == classified(moved, there_too)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("behind", [0, 1, 3])
def test_neighbours_that_begin_anywhere_always_alike_could_be_wide(size: int, behind: int) -> None:
    begin = BASE if size == WIDEST else BASE + behind * size
    found = classified([neighbours(begin, size)], BUFFERS)
    assert found.bytes == Counter({"wide" if size == WIDEST else "narrow": WARP * size})


def test_neighbours_that_begin_here_and_there_are_shifted() -> None:
    """By an instruction: two that each begin alike are not."""
    rows = [neighbours(BASE + 65 * 4 * row, 4, warp=row, instruction=0) for row in range(4)]
    assert only(classified(rows, BUFFERS)) == "shifted"
    apart = [neighbours(BASE + 65 * 4 * row, 4, warp=row, instruction=row) for row in range(4)]
    assert only(classified(apart, BUFFERS)) == "narrow"


@pytest.mark.parametrize("stride", [0, 2, 3, 17])
def test_what_no_sixteen_bytes_of_a_warp_hold_together_is_single(stride: int) -> None:
    found = classified([neighbours(BASE, 4, stride=stride)], BUFFERS)
    assert only(found) == "single"
    assert found.bytes["single"] == 4 * (WARP if stride else 1)
    assert found.sectors["single"] == SECTOR_BYTES * len({lane * 4 * stride // SECTOR_BYTES for lane in range(WARP)})


def test_lanes_beyond_a_warp_are_no_neighbours() -> None:
    """Four warps with a place each ask for 16 bytes, but not together."""
    places = np.arange(BASE, BASE + WIDEST, 4, dtype=np.uint64)
    warps, blocks = np.arange(4, dtype=np.uint64), np.zeros(4, np.uint64)
    assert classified([asked(0, 4, warps, blocks, places)], BUFFERS).bytes == Counter({"single": WIDEST})
    assert classified([asked(0, 4, blocks, blocks, places)], BUFFERS).bytes == Counter({"narrow": WIDEST})


@pytest.mark.parametrize("run", range(1, 8))
def test_sixteen_bytes_side_by_side_are_the_least_that_could_be_wide(run: int) -> None:
    places = [BASE + 256 * group + 4 * place for group in range(4) for place in range(run)]
    assert only(classified([lanes(places, 4)], BUFFERS)) == ("narrow" if 4 * run >= WIDEST else "single")


@pytest.mark.parametrize("block", [0, 1])
def test_what_the_block_has_wide_is_asked_for_again(block: int) -> None:
    """By the same block, whichever instruction and however few lanes: no other block has a part of its cache."""
    wide = neighbours(BASE, WIDEST, instruction=0, warp=0)
    few = lanes([BASE + 4], 4, instruction=1, warp=1, block=block)
    assert classified([wide, few], BUFFERS).bytes == Counter({"wide": 512, "single" if block else "again": 4})
    assert classified([few, wide], BUFFERS).bytes == Counter({"wide": 512, "single" if block else "again": 4})


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_bools_beside_floats_are_thin_where_a_lane_takes_as_many(size: int) -> None:
    wide = neighbours(BASE, WIDEST, instruction=0)
    bools = neighbours(BOOLS[0], size, instruction=1)
    name = "thin" if size >= WIDEST // FLOATS[2] else "narrow"
    assert classified([wide, bools], BUFFERS).bytes == Counter({"wide": 512, name: WARP * size})
    assert only(classified([bools], BUFFERS)) == "narrow"


def test_nothing_asked_for_has_no_class() -> None:
    assert classified([], BUFFERS) == Classified(Counter(), Counter())
