"""What a worker of a DataLoader knows about itself."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerInfo", "get_worker_info"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which of how many workers this is, its seed, and its own copy of the data set."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    worker_method: str = "multiprocessing"


class _Present(threading.local):
    """The worker that a thread is; in a worker process, all of its threads are that worker."""

    info: WorkerInfo | None = None


_thread = _Present()


def get_worker_info() -> WorkerInfo | None:
    """About the worker that calls; None elsewhere. Streams split their items by it.

    Example:
        >>> from autojit.utils.data import get_worker_info
        >>> get_worker_info() is None
        True
    """
    return _thread.info


def be_worker(info: WorkerInfo, whole_process: bool) -> None:
    """Say that the calling thread, or the whole process, is a worker from now on."""
    if whole_process:
        _Present.info = info
    else:
        _thread.info = info
