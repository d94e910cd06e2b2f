"""Times of a compiled function's calls, taken while somebody asks for them: ``with step.timing() as timing``.

While the block is open a Python frame stands in front of the step's native entry and reads the clock before and after
it; outside of blocks nothing is there. One call of several runs kernel by kernel, with a stop after each: that gives
the kernels' times, and does not count as a call's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from autojit.core.errors import ArgumentError, UsageError
from autojit.runtime.kernel_timing import KernelRow, watching
from autojit.tensor.state import state

if TYPE_CHECKING:
    from autojit.jit.function import JitFunction

KEPT = 100_000  # calls, the last ones: 0.8 MB
PERCENTILES = (50, 90, 99)
KERNELS_EVERY = 8
FIRST_BY_KERNELS = 2  # the first call may capture, the second is the first to be native
SHOWN_KERNELS = 12
MS, US = 1e6, 1e3  # in ns


class KernelTime(NamedTuple):
    """What a kernel took: its row, and the times of its runs in ns."""

    row: KernelRow
    elapsed_ns: list[int]

    @property
    def median_ns(self) -> float:
        return float(np.median(self.elapsed_ns))


class Timing:
    """Times of calls and of kernels. Calls that captured or compiled are counted, and not among the times.

    Args:
        function: whose calls are timed.
        kernels_every: one of so many calls runs kernel by kernel; 0 for none.
    """

    def __init__(self, function: JitFunction, kernels_every: int) -> None:
        if type(kernels_every) is not int or kernels_every < 0 or kernels_every == 1:
            raise ArgumentError(
                "timing: kernels_every is 0 (no kernels) or at least 2",
                {"kernels_every": kernels_every},
                "leave it out, or give the number of calls of which one runs kernel by kernel",
            )
        self.function = function
        self.kernels_every = kernels_every
        self.calls_ns: deque[int] = deque(maxlen=KEPT)
        self.captures = 0
        self.by_kernels = 0
        self.kernels: dict[tuple[int, int], KernelTime] = {}  # by the table of the step and the place among its kernels
        self._place = 0
        self._usual: list[Callable[..., Any] | None] | None = None

    # -- the block

    def __enter__(self) -> Self:
        function = self.function
        if function.timed is not None and function.timed._usual is not None:
            raise UsageError(f"timing: calls of {function.name} are timed already", {}, "leave the other block first")
        self._usual, function.timed = function._entries, self
        function._entries = [self._front(self._usual)] * len(self._usual)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._usual is not None
        self.function._entries, self._usual = self._usual, None

    def _front(self, usual: Sequence[Callable[..., Any] | None]) -> Callable[..., Any]:
        """What stands in front of the entries ``usual``: all that it needs is at hand, so that it takes little time."""
        function, every = self.function, self.kernels_every
        counts, clock, keep = function.counts, time.perf_counter_ns, self.calls_ns.append
        left = FIRST_BY_KERNELS - 1 if every else -1  # calls until one runs kernel by kernel

        def timed(*args: object, **kwargs: object) -> Any:
            nonlocal left
            now = state.__dict__  # the thread's
            entry = usual[now["grad_enabled"] + 2 * now["inference"]] or function._slow
            if left == 0 and watching.observer is None:
                left = every - 1
                return self._by_kernels(args, kwargs)
            left -= left > 0
            captures = counts.captures
            start = clock()
            result = entry(*args, **kwargs) if kwargs else entry(*args)
            elapsed = clock() - start
            if counts.captures == captures:
                keep(elapsed)
            else:
                self.captures += 1
            return result

        return timed

    def _by_kernels(self, args: Sequence[object], kwargs: dict[str, object]) -> Any:
        watching.observer = self
        self.by_kernels += 1
        try:
            return self.function._slow(*args, **kwargs)
        finally:
            watching.observer = None

    # -- what a step run kernel by kernel tells

    def call(self, name: str, kind: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """A native call: its kernels are counted from the first."""
        before, self._place = self._place, 0
        try:
            return function(*arguments)
        finally:
            self._place = before

    def kernel(self, row: KernelRow, function: Callable[..., Any], *arguments: Any) -> None:
        """A kernel runs."""
        key = arguments[0], self._place
        self._place += 1
        start = time.perf_counter_ns()
        function(*arguments)
        elapsed = time.perf_counter_ns() - start
        known = self.kernels.get(key)
        if known is None or known.row.name != row.name:
            known = self.kernels[key] = KernelTime(row, [])
        known.elapsed_ns.append(elapsed)

    # -- what is told

    def percentiles(self, which: Sequence[float] = PERCENTILES) -> dict[float, float]:
        """Percentile -> seconds of a call; NaN where no call was timed."""
        times = list(self.calls_ns)
        found = np.percentile(times, which) / 1e9 if times else np.full(len(which), np.nan)
        return dict(zip(which, map(float, found), strict=True))

    def of_step(self, table: int) -> list[KernelTime]:
        """The kernels of the step with this table, in order."""
        return [self.kernels[key] for key in sorted(k for k in self.kernels if k[0] == table)]

    def classes(self) -> list[tuple[str, int, float]]:
        """(what kernels of a class do, how many there are, ns of one run of all of them), those first that take most.

        A class is what a kernel computes, whatever lines and modules it is from: ``matmul 64x784x128``, ``relu+mul``.
        """
        found: dict[str, list[float]] = {}
        for timed in list(self.kernels.values()):
            found.setdefault(timed.row.name.removeprefix("kernel ").partition(" (")[0], []).append(timed.median_ns)
        rows = [(name, len(times), sum(times)) for name, times in found.items()]
        return sorted(rows, key=lambda row: -row[2])

    def headline(self) -> str:
        """One line: how many calls, and how long they took."""
        if not self.calls_ns:
            return f"no call was timed ({self.captures} captured)"
        times = ", ".join(f"{p:g} % within {duration(s * 1e9)}" for p, s in self.percentiles().items())
        return f"{len(self.calls_ns)} call(s) timed: {times}"

    def __str__(self) -> str:
        lines = [f"{self.function.name}: {self.headline()}"]
        if self.captures or self.by_kernels:
            lines.append(f"  not among them: {self.captures} that captured, {self.by_kernels} run kernel by kernel")
        rows = self.classes()
        total = sum(ns for _, _, ns in rows) or 1.0
        if rows:
            lines.append(f"  kernels, one run of each: {duration(total)}")
        for name, count, ns in rows[:SHOWN_KERNELS]:
            lines.append(f"  {100 * ns / total:5.1f} %  {duration(ns):>9}  {count:4d} x {name}")
        if len(rows) > SHOWN_KERNELS:
            rest = sum(ns for _, _, ns in rows[SHOWN_KERNELS:])
            lines.append(
                f"  {100 * rest / total:5.1f} %  {duration(rest):>9}  {len(rows) - SHOWN_KERNELS} more kind(s)"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, _, rest = str(self).partition("\n")
        return f"<div><b>{escape(first)}</b><pre>{escape(rest)}</pre></div>"


def duration(elapsed_ns: float) -> str:
    """A time as people read it.

    Example:
        >>> duration(1500), duration(2.5e6)
        ('1.5 us', '2.5 ms')
    """
    for unit, scale in (("s", 1e9), ("ms", MS), ("us", US)):
        if elapsed_ns >= scale:
            return f"{elapsed_ns / scale:.3g} {unit}"
    return f"{elapsed_ns:.0f} ns"
