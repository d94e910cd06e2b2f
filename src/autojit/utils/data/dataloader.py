"""DataLoader: batches of a data set, fetched here or ahead of time by threads.

Each worker is one thread with a queue of its own; batch i belongs to worker i mod n, and batches are handed out in
order, so the number of workers changes nothing but the speed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import autojit as aj
from autojit.core.device import is_available
from autojit.utils.data.collate import default_collate, default_convert
from autojit.utils.data.dataset import IterableDataset, TensorDataset
from autojit.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "WorkerInfo", "get_worker_info"]

_thread = threading.local()
_END = object()


class WorkerInfo(NamedTuple):
    """What a worker thread may ask about itself."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """About the calling worker thread; None elsewhere. Streams split their items by it."""
    return getattr(_thread, "info", None)


class DataLoader:
    """Iterates over a data set in batches; torch.utils.data.DataLoader's interface.

    ``num_workers`` threads fetch ``prefetch_factor`` batches each ahead. ``pin_memory`` puts batches into memory that a
    CUDA device reaches directly, where there is one. ``persistent_workers`` and ``in_order`` are accepted; order is
    always kept.

    Example:
        >>> import autojit as aj
        >>> from autojit.utils.data import DataLoader, TensorDataset
        >>> [batch.tolist() for (batch,) in DataLoader(TensorDataset(aj.arange(5)), batch_size=2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if multiprocessing_context is not None:
            raise ValueError("multiprocessing_context: workers are threads here; leave it out")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing. let num_workers > 0")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._is_stream = isinstance(dataset, IterableDataset)
        _check_sampling(self._is_stream, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if sampler is None and not self._is_stream:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None and not self._is_stream and sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._is_batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self._is_batched else default_convert)

    def __len__(self) -> int:
        if not self._is_stream:
            chosen: Any = self.batch_sampler if self._is_batched else self.sampler
            return len(chosen)
        count = len(self.dataset)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers:
            batches = _Workers(self).batches()
        else:
            batches = self._stream() if self._is_stream else map(self._fetch, self._keys())
        return map(_pinned, batches) if self.pin_memory and is_available("cuda") else batches

    def _keys(self) -> Iterator[Any]:
        """What to fetch: lists of indices, or single ones without batching."""
        chosen: Any = self.batch_sampler if self._is_batched else self.sampler
        return iter(chosen)

    def _fetch(self, key: Any) -> Any:
        if not self._is_batched:
            return self.collate_fn(self.dataset[key])
        if self.collate_fn is default_collate and type(self.dataset) is TensorDataset:
            return self.dataset.collated(key)
        many = getattr(self.dataset, "__getitems__", None)
        items = many(key) if many is not None else [self.dataset[index] for index in key]
        return self.collate_fn(items)

    def _stream(self) -> Iterator[Any]:
        items = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, items)
            return
        while batch := list(islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)


def _pinned(batch: Any) -> Any:
    """A batch with its tensors in pinned memory; whatever else has a method ``pin_memory`` is asked for it."""
    if isinstance(batch, Mapping):
        return {key: _pinned(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [_pinned(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch


def _check_sampling(
    is_stream: bool, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if is_stream:
        if shuffle:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
            )
        for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if value is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


class _Workers:
    """The threads of one pass over the data."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        self.seed = int(aj.randint(1 << 62, (), generator=loader.generator, device="cpu").item())
        self.threads = [
            ThreadPoolExecutor(1, "autojit-data", initializer=self._start, initargs=(place,))
            for place in range(loader.num_workers)
        ]

    def _start(self, place: int) -> None:
        loader = self.loader
        _thread.info = WorkerInfo(place, loader.num_workers, self.seed + place, loader.dataset)
        if loader.worker_init_fn is not None:
            loader.worker_init_fn(place)

    def batches(self) -> Iterator[Any]:
        try:
            yield from self._streamed() if self.loader._is_stream else self._indexed()
        finally:
            for thread in self.threads:
                thread.shutdown(wait=True, cancel_futures=True)

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result(self.loader.timeout or None)
        except TimeoutError:
            raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds") from None

    def _indexed(self) -> Iterator[Any]:
        keys = enumerate(self.loader._keys())
        waiting: deque[Future[Any]] = deque()

        def submit(count: int) -> None:
            for number, key in islice(keys, count):
                waiting.append(self.threads[number % len(self.threads)].submit(self.loader._fetch, key))

        submit(self.loader.prefetch_factor * len(self.threads))
        while waiting:
            batch = self._result(waiting.popleft())
            submit(1)
            yield batch

    def _streamed(self) -> Iterator[Any]:
        """Every worker iterates over the stream itself (and splits it by ``get_worker_info``); they take turns."""
        turns = deque((thread, thread.submit(lambda: _Stream(self.loader))) for thread in self.threads)
        sources = deque((thread, self._result(made)) for thread, made in turns)
        waiting = deque((thread, source, thread.submit(source.next)) for thread, source in sources)
        while waiting:
            thread, source, future = waiting.popleft()
            batch = self._result(future)
            if batch is not _END:
                waiting.append((thread, source, thread.submit(source.next)))
                yield batch


class _Stream:
    """One worker's own pass over a stream."""

    def __init__(self, loader: DataLoader) -> None:
        self.batches = loader._stream()

    def next(self) -> Any:
        return next(self.batches, _END)
