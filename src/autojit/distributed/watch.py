"""The watchdog: says which ranks have not come to a collective that others wait in, or are dead, and ends the job.

Every rank counts its calls per group in a table that all ranks of one machine see. A thread looks at the present call
of its own rank once a second; when it has lasted longer than the time-out, it prints the op, what it was for (a bucket,
say) and the ranks that are not there, and ends the process, upon which the launcher ends the others.

The same thread is told by the kernel when a rank of this machine has ended (`presence`). MPI mostly knows as well, and
lets the call fail. A call that waits on after `INTERRUPT_S` is interrupted, and a process that cannot be freed is ended
after `END_S`: whoever waits raises, or ends, within that time, whatever MPI notices.
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
from autojit.distributed.presence import Presence

GROUPS = 64  # counters per rank; further groups share them, and only the text of the watchdog gets less exact
PROCESS = GROUPS  # the column of the process's number; 0 where a rank has left
EXIT_STATUS = 124  # as of timeout(1)
INTERRUPT_S = 0.5  # MPI itself has needed 0.35 s at most, on two cores with 15 processes that wanted to run
END_S = 2.0  # both from the end of a rank, or from the call if that was later


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
        self.counters: Any = np.zeros((len(near), GROUPS + 1), np.int64)
        self.inside: Any = np.zeros(GROUPS, np.int64)  # by group: which collective a compiled step is in, 0: none
        self.seen: tuple[tuple[int, int, int], float] | None = None  # such a call, and since when it was looked at
        self.purpose = ""
        self.now: tuple[float, int, str] | None = None
        self.size = size
        self.thread: threading.Thread | None = None
        self.is_closed = threading.Event()
        self.presence = Presence({})
        self.lost: frozenset[int] = (
            frozenset()
        )  # ranks of this machine that have ended, as far as this process was told
        self.goes_on = False  # ranks go on without those that are lost (`autojit.elastic`)
        self.interrupt: Callable[[], None] | None = None  # lets calls of this process fail, from any thread

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
        self.counters = np.frombuffer(memory, np.int64).reshape(self.counters.shape)
        self.counters[self.rows[self.me], PROCESS] = os.getpid()
        barrier()
        if is_first:
            os.unlink(path)
        others = {rank: int(self.counters[row, PROCESS]) for rank, row in self.rows.items() if rank != self.me}
        self.presence = Presence(others)
        if self.size > 1:
            self.thread = threading.Thread(target=self._look, name="autojit-watchdog", daemon=True)
            self.thread.start()

    def close(self, is_orderly: bool = False) -> None:
        """Stop looking; ``is_orderly``: this rank may end without being missed."""
        self.is_closed.set()
        self.presence.close()
        if is_orderly:
            self.counters[self.rows[self.me], PROCESS] = 0

    def look(self) -> frozenset[int]:
        """Which ranks of this machine have ended and not left before."""
        return self._missed(self.presence.ended())

    def _missed(self, ended: frozenset[int]) -> frozenset[int]:
        return frozenset([rank for rank in ended if self.counters[self.rows[rank], PROCESS]])

    def new_group(self, members: Sequence[int]) -> int:
        """The number of a group; all ranks make the same groups in the same order."""
        self.members.append(members)
        return len(self.members) - 1

    @contextmanager
    def waiting(self, group: int, name: str, is_look: bool = False) -> Iterator[None]:
        """While inside, this rank is in a collective, or looks whether one is done."""
        self.counters[self.rows[self.me], group % GROUPS] += not is_look
        self.now = (time.monotonic(), group, name)
        try:
            yield
        finally:
            self.now = None

    def words(self, group: int) -> dict[str, int]:
        """Where compiled steps say that they are in a collective: `NativeCollectives.counter` and ``inside``."""
        place = self.rows[self.me], group % GROUPS
        counter = self.counters.ctypes.data + 8 * (place[0] * (GROUPS + 1) + place[1])
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
        lost_at, is_interrupted = 0.0, False
        pause_s = min(1.0, self.timeout_s / 4) if self.timeout_s > 0 else 1.0
        while not self.is_closed.is_set():
            found = self._missed(self.presence.ended(INTERRUPT_S / 4 if self.lost else pause_s))
            if found != self.lost:
                self.lost, lost_at, is_interrupted = found, time.monotonic(), False
            now = self.now or self.compiled()
            if now is None or self.is_closed.is_set() or sys.gettrace() is not None:
                continue
            if self.timeout_s > 0 and time.monotonic() - now[0] > self.timeout_s:
                self._end(self.report(*now))
            waited_s = time.monotonic() - max(now[0], lost_at)
            if self.lost and waited_s > INTERRUPT_S and not is_interrupted and self.interrupt is not None:
                is_interrupted = True
                self.interrupt()
            if self.lost and waited_s > END_S and self._is_hopeless(now[1]):
                self._end(self.told_of(now[2]))

    def _is_hopeless(self, group: int) -> bool:
        """Whether nobody will come for this rank. Where others go on without the dead, one may only be late."""
        return not self.goes_on or self.lost >= set(self.missing(group))

    def told_of(self, name: str) -> str:
        """What is printed of ranks that have ended, where the program cannot be told."""
        who = ", ".join(f"rank {rank} on {self.hosts[rank]}" for rank in sorted(self.lost))
        me = f"rank {self.me} on {self.hosts[self.me]}"
        return f"autojit: {me} waits in {name}, but {who} has failed; it ends, as MPI does not return"

    def _end(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201  (all that is left to do)
        os._exit(EXIT_STATUS)
