"""DataLoader: batches of a data set, fetched here or ahead of time by worker processes or threads.

What a worker does is in ``fetching.py``; ``worker_processes.py`` and ``worker_threads.py`` are the two kinds of
workers. Batches are handed out in order, so the number of workers changes nothing but the speed.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any

import autojit as aj
from autojit.core.absent_class import WithoutInstances
from autojit.core.device import is_available
from autojit.core.user_warnings import warn
from autojit.utils.data.collate import default_collate, default_convert
from autojit.utils.data.dataset import IterableDataset
from autojit.utils.data.fetching import Fetcher
from autojit.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from autojit.utils.data.worker_info import WorkerInfo, get_worker_info
from autojit.utils.data.worker_processes import Processes
from autojit.utils.data.worker_threads import Plan, thread_batches

__all__ = ["DataLoader", "WorkerInfo", "get_worker_info"]

_collate_fn_t = Callable[[list[Any]], Any]  # torch's name, which libraries annotate with
THREADS = "thread"
"""What ``multiprocessing_context`` is given for workers that are threads."""


class _BaseDataLoaderIter(WithoutInstances):
    """What libraries ask an iterator of torch's loader by ``isinstance``; ours are Python's own generators."""

    what = "iterators of torch's"
    instead = "iter(loader)"


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    pass


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    pass


class DataLoader:
    """Iterates over a data set in batches; torch.utils.data.DataLoader's interface.

    ``num_workers`` processes fetch ``prefetch_factor`` batches each ahead, and hand them over in shared memory. Worker
    i seeds ``random``, NumPy and autojit with ``get_worker_info().seed``, a number of ``generator`` plus i.
    ``persistent_workers`` keeps them from one pass over the data to the next. What the data set raises is raised here,
    with the number of the sample and the traceback from there; a worker that is killed, or does not answer within
    ``timeout`` seconds, is a RuntimeError. ``multiprocessing_context`` is ``"fork"``, ``"spawn"``, ``"forkserver"`` or
    a context of Python's; with ``"thread"`` workers are threads of this process, which start at once and copy nothing.
    ``pin_memory`` puts batches into memory that a CUDA device reaches directly, where there is one.
    ``in_order=False`` takes batches of processes as they come.

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
        _check_workers(num_workers, prefetch_factor, persistent_workers)
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
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
        self._processes: Processes | None = None  # those that persist
        self._told_length: int | None = None  # of a stream, once it was asked for
        self._is_made = True
        _warn_of_many(num_workers, self.multiprocessing_context)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTLED and getattr(self, "_is_made", False):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are put together in batches, under the name that libraries ask for."""
        return self._is_batched

    def __len__(self) -> int:
        if not self._is_stream:
            chosen: Any = self.batch_sampler if self._is_batched else self.sampler
            return len(chosen)
        count = self._told_length = len(self.dataset)
        if self.batch_size is not None:
            count = count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return count

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers:
            batches = self._batches_of_workers()
        else:
            fetcher = self._fetcher()
            batches = self._watched(fetcher.stream()) if self._is_stream else map(fetcher.fetch, self._keys())
        return map(_pinned, batches) if self.pin_memory and is_available("cuda") else batches

    def _keys(self) -> Iterator[Any]:
        """What to fetch: lists of indices, or single ones without batching."""
        chosen: Any = self.batch_sampler if self._is_batched else self.sampler
        return iter(chosen)

    def _fetcher(self) -> Fetcher:
        return Fetcher(self.dataset, self.collate_fn, self._is_batched, self.batch_size, self.drop_last)

    def _batches_of_workers(self) -> Iterator[Any]:
        seed = int(aj.randint(1 << 62, (), generator=self.generator, device="cpu").item())
        keys = None if self._is_stream else self._keys()
        plan = Plan(
            self._fetcher(), keys, self.num_workers, seed, self.prefetch_factor or 0, self.timeout, self.worker_init_fn
        )
        if self.multiprocessing_context == THREADS:
            return self._watched(thread_batches(plan)) if self._is_stream else thread_batches(plan)
        processes = self._processes
        if processes is None or processes.is_closed:
            processes = Processes(plan, self.multiprocessing_context, self.in_order)
            self._processes = processes if self.persistent_workers else None
        processes.begin(keys)
        return ProcessBatches(processes, self.persistent_workers, partial(self._warn_of_length, self._limit()))

    def _limit(self) -> int | None:
        """How many batches users of a stream were told of."""
        return None if self._told_length is None else len(self)

    def _watched(self, batches: Iterator[Any]) -> Iterator[Any]:
        limit = self._limit()
        return batches if limit is None else self._counted(batches, limit)

    def _counted(self, batches: Iterator[Any], limit: int) -> Iterator[Any]:
        for count, batch in enumerate(batches, start=1):
            self._warn_of_length(limit, count)
            yield batch

    def _warn_of_length(self, limit: int | None, count: int) -> None:
        """A stream that goes on after as many batches as its length said."""
        if limit is None or count <= limit:
            return
        message = (
            f"Length of IterableDataset {self.dataset} was reported to be {limit} (when accessing len(dataloader)), "
            f"but {count} samples have been fetched. "
        )
        if self.num_workers:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker: get_worker_info() says which part is a worker's"
            )
        warn(message)


_SETTLED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
"""What else was made of at the start: a new value would be believed by nobody."""


def _warn_of_many(count: int, context: Any) -> None:
    """More processes than there are processors wait for each other."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or count
    if context != THREADS and count > most:
        warn(
            f"This DataLoader will create {count} worker processes in total. Our suggested max number of worker in "
            f"current system is {most}, which is smaller than what this DataLoader is going to create. Please be aware "
            "that excessive worker creation might get DataLoader running slow or even freeze, lower the worker number "
            "to avoid potential slowness/freeze if necessary."
        )


class ProcessBatches:
    """The iterator over one pass that worker processes make."""

    def __init__(self, processes: Processes, persist: bool, watch: Callable[[int], None]) -> None:
        self._processes = processes
        self._persist = persist
        self._watch = watch
        self._count = 0

    @property
    def _workers(self) -> list[Any]:
        """The processes, under the name that libraries ask for."""
        return [worker.process for worker in self._processes.workers]

    def __iter__(self) -> ProcessBatches:
        return self

    def __next__(self) -> Any:
        try:
            batch = self._processes.next()
        except StopIteration:
            if not self._persist:
                self.close()
            raise
        self._count += 1
        self._watch(self._count)
        return batch

    def close(self) -> None:
        """End the workers now; otherwise they end with the pass, or with this object."""
        self._processes.close()


def _check_workers(count: int, prefetch_factor: int | None, persistent: bool) -> None:
    if count == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing. let num_workers > 0")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if count == 0 and persistent:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _context(given: Any, count: int) -> Any:
    """The context of Python's that is meant, or `THREADS`; None without workers."""
    if given is None and count == 0:
        return None
    if count == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={count}"
        )
    if given is None:
        return multiprocessing.get_context()
    if isinstance(given, str):
        known = (*multiprocessing.get_all_start_methods(), THREADS)
        if given not in known:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {list(known)!r}, but got "
                f"multiprocessing_context={given!r}"
            )
        return given if given == THREADS else multiprocessing.get_context(given)
    if not isinstance(given, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={given!r}"
        )
    return given


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
