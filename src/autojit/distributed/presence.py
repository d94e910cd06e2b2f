"""Which processes of this machine have ended: the kernel says so at once, however they ended and however busy it is.

A process is known by a descriptor of it (Linux's ``pidfd_open``), which is ready to read when the process has ended,
before its parent has been told, and never stands for a later process of the same number. Where there are none, its
number is looked for.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping

LOOK_S = 0.25  # between two looks where the kernel does not tell


class Presence:
    """Some processes of this machine.

    Args:
        processes: their numbers, by whatever they are called; one that is not there now is not known, and never ends.
    """

    def __init__(self, processes: Mapping[int, int]) -> None:
        self._descriptors: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._ended: frozenset[int] = frozenset()
        for key, number in processes.items():
            try:
                self._descriptors[os.pidfd_open(number)] = key
            except ProcessLookupError:  # it has a container of its own
                continue
            except (AttributeError, OSError):
                if _is_there(number):
                    self._numbers[key] = number

    def ended(self, wait_s: float = 0.0) -> frozenset[int]:
        """Who has ended so far; waits until one more has, this long at most. Any thread may ask."""
        poll, watched = select.poll(), self._descriptors
        for descriptor, key in watched.items():
            if key not in self._ended:
                poll.register(descriptor, select.POLLIN)
        told = poll.poll(1000 * (min(wait_s, LOOK_S) if self._numbers else wait_s))
        found = {watched[descriptor] for descriptor, event in told if event & select.POLLIN}
        found |= {key for key, number in self._numbers.items() if not _is_there(number)}
        self._ended |= found
        return self._ended

    def close(self) -> None:
        """Know nobody any more."""
        descriptors, self._descriptors, self._numbers = self._descriptors, {}, {}
        for descriptor in descriptors:
            os.close(descriptor)


def _is_there(number: int) -> bool:
    try:
        os.kill(number, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
