"""What launches wait for: all they conflict with, and nothing twice."""

from __future__ import annotations

import numpy as np
import pytest

from autojit.runtime.gpu.order import Access, Effect, Order, Place

EFFECTS: tuple[Effect, ...] = ("reads", "writes")


def random_launches(rng: np.random.Generator) -> list[list[Access]]:
    def access() -> Access:
        effect = EFFECTS[int(rng.integers(2))]
        if rng.random() < 0.3:
            places: tuple[Place, ...] = ("argument", "result")
            return Access(places[int(rng.integers(2))], effect, name=int(rng.integers(4)))
        is_own = rng.random() < 0.7
        start = int(rng.integers(60)) + (0 if is_own else 100)
        return Access("own" if is_own else "state", effect, start, start + int(rng.integers(1, 12)))

    return [[access() for _ in range(int(rng.integers(1, 5)))] for _ in range(int(rng.integers(1, 25)))]


def conflict(a: Access, b: Access) -> bool:
    """Whether one has to wait for the other, as the module's first lines say it."""
    if a.effect == b.effect == "reads":
        return False
    if a.is_fixed and b.is_fixed:
        return a.start < b.end and b.start < a.end
    places = {a.place, b.place}
    if "own" in places:
        return False
    if "result" in places:
        return places == {"result", "argument"} or a.name == b.name
    return True


def reached(after: list[tuple[int, ...]]) -> list[set[int]]:
    """Of every launch, all that come before it in any order that keeps the edges."""
    found: list[set[int]] = []
    for before in after:
        found.append(set(before).union(*(found[k] for k in before)))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_whoever_conflicts_is_ordered_and_no_edge_is_superfluous(seed: int) -> None:
    launches = random_launches(np.random.default_rng(seed))
    after = Order(launches).after
    before = reached(after)
    for k, mine in enumerate(launches):
        for j, others in enumerate(launches[:k]):
            if any(conflict(a, b) for a in mine for b in others):
                assert j in before[k]
        for j in after[k]:
            assert any(conflict(a, b) for a in mine for b in launches[j])
            assert not any(j in before[other] for other in after[k])


@pytest.mark.parametrize("seed", range(40))
def test_what_is_settled_was_written_before_those_right_in_front_began(seed: int) -> None:
    """So whoever waits for these alone finds it complete, and they do not write it: it may be read at once."""
    launches = random_launches(np.random.default_rng(seed))
    order = Order(launches)
    after, before = order.after, reached(order.after)
    reads = [[access for access in one if access.effect == "reads"] for one in launches]
    for k, mine in enumerate(reads):
        complete = set[int]().union(*(before[j] for j in after[k]))
        for access, is_settled in zip(mine, order.settled(k, mine), strict=True):
            writers = {j for j in range(k) if any(conflict(access, other) for other in launches[j])}
            assert is_settled == writers.isdisjoint(after[k])
            assert not is_settled or writers <= complete


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Access("own", "reads", 0, 8), Access("own", "reads", 0, 8), False),
        (Access("own", "writes", 0, 8), Access("own", "writes", 8, 16), False),
        (Access("own", "writes", 0, 9), Access("state", "reads", 8, 16), True),
        (Access("argument", "reads", name=1), Access("argument", "writes", name=2), True),
        (Access("argument", "reads", name=1), Access("state", "writes", 0, 8), True),
        (Access("argument", "writes", name=1), Access("own", "reads", 0, 8), False),
        (Access("result", "writes", name=1), Access("result", "writes", name=2), False),
        (Access("result", "writes", name=1), Access("result", "reads", name=1), True),
        (Access("result", "writes", name=1), Access("own", "writes", 0, 8), False),
        (Access("result", "writes", name=1), Access("state", "writes", 0, 8), False),
        (Access("result", "writes", name=1), Access("argument", "reads", name=2), True),
    ],
)
def test_what_may_be_the_same_memory_conflicts(a: Access, b: Access, expected: bool) -> None:
    assert Order([[a], [b]]).after == Order([[b], [a]]).after == [(), (0,) if expected else ()]
