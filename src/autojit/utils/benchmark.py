"""How long a statement takes: torch.utils.benchmark's ``Timer``, ``Measurement`` and ``Compare``.

A statement is text, run in a function of its own as `timeit` does. Beside `timeit` it is warmed up before, on as many
threads as asked for, and a device has done its work before the clock is read; results know how far they can be trusted
and print beside each other.
"""

from __future__ import annotations

import sys
import timeit as _timeit
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from math import floor, log10
from statistics import fmean, median, quantiles
from textwrap import dedent
from time import perf_counter
from typing import Any, TypeVar

from autojit.core.errors import ArgumentError
from autojit.cuda import is_initialized, synchronize
from autojit.runtime.pool import get_num_threads, set_num_threads

__all__ = [
    "Compare", "Language", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit", "timer", "trim_sigfig",
    "unit_to_english",
]  # fmt: skip

UNITS = {"ns": (1e-9, "nanosecond"), "us": (1e-6, "microsecond"), "ms": (1e-3, "millisecond"), "s": (1.0, "second")}
MOST_DIGITS = 5
CONFIDENCE_DEVIATIONS = 1.645
"""Of a normal distribution, that hold nine of ten results."""
DEVIATIONS_OF_IQR = 1.349
"""That the middle half of a normal distribution is wide."""
SPREAD_WARNED_OF = 0.1
"""Of the median: a middle half that is wider says that something else ran."""
BLOCKS_AT_LEAST = 1000
"""That the time asked for is divided in, if a run is short: then a clock read for each costs nothing that shows."""
LEAST_BLOCKS = 4
"""Of which something is said about their spread."""
WARM_SHARE = 100
"""Of the runs of a block, one is made before that is not counted."""
LEAST_WARM_RUNS = 2

T = TypeVar("T", bound=Hashable)


class Language(Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """Seconds of a clock that goes forward only; a GPU that is in use has done all that it was told."""
    if is_initialized():
        synchronize()
    return perf_counter()


def select_unit(t: float) -> tuple[str, float]:
    """The unit to tell a time of ``t`` seconds in, and its seconds.

    Example:
        >>> from autojit.utils.benchmark import select_unit
        >>> select_unit(0.00002)
        ('us', 1e-06)
    """
    found = ("ns", UNITS["ns"][0])
    for unit, (seconds, _) in UNITS.items():
        found = (unit, seconds) if t >= seconds else found
    return found


def unit_to_english(u: str) -> str:
    """The unit's name: ``us`` -> ``microsecond``."""
    return UNITS[u][1]


def trim_sigfig(x: float, n: int) -> float:
    """``x`` rounded to ``n`` digits.

    Example:
        >>> from autojit.utils.benchmark import trim_sigfig
        >>> trim_sigfig(123456.0, 2)
        120000.0
    """
    return x and round(x, n - 1 - floor(log10(abs(x))))


def ordered_unique(elements: Iterable[T]) -> list[T]:
    """Each of the elements once, in the order in which they come first."""
    return list(dict.fromkeys(elements))


@dataclass(frozen=True)
class TaskSpec:
    """What was measured: results of equal tasks can be merged, those of one ``label`` are one table of `Compare`."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or what is run."""
        if self.label is None:
            return self.stmt
        return self.label if self.sub_label is None else f"{self.label}: {self.sub_label}"

    @property
    def setup_str(self) -> str:
        """What prepares the statement, as it is shown."""
        return "" if self.setup in ("", "pass") else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and preparation, a line each."""
        return "\n".join(line for line in (self.title, self.description or "", self.setup_str) if line)


@dataclass(init=True, repr=False)
class Measurement:
    """Times of a task: ``raw_times`` in seconds, each of ``number_per_run`` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """Seconds a run, one for each block of runs."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        return fmean(self.times)

    @property
    def median(self) -> float:
        return median(self.times)

    @property
    def iqr(self) -> float:
        """How wide the middle half of the times is."""
        if len(self.times) < 2:
            return 0.0
        lower, _, upper = quantiles(self.times, n=4, method="inclusive")
        return upper - lower

    @property
    def significant_figures(self) -> int:
        """Digits of the median that nine of ten repetitions would agree on; one block tells of five."""
        width = 2 * CONFIDENCE_DEVIATIONS * self.iqr / DEVIATIONS_OF_IQR / len(self.times) ** 0.5
        if not width or not self.median:
            return MOST_DIGITS
        return max(1, min(MOST_DIGITS, floor(-log10(width / self.median)) + 1))

    @property
    def has_warnings(self) -> bool:
        """Whether the times are far from each other."""
        return not self.meets_confidence(SPREAD_WARNED_OF)

    def meets_confidence(self, threshold: float = SPREAD_WARNED_OF) -> bool:
        """Whether the middle half of the times is no wider than this share of the median."""
        return not self.median or self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt

    def __repr__(self) -> str:
        """The task, the median with its spread, and how often it ran."""
        unit, seconds = select_unit(self.median)
        count, threads = len(self.raw_times), self.task_spec.num_threads
        shown = "Median: " if count > 1 else ""
        lines = [f"{object.__repr__(self)}", self.task_spec.summarize(), f"  {shown}{self.median / seconds:.2f} {unit}"]
        if count > 1:
            lower, _, upper = quantiles(self.times, n=4, method="inclusive")
            lines.append(f"  IQR:    {self.iqr / seconds:.2f} {unit} ({lower / seconds:.2f} to {upper / seconds:.2f})")
        plural = "" if count == 1 else "s"
        runs = f"{self.number_per_run} runs{' per measurement' if count > 1 else ''}"
        lines.append(f"  {count} measurement{plural}, {runs}, {threads} thread{'' if threads == 1 else 's'}")
        if self.has_warnings:
            lines.append(
                f"  WARNING: the middle half of the times is {100 * self.iqr / self.median:.1f}% of the median."
            )
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, of all its times."""
        found: dict[TaskSpec, Measurement] = {}
        for m in measurements:
            known = found.get(m.task_spec)
            if known is None:
                found[m.task_spec] = Measurement(m.number_per_run, list(m.raw_times), m.task_spec)
            else:
                found[m.task_spec] = Measurement(1, known.times + m.times, m.task_spec)
        return list(found.values())


Callback = Callable[[int, float], Any]


class Timer:
    """Measures a statement.

    Args:
        stmt: what is measured, and may be several lines.
        setup: runs once before each block of runs; what it names, the statement can use.
        global_setup: of C++ alone.
        timer: the clock, in seconds.
        globals: names that the statement can use: often ``globals()``.
        label: names the table that `Compare` prints the result in.
        sub_label: its row; the statement by default.
        description: its column.
        env: says where it ran; tables show it beside the rows of other ones.
        num_threads: threads of compiled kernels while it runs.
        language: Python.

    Raises:
        ArgumentError: the statement is C++, for which there is no compiler here.

    Example:
        >>> import autojit as aj
        >>> from autojit.utils.benchmark import Timer
        >>> found = Timer("x @ x", globals={"x": aj.ones(8, 8)}).timeit(10)
        >>> found.number_per_run, found.mean > 0
        (10, True)
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if language not in (Language.PYTHON, "py", "python"):
            raise ArgumentError(
                f"Timer: statements in {getattr(language, 'name', language)} need a C++ compiler",
                {"stmt": stmt},
                "write the statement in Python",
            )
        stmt, setup = _dedented(stmt), _dedented(setup)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)
        self._timer = _timeit.Timer(stmt, setup, timer, dict(globals or {}))

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """So many runs in one block, after a few that are not counted."""
        with _threads(self._task_spec.num_threads):
            self._timer.timeit(max(number // WARM_SHARE, LEAST_WARM_RUNS))
            return self._measurement(number, [self._timer.timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        raise NotImplementedError("Timer.repeat: blocked_autorange or timeit says how often")

    def autorange(self, callback: Callback | None = None) -> None:
        raise NotImplementedError("Timer.autorange: use blocked_autorange, which repeats until times can be trusted")

    def blocked_autorange(self, callback: Callback | None = None, min_run_time: float = 0.2) -> Measurement:
        """Blocks of as many runs as are long beside the clock, until they took ``min_run_time`` seconds."""
        with _threads(self._task_spec.num_threads):
            number = self._runs_in_a_block(min_run_time)
            return self._measurement(number, self._blocks(number, min_run_time, callback))

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callback | None = None,
    ) -> Measurement:  # fmt: skip
        """Blocks until the middle half of the times is no wider than a share of the median, or time is over."""
        with _threads(self._task_spec.num_threads):
            number = self._runs_in_a_block(min_run_time)
            found = self._measurement(number, [])
            while True:
                found.raw_times += self._blocks(number, min_run_time, callback)
                is_enough = len(found.raw_times) >= LEAST_BLOCKS and found.meets_confidence(threshold)
                if is_enough or sum(found.raw_times) >= max_run_time:
                    return found

    def collect_callgrind(self, number: int = 100, **_: Any) -> Any:
        raise NotImplementedError("Timer.collect_callgrind: valgrind is not used here; blocked_autorange tells times")

    def _measurement(self, number: int, raw_times: list[float]) -> Measurement:
        return Measurement(number, raw_times, self._task_spec)

    def _runs_in_a_block(self, seconds: float) -> int:
        """A power of ten, so that a block is a thousandth of the time asked for, or one run that takes longer."""
        number, took = 1, 0.0
        while True:
            self._timer.timeit(LEAST_WARM_RUNS if number == 1 else 0)
            took = self._timer.timeit(number)
            if took >= seconds / BLOCKS_AT_LEAST or not seconds:
                return number
            number *= 10

    def _blocks(self, number: int, seconds: float, callback: Callback | None) -> list[float]:
        found: list[float] = []
        while not found or sum(found) < seconds:
            found.append(self._timer.timeit(number))
            if callback is not None:
                callback(number, found[-1])
        return found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Threads of compiled kernels, for a block."""
    before = get_num_threads()
    set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(before)


def _dedented(text: str) -> str:
    """Text as it would stand at the beginning of a line, without the line of the quotes."""
    return dedent(text).removeprefix("\n").rstrip()


class Compare:
    """Tables of measurements: one for each label, a row for each sub-label, a column for each description.

    Example:
        >>> import autojit as aj
        >>> from autojit.utils.benchmark import Compare, Timer
        >>> names = {"x": aj.ones(8)}
        >>> timers = [Timer(s, globals=names, label="powers", sub_label="8", description=s) for s in ("x*x", "x**2")]
        >>> table = str(Compare([t.timeit(5) for t in timers])).splitlines()
        >>> table[1].split()
        ['|', 'x*x', '|', 'x**2']
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trims = self._colours = self._warns = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Further rows and columns."""
        results = list(results)
        for found in results:
            if not isinstance(found, Measurement):
                raise ValueError(f"Compare: expected an instance of `Measurement`, got {type(found)}")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Show as many digits as repetitions would agree on."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Show the fastest of each row in green on a terminal."""
        self._colours = True

    def highlight_warnings(self) -> None:
        """Mark times whose blocks are far from each other."""
        self._warns = True

    def print(self) -> None:
        """Write the tables to standard output."""
        sys.stdout.write(f"{self}\n")

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        tables = ordered_unique(m.task_spec.label or m.task_spec.stmt for m in merged)
        rows = ([m for m in merged if (m.task_spec.label or m.task_spec.stmt) == title] for title in tables)
        return "\n\n".join(map(self._table, tables, rows))

    def _table(self, title: str, results: list[Measurement]) -> str:
        unit, seconds = select_unit(min(m.median for m in results))
        columns = ordered_unique(m.task_spec.description or "" for m in results)
        rows = ordered_unique((m.task_spec.num_threads, m.env, m.as_row_name) for m in results)
        at = {(m.task_spec.num_threads, m.env, m.as_row_name, m.task_spec.description or ""): m for m in results}
        heads = {row: f"      {row[2]}" + (f" ({row[1]})" if row[1] else "") for row in rows}
        first = max(len(h) for h in [*heads.values(), "1 threads: "]) + 2
        cells = {key: self._cell(m, seconds) for key, m in at.items()}
        widths = [max(len(c), *(len(cells.get((*row, c), "")) for row in rows)) + 2 for c in columns]
        whole = first + sum(w + 3 for w in widths)
        lines = [f"[{f' {title} ':-^{max(whole - 2, len(title) + 2)}}]"]
        lines.append(" " * first + "".join(f" | {c:^{w}}" for c, w in zip(columns, widths, strict=True)))
        threads = None
        for row in sorted(rows, key=lambda row: row[0]):
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(whole, "-"))
            values = [cells.get((*row, c), "") for c in columns]
            best = min((at[*row, c].median for c in columns if (*row, c) in at), default=0.0)
            shown = [
                self._coloured(f"{v:>{w}}", (*row, c) in at and at[*row, c].median == best)
                for c, v, w in zip(columns, values, widths, strict=True)
            ]
            lines.append(f"{heads[row]:<{first}}" + "".join(f" | {v}" for v in shown))
        return "\n".join([*map(str.rstrip, lines), "", f"Times are in {unit_to_english(unit)}s ({unit})."])

    def _cell(self, m: Measurement, seconds: float) -> str:
        value = m.median / seconds
        if self._trims:
            digits = m.significant_figures
            value = trim_sigfig(value, digits)
            text = f"{value:.{max(0, digits - 1 - floor(log10(value)))}f}" if value else "0"
        else:
            text = f"{value:.1f}"
        return f"(! {100 * m.iqr / m.median:.0f}%) {text}" if self._warns and m.has_warnings else text

    def _coloured(self, text: str, is_best: bool) -> str:
        return f"\033[92m{text}\033[0m" if self._colours and is_best else text
