"""Workers that are threads: they share all memory, and run at the same time where Python's lock is let go of.

Each worker is one thread with a queue of its own; batch i belongs to worker i mod n, and batches are handed out in
order, so the number of workers changes nothing but the speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

from autojit.utils.data.fetching import Fetcher
from autojit.utils.data.worker_info import WorkerInfo, be_worker

_END = object()


class Plan(NamedTuple):
    """One pass over the data, as workers need it: threads and processes alike."""

    fetcher: Fetcher
    keys: Iterator[Any] | None
    """What to fetch, in order; None of a stream."""
    workers: int
    """How many workers there are."""
    seed: int
    """Worker i starts its random numbers from ``seed + i``."""
    ahead: int
    """Batches that each worker makes before they are asked for."""
    timeout_s: float
    init: Callable[[int], None] | None


def thread_batches(plan: Plan) -> Iterator[Any]:
    """The batches of one pass, made by threads."""
    return _Threads(plan).batches()


class _Threads:
    """The threads of one pass over the data."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.threads = [
            ThreadPoolExecutor(1, "autojit-data", initializer=self._start, initargs=(place,))
            for place in range(plan.workers)
        ]

    def _start(self, place: int) -> None:
        plan = self.plan
        be_worker(
            WorkerInfo(place, plan.workers, plan.seed + place, plan.fetcher.dataset, "thread"), whole_process=False
        )
        if plan.init is not None:
            plan.init(place)

    def batches(self) -> Iterator[Any]:
        try:
            yield from self._streamed() if self.plan.keys is None else self._indexed(self.plan.keys)
        finally:
            for thread in self.threads:
                thread.shutdown(wait=True, cancel_futures=True)

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result(self.plan.timeout_s or None)
        except TimeoutError:
            raise RuntimeError(f"DataLoader timed out after {self.plan.timeout_s} seconds") from None

    def _indexed(self, given: Iterator[Any]) -> Iterator[Any]:
        keys = enumerate(given)
        waiting: deque[Future[Any]] = deque()

        def submit(count: int) -> None:
            for number, key in islice(keys, count):
                waiting.append(self.threads[number % len(self.threads)].submit(self.plan.fetcher.fetch, key))

        submit(self.plan.ahead * len(self.threads))
        while waiting:
            batch = self._result(waiting.popleft())
            submit(1)
            yield batch

    def _streamed(self) -> Iterator[Any]:
        """Every worker iterates over the stream itself (and splits it by ``get_worker_info``); they take turns."""
        turns = deque((thread, thread.submit(lambda: _Stream(self.plan.fetcher))) for thread in self.threads)
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

    def __init__(self, fetcher: Fetcher) -> None:
        self.batches = fetcher.stream()

    def next(self) -> Any:
        return next(self.batches, _END)
