"""What a worker process of a DataLoader does: it is sent what to fetch, and sends back batches."""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit.utils.data.fetching import Fetcher
from autojit.utils.data.shared_batches import packed, receive, send
from autojit.utils.data.worker_info import WorkerInfo, be_worker


class Begin(NamedTuple):
    """A pass over the data begins; what was asked for before is not wanted any more."""

    number: int


class Job(NamedTuple):
    """Make the batch of a key, or the next one of a stream."""

    key: Any


class Done(NamedTuple):
    """A batch; that the stream has ended; or why there is none."""

    value: Any = None
    has_ended: bool = False
    failure: Failure | None = None


class Failure(NamedTuple):
    """An exception in a worker: its class, what it was doing, and its traceback as text."""

    kind: type[BaseException]
    doing: str
    text: str

    def raised(self) -> BaseException:
        """An exception of the same class that tells all of it; a RuntimeError where the class takes no message."""
        message = f"Caught {self.kind.__name__} {self.doing}.\nOriginal {self.text}"
        if issubclass(self.kind, StopIteration):  # which would end the loop that it is raised in
            return RuntimeError(message)
        try:
            return self.kind(_Shown(message) if issubclass(self.kind, KeyError) else message)
        except Exception:
            return RuntimeError(message)


class _Shown(str):
    """Text that KeyError, which shows the ``repr`` of its argument, shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Task(NamedTuple):
    """What a worker process is told when it starts."""

    place: int
    workers: int
    seed: int
    fetcher: Fetcher
    is_stream: bool
    init: Any


def work(task: Task, connection: Connection, not_mine: list[Connection]) -> None:
    """Be worker ``task.place`` until the DataLoader says that this is all, or is gone."""
    for other in not_mine:  # inherited by fork; while they are open here, other workers do not see that theirs ends
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends its workers
    failure = None
    try:
        _prepare(task)
    except Exception as error:
        failure = _failure(error, f"in worker_init_fn of DataLoader worker process {task.place}")
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(task, connection, failure)


def _prepare(task: Task) -> None:
    """One thread, random numbers of its own, and what the user wants done first."""
    os.environ["AUTOJIT_NUM_THREADS"] = "1"
    if "autojit.runtime.pool" in sys.modules:  # not for its own sake: importing it would cost more than most batches
        aj.set_num_threads(1)
    seed = task.seed + task.place
    random.seed(seed)
    aj.manual_seed(seed)
    np.random.seed(np.random.SeedSequence([task.place, task.seed]).generate_state(4))  # noqa: NPY002  # what data sets draw from
    be_worker(WorkerInfo(task.place, task.workers, seed, task.fetcher.dataset), whole_process=True)
    if task.init is not None:
        task.init(task.place)


def _serve(task: Task, connection: Connection, failure: Failure | None) -> None:
    parent = parent_process()
    watched: list[Any] = [connection] if parent is None else [connection, parent.sentinel]
    batches: Iterator[Any] | None = None
    while connection in wait(watched):
        job = receive(connection)
        if job is None:
            return
        if isinstance(job, Begin):
            batches = None
            send(connection, packed(job))
            continue
        done = Done(failure=failure)
        if failure is None:
            try:
                batches = task.fetcher.stream() if batches is None and task.is_stream else batches
                done = _next_of(batches) if batches is not None else Done(task.fetcher.fetch(job.key))
            except Exception as error:
                done = Done(failure=_failure(error, f"in DataLoader worker process {task.place}"))
        send(connection, _packed(done, task.place))


def _next_of(batches: Iterator[Any]) -> Done:
    for batch in batches:
        return Done(batch)
    return Done(has_ended=True)


def _packed(done: Done, place: int) -> list[memoryview]:
    try:
        return packed(done)
    except Exception as error:  # the batch has something in it that no other process can have
        return packed(Done(failure=_failure(error, f"sending a batch from DataLoader worker process {place}")))


def _failure(error: BaseException, doing: str) -> Failure:
    kind = type(error)
    text = "".join(traceback.format_exception(error))
    try:
        packed(kind)
    except Exception:  # a class that no other process knows
        kind = RuntimeError
    return Failure(kind, doing, text)
