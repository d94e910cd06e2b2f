"""Data sets: what has a length and items, or can be iterated."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import autojit as aj
from autojit.tensor import Tensor

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
    "random_split",
]  # fmt: skip

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Base of data sets by index: define ``__getitem__`` and ``__len__``; optionally ``__getitems__`` for many."""

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Base of data sets that come as a stream: define ``__iter__``."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors of equal first extent; item i is the tuple of their i-th entries."""

    def __init__(self, *tensors: Tensor) -> None:
        if not all(tensors[0].shape[0] == tensor.shape[0] for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def collated(self, indices: Sequence[int]) -> list[Tensor]:
        """The batch ``default_collate`` would make of the items, in one gather per tensor."""
        places = aj.tensor(list(indices), dtype=aj.int64, device="cpu")
        return [tensor.detach().index_select(0, places.to(tensor.device)) for tensor in self.tensors]


class ConcatDataset(Dataset[Any]):
    """Data sets one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if place < 0:
            raise ValueError("absolute value of index should not exceed dataset length")
        if place >= len(self):  # which ends a loop over the data set
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        part = bisect.bisect_right(self.cumulative_sizes, place)
        before = self.cumulative_sizes[part - 1] if part else 0
        return self.datasets[part][place - before]


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset[Any]):
    """A data set at given indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[place] for place in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> Sequence[Any]:
        return _items(self.dataset, [self.indices[place] for place in indices])

    def __len__(self) -> int:
        return len(self.indices)


class StackDataset(Dataset[Any]):
    """Data sets side by side: items are tuples (or dicts, when given by keyword)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both "
                "types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        parts = list(args or kwargs.values())
        self._length = len(parts[0])
        if any(len(part) != self._length for part in parts):
            raise ValueError("Size mismatch between datasets")

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        is_named = isinstance(self.datasets, dict)
        columns = [_items(part, indices) for part in (self.datasets.values() if is_named else self.datasets)]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}")
        rows = zip(*columns, strict=True)
        return [dict(zip(self.datasets, row, strict=True)) for row in rows] if is_named else list(rows)

    def __len__(self) -> int:
        return self._length


def _items(dataset: Any, indices: list[int]) -> Sequence[Any]:
    """Samples of a data set: at once where it says how."""
    many = getattr(dataset, "__getitems__", None)
    found: Sequence[Any] = [dataset[index] for index in indices] if many is None else many(indices)
    return found


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Any = None) -> list[Subset]:
    """Random disjoint subsets of given lengths, or of shares that sum to 1 (remainders go round from the first)."""
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = [math.floor(total * share) for share in lengths]
        if any(not 0 <= share <= 1 for share in lengths):
            raise ValueError("Fractions must be between 0 and 1")
        for place in range(total - sum(sizes)):
            sizes[place % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = aj.randperm(total, generator=generator, device="cpu").tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
