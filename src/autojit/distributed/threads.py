"""A world of threads: programs for several ranks run in one process, every rank on a thread of its own.

For tests: the collectives are NumPy's, nothing is installed or started. Compiled steps belong to the rank that makes
them, so a program makes its own; ranks that share a step would wait for it and for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.core.communicator import Combination, Ndarray, ThreadAsRank
from autojit.core.errors import UsageError

__all__ = ["ThreadRank", "run_ranks"]

UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


class _Meeting:
    """Where the ranks of a group exchange what they have."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.barrier = threading.Barrier(size)
        self.timeout_s = timeout_s
        self.slots: list[tuple[str, Any]] = [("", None)] * size

    def exchange(self, rank: int, call: str, given: Any) -> list[Any]:
        """What every rank gives to the same call.

        Raises:
            UsageError: they make different calls; BrokenBarrierError: one has failed, or does not come.
        """
        self.slots[rank] = call, given
        self.barrier.wait(self.timeout_s)
        slots = list(self.slots)
        self.barrier.wait(self.timeout_s)
        calls = {call for call, _ in slots}
        if len(calls) > 1:
            raise UsageError(
                "the ranks of a group call different collectives",
                {f"rank {r}": call for r, (call, _) in enumerate(slots)},
                "let all ranks make the same calls in the same order",
            )
        return [given for _, given in slots]


class ThreadRank:
    """One rank of a group of threads: a `core.communicator.Communicator` without a native form."""

    def __init__(self, name: str, rank: int, size: int, meeting: _Meeting) -> None:
        self.name, self.rank, self.size, self.meeting = name, rank, size, meeting

    def all_reduce(self, buffer: Ndarray, op: Combination) -> None:
        """See `Communicator`; ranks are combined in their order."""
        parts = self._meet(f"all_reduce {op} {buffer.dtype}{list(buffer.shape)}", buffer.copy())
        buffer[...] = _combined(parts, op)

    def all_gather(self, result: Ndarray, part: Ndarray) -> None:
        """See `Communicator`."""
        for k, found in enumerate(self._meet(f"all_gather {part.dtype}{list(part.shape)}", part.copy())):
            result[k] = found

    def reduce_scatter(self, result: Ndarray, parts: Ndarray, op: Combination) -> None:
        """See `Communicator`."""
        given = self._meet(f"reduce_scatter {op} {parts.dtype}{list(parts.shape)}", parts.copy())
        result[...] = _combined([p[self.rank] for p in given], op)

    def all_to_all(self, result: Ndarray, parts: Ndarray) -> None:
        """See `Communicator`."""
        for k, found in enumerate(self._meet(f"all_to_all {parts.dtype}{list(parts.shape)}", parts.copy())):
            result[k] = found[self.rank]

    def broadcast(self, buffer: Ndarray, root: int) -> None:
        """See `Communicator`."""
        buffer[...] = self._meet(f"broadcast {root} {buffer.dtype}{list(buffer.shape)}", buffer.copy())[root]

    def send_recv(self, result: Ndarray | None, buffer: Ndarray | None, to: int | None, source: int | None) -> None:
        """See `Communicator`; here every rank of the group takes part."""
        given = self._meet("send_recv", (to, None if buffer is None else buffer.copy()))
        if source is not None and result is not None:
            result[...] = given[source][1]

    def barrier(self) -> None:
        """See `Communicator`."""
        self._meet("barrier", None)

    def split(self, color: int | None, key: int, name: str) -> ThreadRank | None:
        """See `Communicator`."""
        given = self._meet("split", (color, key))
        chosen = [r for r, (c, _) in enumerate(given) if c == color]
        chosen.sort(key=lambda r: (given[r][1], r))
        made = _Meeting(len(chosen), self.meeting.timeout_s) if self.rank == chosen[0] else None
        meeting = self._meet("split", made)[chosen[0]]
        return None if color is None else ThreadRank(name, chosen.index(self.rank), len(chosen), meeting)

    def native(self) -> None:
        """No native form: compiled steps call back."""

    def _meet(self, call: str, given: Any) -> list[Any]:
        return self.meeting.exchange(self.rank, call, given)


def _combined(parts: Sequence[Ndarray], op: Combination) -> Ndarray:
    total = parts[0].copy()
    for part in parts[1:]:
        UFUNCS[op](total, part, out=total)
    return total


def run_ranks(
    size: int, program: Callable[[ThreadRank], Any], name: str = "world", timeout_s: float = 60.0
) -> list[Any]:
    """What ``program(rank)`` gives on every rank of a group, each on its own thread.

    Args:
        name: of the group, by which collectives in the program find it.
        timeout_s: how long a rank waits for the others.

    Raises:
        whatever a rank has raised; the lowest one's, of those that did not only wait for others.

    Example:
        >>> import numpy as np
        >>> def program(world):
        ...     total = np.array([world.rank + 1.0])
        ...     world.all_reduce(total, "sum")
        ...     return float(total[0])
        >>> run_ranks(3, program)
        [6.0, 6.0, 6.0]
    """
    meeting = _Meeting(size, timeout_s)
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def run(rank: ThreadRank) -> None:
        try:
            with ThreadAsRank(rank):
                results[rank.rank] = program(rank)
        except BaseException as error:
            errors[rank.rank] = error
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(ThreadRank(name, r, size, meeting),)) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        own = [e for _, e in sorted(errors.items()) if not isinstance(e, threading.BrokenBarrierError)]
        raise own[0] if own else errors[min(errors)]
    return results
