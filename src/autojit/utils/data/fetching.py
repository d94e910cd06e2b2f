"""Making a batch of a data set: what a worker does, and the DataLoader itself where there are no workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from autojit.utils.data.collate import default_collate
from autojit.utils.data.dataset import TensorDataset


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How batches of a data set are made; goes to worker processes as it is.

    An exception of the data set gets a note that says which sample it was about.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    is_batched: bool
    batch_size: int | None
    drop_last: bool

    def fetch(self, key: Any) -> Any:
        """The batch of these indices, or without batching the item of this one."""
        if not self.is_batched:
            return self.collate_fn(self._items([key])[0])
        if self.collate_fn is default_collate and type(self.dataset) is TensorDataset:
            return self.dataset.collated(key)
        many = getattr(self.dataset, "__getitems__", None)
        return self.collate_fn(many(key) if many is not None else self._items(key))

    def _items(self, indices: Any) -> list[Any]:
        items, index, dataset = [], None, self.dataset
        try:
            for index in indices:
                items.append(dataset[index])
        except Exception as error:
            error.add_note(f"DataLoader: in sample {index!r} of the data set")
            raise
        return items

    def stream(self) -> Iterator[Any]:
        """The batches of one pass over an iterable data set."""
        items = _counted(iter(self.dataset))
        if self.batch_size is None:
            yield from map(self.collate_fn, items)
            return
        while batch := list(islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)


def _counted(items: Iterator[Any]) -> Iterator[Any]:
    """The items; an exception says after how many of them it came."""
    count = 0
    try:
        for item in items:
            yield item
            count += 1
    except Exception as error:
        error.add_note(f"DataLoader: in sample {count} of this pass over the stream")
        raise
