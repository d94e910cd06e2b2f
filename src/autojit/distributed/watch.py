"""The watchdog: says which ranks have not come to a collective that others wait in, and ends the job.

Every rank counts its calls per group in a table that all ranks of one machine see. A thread looks at the present call
of its own rank once a second; when it has lasted longer than the time-out, it prints the op, what it was for (a bucket,
say) and the ranks that are not there, and ends the process, upon which the launcher ends the others.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from autojit.core.communicator import COLLECTIVES

GROUPS = 64  # counters per rank; further groups share them, and only the text of the watchdog gets less exact
EXIT_STATUS = 124  # as of timeout(1)


class Watch:
    """What one process waits for.

    Args:
        near: the ranks of this machine, which share a table of counters, in the table's order.
        me: this process's number among all.
        hosts: where each rank runs.
    """

    def __init__(self, near: Sequence[int], me: int, size: int, hosts: Sequence[str], timeout_s: float) -> None:
        self.rows = {rank: row for row, rank in enumerate(near)}
        self.me, self.hosts = me, hosts
        self.timeout_s = timeout_s
        self.members: list[Sequence[int]] = []
        self.counters: Any = np.zeros((len(near), GROUPS), np.int64)
        self.inside: Any = np.zeros(GROUPS, np.int64)  # by group: which collective a compiled step is in, 0: none
        self.seen: tuple[tuple[int, int, int], float] | None = None  # such a call, and since when it was looked at
        self.purpose = ""
        self.now: tuple[float, int, str] | None = None
        self.size = size
        self.thread: threading.Thread | None = None
        self.is_closed = threading.Event()

    def open(self, broadcast: Callable[..., Any], barrier: Callable[[], None]) -> None:
        """Share the table with the other ranks of this machine; it has no name from then on."""
        is_first = self.rows[self.me] == 0
        path = ""
        if is_first:
            file, path = tempfile.mkstemp(
                prefix="autojit-watch-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
            )
            os.ftruncate(file, max(self.counters.nbytes, 1))
            os.close(file)
        path = broadcast(path)
        with open(path, "r+b") as shared:
            memory = mmap.mmap(shared.fileno(), self.counters.nbytes)
        barrier()
        if is_first:
            os.unlink(path)
        self.counters = np.frombuffer(memory, np.int64).reshape(self.counters.shape)
        if self.size > 1 and self.timeout_s > 0:
            self.thread = threading.Thread(target=self._look, name="autojit-watchdog", daemon=True)
            self.thread.start()

    def close(self) -> None:
        """Stop looking."""
        self.is_closed.set()

    def new_group(self, members: Sequence[int]) -> int:
        """The number of a group; all ranks make the same groups in the same order."""
        self.members.append(members)
        return len(self.members) - 1

    @contextmanager
    def waiting(self, group: int, name: str) -> Iterator[None]:
        """While inside, this rank is in a collective."""
        self.counters[self.rows[self.me], group % GROUPS] += 1
        self.now = (time.monotonic(), group, name)
        try:
            yield
        finally:
            self.now = None

    def words(self, group: int) -> dict[str, int]:
        """Where compiled steps say that they are in a collective: `NativeCollectives.counter` and ``inside``."""
        place = self.rows[self.me], group % GROUPS
        counter = self.counters.ctypes.data + 8 * (place[0] * GROUPS + place[1])
        return {"counter": int(counter), "inside": int(self.inside.ctypes.data + 8 * place[1])}

    def compiled(self) -> tuple[float, int, str] | None:
        """Since when a compiled step has been in a collective, in which group, and its name."""
        (places,) = self.inside.nonzero()
        if not len(places):
            self.seen = None
            return None
        group = int(places[0])
        call = group, int(self.inside[group]), int(self.counters[self.rows[self.me], group])
        if self.seen is None or self.seen[0] != call:
            self.seen = call, time.monotonic()
        return self.seen[1], group, COLLECTIVES[call[1] - 1]

    @contextmanager
    def for_purpose(self, purpose: str) -> Iterator[None]:
        """What the collectives inside are for, in the watchdog's words."""
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    def missing(self, group: int) -> list[int]:
        """Which ranks of this machine have made fewer calls in a group than this one."""
        column = self.counters[:, group % GROUPS]
        mine = column[self.rows[self.me]]
        return [rank for rank in self.members[group] if rank in self.rows and column[self.rows[rank]] < mine]

    def report(self, since: float, group: int, name: str) -> str:
        """What the watchdog prints."""
        missing = self.missing(group)
        members = self.members[group]
        far = [r for r in members if r not in self.rows]
        who = ", ".join(f"{rank} on {self.hosts[rank]}" for rank in missing) or "none of this machine"
        lines = [
            f"autojit: rank {self.me} on {self.hosts[self.me]} has waited {time.monotonic() - since:.0f} s in {name}"
            + (f" for {self.purpose}" if self.purpose else ""),
            f"  call     {self.counters[self.rows[self.me], group % GROUPS]} of this rank in a group of {len(members)}",
            f"  missing  ranks {who}",
        ]
        if far:
            lines.append(f"  unknown  ranks {', '.join(map(str, far))}, which are on other machines")
        lines.append(
            "  fix      let all ranks make the same collectives in the same order; a longer timeout= waits longer"
        )
        return "\n".join(lines)

    def _look(self) -> None:
        while not self.is_closed.wait(min(1.0, self.timeout_s / 4)):
            now = self.now or self.compiled()
            if now is None or time.monotonic() - now[0] < self.timeout_s or sys.gettrace() is not None:
                continue
            print(self.report(*now), file=sys.stderr, flush=True)  # noqa: T201  (all that is left to do)
            os._exit(EXIT_STATUS)
