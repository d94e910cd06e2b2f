"""Workers that are processes: each has its own interpreter, and sends its batches in shared memory.

Batch i is made by worker i mod n, and each worker answers in the order in which it was asked, so batches are handed out
in order by waiting for the worker whose turn it is. A stream is asked in turn as well; a worker whose stream has ended
drops out.
"""

from __future__ import annotations

import os
import signal
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from autojit.utils.data.shared_batches import MOST_UNDER_WAY, packed, receive, send
from autojit.utils.data.worker_loop import Begin, Job, Task, work
from autojit.utils.data.worker_threads import Plan

_GRACE_S = 5.0  # a worker that is told to end finishes its batch; after this time it is ended


class _Worker:
    """A worker process, and the connection to it."""

    def __init__(self, context: Any, task: Task, others: list[Connection]) -> None:
        self.connection, theirs = context.Pipe(duplex=True)
        forks = context.get_start_method() == "fork"
        self.process = context.Process(
            target=work, args=(task, theirs, [*others, self.connection] if forks else []), daemon=True
        )
        self.process.start()
        theirs.close()
        self.has_ended = False


class Processes:
    """One pass over the data by worker processes, or with ``persistent_workers`` one after the other."""

    def __init__(self, plan: Plan, context: Any, in_order: bool) -> None:
        self._plan = plan
        self._in_order = in_order
        self.workers: list[_Worker] = []
        self._passes = 0
        self._end = weakref.finalize(self, _end_all, self.workers, os.getpid())
        for place in range(plan.workers):
            task = Task(place, plan.workers, plan.seed, plan.fetcher, plan.keys is None, plan.init)
            self.workers.append(_Worker(context, task, [worker.connection for worker in self.workers]))
        self._keys: Iterator[Any] | None = None
        self._turns: deque[_Worker] = deque()

    def begin(self, keys: Iterator[Any] | None) -> None:
        """Start a pass over the data; the rest of the pass before it is dropped."""
        self._passes += 1
        for worker in self.workers if self._passes > 1 else ():
            self._send(worker, Begin(self._passes))
        for worker in self.workers if self._passes > 1 else ():
            while self._received(worker) != Begin(self._passes):
                pass
            worker.has_ended = False
        self._keys = keys
        self._turns = deque()
        for _ in range(min(self._plan.ahead, MOST_UNDER_WAY)):
            for worker in self.workers:
                self._ask(worker)

    def close(self) -> None:
        """End the workers."""
        self._turns.clear()
        self._end()

    def _give_up(self) -> None:
        """End the workers at once, whatever they are doing."""
        for worker in self.workers:
            worker.process.terminate()
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the workers have ended."""
        return not self._end.alive

    def next(self) -> Any:
        """The next batch.

        Raises:
            StopIteration: there is none.
            RuntimeError: a worker was killed, or did not answer in time; then no worker is left.
            Exception: of the class that the data set raised in a worker, with the traceback from there.
        """
        while self._turns:
            worker = self._turns[0] if self._in_order else self._first_ready()
            self._turns.remove(worker)
            done = self._received(worker)
            worker.has_ended = worker.has_ended or done.has_ended
            if done.has_ended:
                continue
            self._ask(worker)
            if done.failure is not None:
                raise done.failure.raised()
            return done.value
        raise StopIteration

    def _ask(self, worker: _Worker) -> None:
        """Let a worker make one batch more, if there is one."""
        if worker.has_ended:
            return
        job = Job(None)
        if self._keys is not None:
            for key in self._keys:
                job = Job(key)
                break
            else:
                return
        self._send(worker, job)
        self._turns.append(worker)

    def _send(self, worker: _Worker, message: Any) -> None:
        try:
            send(worker.connection, packed(message))
        except OSError:
            raise self._lost() from None

    def _first_ready(self) -> _Worker:
        waiting = {worker.connection: worker for worker in self._turns}
        ready = wait([*waiting, *self._sentinels()], self._plan.timeout_s or None)
        found = [waiting[one] for one in ready if one in waiting]
        return found[0] if found else self._turns[0]  # whose answer is waited for, with the errors of that

    def _received(self, worker: _Worker) -> Any:
        """A worker's next answer; all are watched meanwhile, for one may wait for another that is no more."""
        until_s = time.monotonic() + self._plan.timeout_s
        while True:
            left_s = max(0.0, until_s - time.monotonic()) if self._plan.timeout_s else None
            ready = wait([worker.connection, *self._sentinels()], left_s)
            if worker.connection in ready:
                break
            if ready:
                raise self._lost()
            self._give_up()
            raise RuntimeError(f"DataLoader timed out after {self._plan.timeout_s} seconds")
        try:
            return receive(worker.connection)
        except (EOFError, OSError):
            raise self._lost() from None

    def _sentinels(self) -> list[int]:
        return [worker.process.sentinel for worker in self.workers]

    def _lost(self) -> RuntimeError:
        """What to raise when a worker is no more; ends the others."""
        ended = wait(self._sentinels(), _GRACE_S)
        gone = [worker.process for worker in self.workers if worker.process.sentinel in ended]
        for process in gone:
            process.join(_GRACE_S)  # it has ended, but the system may not say so yet
        told = ", ".join(f"{process.pid} {_ending(process.exitcode)}" for process in gone)
        numbers = ", ".join(str(process.pid) for process in gone)
        self._give_up()
        return RuntimeError(
            f"DataLoader worker (pid(s) {numbers}) exited unexpectedly: {told}\n"
            "  fix   with num_workers=0 the data set is read in this process, where a debugger sees it"
        )


def _ending(code: int | None) -> str:
    with suppress(ValueError):
        return f"is killed by signal: {signal.Signals(-(code or 0)).name}"
    return f"ended with code {code}"


def _end_all(workers: list[_Worker], owner: int) -> None:
    """Tell workers to end, and see that they do."""
    if os.getpid() != owner:  # a forked child has a copy of this object, but the workers are not its own
        return
    for worker in workers:
        with suppress(OSError):
            send(worker.connection, packed(None))
        worker.connection.close()
    until_s = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.process.join(max(0.0, until_s - time.monotonic()))
    for end in ("terminate", "kill"):
        for worker in workers:
            if worker.process.is_alive():
                getattr(worker.process, end)()
                worker.process.join(_GRACE_S)
