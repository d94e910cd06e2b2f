"""Python's ``multiprocessing`` with ``spawn``; tensors go to other processes as copies, if not by `share_memory_`.

Names of Python's module that are not here are found in it: ``Process``, ``Queue``, ``Pool``, ``get_context``, ...
"""

from __future__ import annotations

import multiprocessing as _python
import traceback
from collections.abc import Callable
from typing import Any

from autojit.core.communicator import joined as _joined
from autojit.core.lazy_modules import LazyNames as _LazyNames
from autojit.core.rank_process import launched_rank as _launched_rank

__all__ = [
    "ProcessContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

_strategy = "file_system"


class ProcessContext:
    """Processes that ``start_processes`` started."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes = processes
        self._errors = errors

    def pids(self) -> list[int]:
        """The numbers by which the system knows them."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Wait for all of them; whether they have ended.

        Raises:
            RuntimeError: one of them failed; the message has its traceback. The others are ended.
        """
        for process in self.processes:
            process.join(timeout)
        for rank, process in enumerate(self.processes):
            if process.exitcode not in (0, None):
                for other in self.processes:
                    if other.is_alive():
                        other.terminate()
                reason = self._errors[rank].get() if not self._errors[rank].empty() else f"code {process.exitcode}"
                raise RuntimeError(f"Process {rank} terminated with the following error:\n{reason}")
        return all(process.exitcode == 0 for process in self.processes)


def _run(function: Callable[..., Any], rank: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        function(rank, *args)
    except Exception:
        errors.put(traceback.format_exc())
        raise SystemExit(1) from None


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call ``fn(rank, *args)`` in ``nprocs`` processes; with ``join`` wait for them, else give their context.

    A program that ``python -m autojit.launch -n nprocs`` has started is there ``nprocs`` times already. Each of its
    processes then calls the function itself, as the rank that it is, unless it has joined the others before.

    Raises:
        RuntimeError: a process failed.
    """
    launched = _launched_rank()
    if launched is not None and launched[1] == nprocs > 1 and _joined("world") is None:
        fn(launched[0], *args)
        return None if join else ProcessContext([], [])
    context: Any = _python.get_context(start_method)
    errors = [context.SimpleQueue() for _ in range(nprocs)]
    started = []
    for rank in range(nprocs):
        process = context.Process(target=_run, args=(fn, rank, args, errors[rank]), daemon=daemon)
        process.start()
        started.append(process)
    running = ProcessContext(started, errors)
    if not join:
        return running
    running.join()
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """``start_processes`` in fresh interpreters.

    Raises:
        RuntimeError: a process failed.
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """What ``set_sharing_strategy`` takes."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    """What ``set_sharing_strategy`` was given last; shared memory has no name in any case."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Remember how tensors should be shared.

    Raises:
        ValueError: an unknown strategy.
    """
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"unknown sharing strategy {new_strategy!r}: file_system or file_descriptor")
    _strategy = new_strategy


__getattr__ = _LazyNames(__name__, others="multiprocessing")
