"""Times are what the clock says: a clock of the test's own goes forward by what each run adds to it."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest

import autojit as aj
from autojit.utils.benchmark import Compare, Measurement, TaskSpec, Timer, select_unit, trim_sigfig


class Clock:
    """Each `run` takes the next of the times, in seconds."""

    def __init__(self, *times: float) -> None:
        self.now, self.times, self.runs = 0.0, cycle(times), 0

    def __call__(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += next(self.times)
        self.runs += 1


def of(clock: Clock, **arguments: Any) -> Timer:
    return Timer("run()", timer=clock, globals={"run": clock.run}, **arguments)


def test_a_block_has_the_runs_asked_for_behind_some_that_are_not_counted() -> None:
    clock = Clock(2e-6)
    found = of(clock, setup="other = run").timeit(500)
    assert (found.number_per_run, found.median, clock.runs) == (500, pytest.approx(2e-6), 505)
    assert "2.00 us" in repr(found) and "1 measurement, 500 runs, 1 thread" in repr(found)


@pytest.mark.parametrize(
    "text", ["for _ in range(3):\n    run()", "\n        for _ in range(3):\n            run()\n    "]
)
def test_a_statement_may_have_lines_and_be_indented_as_the_code_around_it(text: str) -> None:
    clock = Clock(1.0)
    assert Timer(text, timer=clock, globals={"run": clock.run}).timeit(2).median == 3.0


def test_blocks_are_long_beside_the_clock_and_go_on_until_the_time_is_over() -> None:
    seen: list[tuple[int, float]] = []
    found = of(Clock(2**-20)).blocked_autorange(lambda *block: seen.append(block), min_run_time=2**-7)
    assert found.number_per_run == 10 and len(found.raw_times) == 820  # of 2^13 runs
    assert sum(found.raw_times) >= 2**-7 and [t for _, t in seen] == found.raw_times
    assert found.mean == 2**-20 and found.iqr == 0 and not found.has_warnings


def test_blocks_that_differ_are_repeated_as_long_as_allowed_and_warned_of() -> None:
    steady = of(Clock(1e-3)).adaptive_autorange(min_run_time=1e-3, max_run_time=1.0)
    assert len(steady.raw_times) == 4
    wild = of(Clock(1e-3, 1e-3, 5e-3, 9e-3)).adaptive_autorange(min_run_time=1e-3, max_run_time=1.0)
    assert sum(wild.raw_times) >= 1.0 and wild.has_warnings and "WARNING" in repr(wild)
    assert wild.significant_figures < steady.significant_figures


def test_threads_are_as_asked_while_it_runs_and_as_before_afterwards() -> None:
    seen: list[int] = []
    before = aj.get_num_threads()
    Timer("see(count())", globals={"see": seen.append, "count": aj.get_num_threads}, num_threads=before + 1).timeit(1)
    with pytest.raises(ZeroDivisionError):
        Timer("1 / 0", num_threads=before + 1).timeit(1)
    assert set(seen) == {before + 1} and aj.get_num_threads() == before


def measured(label: str, row: str, column: str, seconds: float, threads: int = 1) -> Measurement:
    return Measurement(1, [seconds], TaskSpec("s", "pass", "", label, row, column, None, threads))


def test_results_are_a_table_for_each_label() -> None:
    results = [measured("L", r, c, s) for r, c, s in (("a", "x", 1e-6), ("a", "y", 2.5e-6), ("b", "x", 3e-6))]
    text = str(Compare([*results, measured("L", "a", "x", 4e-6, threads=2), measured("M", "a", "x", 2.0)]))
    lines = [line.split() for line in text.splitlines()]
    assert lines[1:7] == [
        ["|", "x", "|", "y"],
        ["1", "threads:", lines[2][2]],
        ["a", "|", "1.0", "|", "2.5"],
        ["b", "|", "3.0", "|"],
        ["2", "threads:", lines[5][2]],
        ["a", "|", "4.0", "|"],
    ]
    assert "Times are in microseconds (us)." in text and "Times are in seconds (s)." in text


def test_measurements_of_one_task_are_merged() -> None:
    (found,) = Measurement.merge([measured("L", "a", "x", 1.0), measured("L", "a", "x", 3.0)])
    assert found.times == [1.0, 3.0] and found.median == 2.0


def test_units_digits_and_what_is_not_measured_here() -> None:
    assert [select_unit(t)[0] for t in (1e-12, 3e-8, 1.3e-5, 0.2, 3.0)] == ["ns", "ns", "us", "ms", "s"]
    assert [trim_sigfig(x, 2) for x in (0.0, 123456.0, -0.0012345)] == [0.0, 120000.0, -0.0012]
    with pytest.raises(ValueError, match=r"C\+\+|CPP"):
        Timer("int x;", language="c++")
    for refused in (Timer().autorange, Timer().repeat, Timer().collect_callgrind):
        with pytest.raises(NotImplementedError, match="blocked_autorange"):
            refused()
    with pytest.raises(ValueError, match="expected an instance of `Measurement`"):
        Compare([1.0])  # type: ignore[list-item]
