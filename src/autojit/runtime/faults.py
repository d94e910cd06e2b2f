"""Faults planted behind kernels: what a step does when its k-th kernel fails, whatever the data.

While `planting`, every plan that is written gets a *site* behind each entry that may fail, also in the bodies of loops
and branches. A site that is armed reports an error as the kernel in front of it would. For tests of the promise that a
step that fails changes nothing (docs/design/failing_steps.md); plans written at other times have no sites.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autojit.core.errors import UsageError
from autojit.runtime.callbacks import kept_address
from autojit.runtime.failures import Failures


class PlantedError(UsageError):
    """What an armed site raises."""


class Faults:
    """The sites of the plans written while it was planted, in the order of writing: inner plans first.

    Args:
        labels: what the kernel in front of each site does.
    """

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.passed: list[int] = []  # how often each was reached since it was last armed
        self._armed: tuple[int, int] | None = None
        self._keep: list[Any] = []

    @contextmanager
    def armed(self, site: int, after: int = 0) -> Iterator[None]:
        """Inside, a site fails when it has been passed ``after`` times (in the rounds of a loop)."""
        self._armed = site, after
        self.passed = [0] * len(self.labels)
        try:
            yield
        finally:
            self._armed = None

    def plant(self, label: str, failures: Failures) -> int:
        """Address of the body of a new site, which has neither context nor chunks."""
        site = len(self.labels)
        self.labels.append(label)
        self.passed.append(0)

        def body(context: int, chunk: int, worker: int) -> None:
            if self._armed == (site, self.passed[site]):
                failures.caught(PlantedError(f"planted behind {label}"))
            self.passed[site] += 1

        return kept_address(body, self._keep)


@contextmanager
def planting() -> Iterator[Faults]:
    """Plans written inside get sites."""
    faults = Faults()
    _planted.append(faults)
    try:
        yield faults
    finally:
        _planted.remove(faults)


def planted() -> Faults | None:
    """Whose sites a plan gets that is written now."""
    return _planted[-1] if _planted else None


_planted: list[Faults] = []
