"""Data loading: batches cover the data in the sampler's order, whatever the number of workers."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.utils import data


class Squares(data.Dataset[tuple[aj.Tensor, int]]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __getitem__(self, index: int) -> tuple[aj.Tensor, int]:
        return aj.tensor([float(index)]), index * index

    def __len__(self) -> int:
        return self.size


class Count(data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        return iter(range(10)) if info is None else iter(range(info.id, 10, info.num_workers))


pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # from Python 3.12 on, of any fork


@pytest.mark.parametrize(("workers", "kind"), [(0, None), (1, "thread"), (3, "thread"), (3, "fork")])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_cover_the_data_in_order(workers: int, kind: str | None, drop_last: bool) -> None:
    loader = data.DataLoader(
        Squares(11), batch_size=4, num_workers=workers, drop_last=drop_last, multiprocessing_context=kind
    )
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == (2 if drop_last else 3)
        numbers = [int(x) for first, _ in batches for x in first]
        assert numbers == list(range(8 if drop_last else 11))
        assert all(squares.dtype is aj.int64 for _, squares in batches)


def test_shuffling_depends_on_the_generator_only() -> None:
    def order(workers: int, seed: int) -> list[int]:
        generator = aj.Generator().manual_seed(seed)
        loader = data.DataLoader(Squares(20), batch_size=3, shuffle=True, num_workers=workers, generator=generator)
        return [int(square) for _, squares in loader for square in squares]

    assert order(0, 1) == order(0, 1)
    assert sorted(order(2, 1)) == [n * n for n in range(20)]
    assert order(0, 1) != order(0, 2)


def test_tensor_datasets_batch_like_their_items() -> None:
    x, y = aj.arange(10.0).reshape(5, 2), aj.arange(5)
    fast = data.DataLoader(data.TensorDataset(x, y), batch_size=2)
    slow = data.DataLoader(data.TensorDataset(x, y), batch_size=2, collate_fn=lambda items: data.default_collate(items))
    for a, b in zip(fast, slow, strict=True):
        assert type(a) is type(b) is list
        assert all(aj.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_are_split_by_worker(workers: int) -> None:
    loader = data.DataLoader(
        Count(), batch_size=3, num_workers=workers, multiprocessing_context="thread" if workers else None
    )
    assert sorted(int(n) for batch in loader for n in batch) == list(range(10))


def test_workers_pass_on_exceptions_and_can_be_abandoned() -> None:
    class Failing(Squares):
        def __getitem__(self, index: int) -> tuple[aj.Tensor, int]:
            if index == 5:
                raise KeyError("item five")
            return super().__getitem__(index)

    with pytest.raises(KeyError, match="item five"):
        list(data.DataLoader(Failing(9), batch_size=2, num_workers=2))
    started: list[int] = []
    loader = data.DataLoader(
        Squares(100), num_workers=2, worker_init_fn=started.append, multiprocessing_context="thread"
    )
    iterator = iter(loader)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]  # a generator
    assert sorted(started) == [0, 1]


def test_collate_follows_the_structure_of_items() -> None:
    Pair = namedtuple("Pair", "a b")
    items = [{"x": np.ones(2, np.float32), "y": (1, 2.5, "s"), "z": Pair(True, [1, 2])}] * 3
    batch = data.default_collate(items)
    assert batch["x"].shape == (3, 2)
    assert batch["y"][0].tolist() == [1, 1, 1]
    assert batch["y"][1].dtype is aj.float64
    assert batch["y"][2] == ("s", "s", "s")
    assert batch["z"].a.dtype is aj.bool
    assert batch["z"].b[1].tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="should be of equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="found <class 'object'>"):
        data.default_collate([object()])


def test_splits_and_concatenations_partition() -> None:
    parts = data.random_split(Squares(10), [0.5, 0.3, 0.2], aj.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [5, 3, 2]
    assert sorted(part[n][1] for part in parts for n in range(len(part))) == [n * n for n in range(10)]
    joined = Squares(2) + Squares(3)
    assert [joined[n][1] for n in range(5)] == [0, 1, 0, 1, 4]
    assert joined[-1][1] == 4
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(Squares(10), [3, 3])


def test_samplers_draw_what_they_promise() -> None:
    generator = aj.Generator().manual_seed(2)
    assert sorted(data.RandomSampler(range(5), generator=generator)) == [0, 1, 2, 3, 4]
    assert len(list(data.RandomSampler(range(5), num_samples=12, generator=generator))) == 12
    drawn = list(data.RandomSampler(range(5), replacement=True, num_samples=77, generator=generator))
    assert len(drawn) == 77 and set(drawn) == set(range(5))
    forever = data.RandomSampler(range(5), replacement=True, num_samples=10**12)  # drawn as they are asked for
    assert next(iter(data.DataLoader(range(5), sampler=forever, batch_size=3))).shape == (3,)
    assert sorted(data.SubsetRandomSampler([4, 7, 9], generator)) == [4, 7, 9]
    drawn = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 200, generator=generator))
    assert set(drawn) == {1, 2}
    assert drawn.count(2) > drawn.count(1)
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="batch_size should be a positive integer"):
        data.BatchSampler(range(5), 0, False)
    with pytest.raises(ValueError, match="mutually exclusive with shuffle"):
        data.DataLoader(Squares(3), shuffle=True, sampler=[0])


def test_loops_over_joined_data_end_and_samples_are_taken_many_at_once() -> None:
    joined: Any = data.ConcatDataset([[0, 1], [2]])
    assert list(joined) == [0, 1, 2]
    assert joined[-3] == 0
    with pytest.raises(ValueError, match="should not exceed"):
        joined[-4]
    rows = [1, 0, 1]
    for part in (data.StackDataset(Squares(2), [5, 6]), data.StackDataset(t=Squares(2), l=[5, 6])):
        assert part.__getitems__(rows) == [part[i] for i in rows]
        assert data.Subset(part, [1, 0]).__getitems__([0]) == [part[1]]
    with pytest.raises(ValueError, match="At least one dataset"):
        data.StackDataset()
    with pytest.raises(ValueError, match="Supported either"):
        data.StackDataset([1], x=[2])


class ShortSayer(Count):
    def __len__(self) -> int:
        return 8


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_goes_on_after_its_length_warns_those_who_asked_for_it(workers: int) -> None:
    loader = data.DataLoader(
        ShortSayer(), batch_size=4, num_workers=workers, multiprocessing_context="thread" if workers else None
    )
    assert len(list(loader)) == 3  # nobody was told of a length
    assert len(loader) == 2
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    with pytest.warns(UserWarning, match="samples have been fetched"):
        next(batches)


def test_what_a_loader_was_made_of_stays() -> None:
    loader = data.DataLoader(Squares(4), batch_size=2)
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
            setattr(loader, name, None)
    loader.num_workers = 1
    with pytest.warns(UserWarning, match="excessive worker creation"):
        data.DataLoader(Squares(4), num_workers=100_000)
    words: Any = np.array(["a", "b"])
    assert data.default_collate(words) is words
