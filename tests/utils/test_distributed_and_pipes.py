"""DistributedSampler and data pipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autojit.utils.data import (
    DataLoader,
    DistributedSampler,
    IterDataPipe,
    argument_validation,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
    runtime_validation,
    runtime_validation_disabled,
)  # fmt: skip


@functional_datapipe("raised_in_tests")
class Raised(IterDataPipe):
    def __init__(self, source: Any, by: int = 1) -> None:
        self.source = source
        self.by = by

    def __iter__(self) -> Iterator[int]:
        return (x + self.by for x in self.source)


@pytest.mark.parametrize("size", [1, 5, 6, 7])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_shares_are_equal_and_cover_the_data(size: int, replicas: int) -> None:
    shares = [list(DistributedSampler(range(size), replicas, k, shuffle=False)) for k in range(replicas)]
    assert len({len(share) for share in shares}) == 1
    assert {place for share in shares for place in share} == set(range(size))
    dropped = [list(DistributedSampler(range(size), replicas, k, drop_last=True)) for k in range(replicas)]
    places = [place for share in dropped for place in share]
    assert len(places) == len(set(places)) == size // replicas * replicas


def test_epochs_have_orders_of_their_own() -> None:
    sampler = DistributedSampler(range(50), 2, 1, seed=3)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert len(sampler) == 25
    loader = DataLoader(range(4), sampler=DistributedSampler(range(4), shuffle=False))
    assert [int(x) for batch in loader for x in batch] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="Invalid rank"):
        DistributedSampler(range(4), 2, 2)


def test_a_pipe_is_a_method_of_all_pipes() -> None:
    assert list(Raised([1, 2]).raised_in_tests(by=10)) == [12, 13]
    with pytest.raises(AttributeError, match="no attribute 'lowered'"):
        _ = Raised([1]).lowered
    with pytest.raises(RuntimeError, match="already taken"):
        functional_datapipe("raised_in_tests")(Raised)
    with pytest.raises(TypeError, match="decorate"):
        functional_datapipe("other")(int)


def test_pipes_without_a_fixed_order_are_refused_where_one_is_asked_for() -> None:
    always = non_deterministic(type("Drawn", (Raised,), {}))
    sometimes = non_deterministic(lambda source, by=1: by > 1)(Raised)
    always([1])
    with guaranteed_datapipes_determinism():
        sometimes([1])
        for make in (lambda: always([1]), lambda: sometimes([1], by=2)):
            with pytest.raises(TypeError, match="non-deterministic"):
                make()


def test_types_of_items_and_arguments_are_checked() -> None:
    class Mixed(IterDataPipe):
        @runtime_validation
        def __iter__(self) -> Iterator[int]:
            yield from (1, "a")  # type: ignore[misc]

    with pytest.raises(RuntimeError, match="Expected an instance"):
        list(Mixed())
    with runtime_validation_disabled():
        assert list(Mixed()) == [1, "a"]

    @argument_validation
    def count(pipe: IterDataPipe) -> int:
        return len(list(pipe))

    assert count(Raised([1, 2])) == 2
    with pytest.raises(TypeError, match="pipe"):
        count([1, 2])
