"""``python -m autojit.testing.rows``: how many rows of the reference hold, eager and compiled.

A row is one entry of the reference pages of ``autograd``: ``S0-01`` to ``S3-111``, 230 in all. A test belongs to the
row its name starts with (``test_S1_32_signature_of_grad``) and runs in the modes its ``mode`` fixture names. A row
holds in a mode when at least one test of it ran in that mode and all of them passed.

Example::

    python -m autojit.testing.rows                      # tests/autograd below the current directory
    python -m autojit.testing.rows tests -- -x -k S1_   # what follows the dashes goes to pytest
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROWS_PER_PAGE = {"S0": 20, "S1": 44, "S2": 55, "S3": 111}
ROWS = tuple(f"{page}-{number:02d}" for page, count in ROWS_PER_PAGE.items() for number in range(1, count + 1))
MODES = ("eager", "jit")
NO_COMPILED_FORM = "does not apply under jit"  # the user property in which a test says why
_NAME = re.compile(r"::test_(S\d)_(\d{2,3})(?:_[^\[]*)?(?:\[(.*)\])?$")


def row_and_mode(test_id: str) -> tuple[str, str | None] | None:
    """The row a test belongs to and the mode it ran in (None: it takes no ``mode``); None for other tests.

    Example:
        >>> row_and_mode("tests/autograd/test_rows_modes.py::test_S1_08_enable_grad[jit]")
        ('S1-08', 'jit')
    """
    found = _NAME.search(test_id)
    if found is None:
        return None
    page, number, parameters = found.groups()
    modes = [part for part in (parameters or "").split("-") if part in MODES]
    return f"{page}-{int(number):02d}", modes[0] if modes else None


@dataclass(eq=False)
class Tally:
    """A pytest plugin that sorts the outcome of every test by row and mode."""

    outcomes: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)  # (row, mode): {test: outcome}
    reasons: dict[str, list[str]] = field(default_factory=dict)  # row: why it has no compiled form
    uncollected: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of a test's setup, call and teardown."""
        found = row_and_mode(report.nodeid)
        if found is None:
            return
        row, mode = found
        tests = self.outcomes.setdefault((row, mode or "eager"), {})
        if report.outcome != "passed" or report.nodeid not in tests:
            tests[report.nodeid] = report.outcome
        if report.when == "teardown":
            self._keep_reasons(row, report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember the files that could not be imported: the tests in them are missing."""
        if report.failed:
            self.uncollected.append(report.nodeid)

    def _keep_reasons(self, row: str, report: pytest.TestReport) -> None:
        reasons = [str(reason) for key, reason in report.user_properties if key == NO_COMPILED_FORM]
        kept = self.reasons.setdefault(row, []) if reasons else []
        kept.extend(reason for reason in reasons if reason not in kept)

    def passed(self, row: str, mode: str) -> bool:
        """Whether the row was tested in the mode and every test of it passed."""
        tests = self.outcomes.get((row, mode), {})
        return bool(tests) and all(outcome == "passed" for outcome in tests.values())

    def untested(self, mode: str) -> list[str]:
        """The rows without a test in the mode, in the order of the pages."""
        return [row for row in ROWS if not self.outcomes.get((row, mode))]

    @property
    def holds(self) -> bool:
        """Whether every row passed in every mode."""
        return not self.uncollected and all(self.passed(row, mode) for row in ROWS for mode in MODES)

    def lines(self) -> Iterator[str]:
        """The report: totals, then what is missing, what failed, and what has no compiled form."""
        for mode in MODES:
            count = sum(self.passed(row, mode) for row in ROWS)
            yield f"rows passed, {mode:5}  {count} of {len(ROWS)}"
        for mode in MODES:
            missing = self.untested(mode)
            if missing:
                yield f"no test, {mode:5}      {' '.join(missing)}"
        yield from (f"not collected       {name}" for name in self.uncollected)
        yield from (f"not a row           {row}" for row in sorted({row for row, _ in self.outcomes}.difference(ROWS)))
        for row in ROWS:
            for mode in MODES:
                for test, outcome in self.outcomes.get((row, mode), {}).items():
                    if outcome != "passed":
                        yield f"{outcome:18}  {row} {mode}: {test}"
        if self.reasons:
            yield NO_COMPILED_FORM
        for row in ROWS:
            yield from (f"  {row:6}  {reason}" for reason in self.reasons.get(row, ()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and print the report; 0 when every row holds, 1 when not, 2 when nothing could be run."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    split = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="python -m autojit.testing.rows", description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path, default=Path("tests/autograd"), help="tests to run")
    parser.add_argument("--quiet", action="store_true", help="only the report, nothing of pytest's own output")
    options = parser.parse_args(given[:split])
    if not options.path.exists():
        parser.error(f"{options.path} does not exist; run it in the project's folder or name the tests")
    tally = Tally()
    silence = ["--show-capture=no", "--tb=no", "-qq", "-rN"] if options.quiet else ["-q"]
    status = pytest.main([str(options.path), *silence, *given[split + 1 :]], plugins=[tally])
    print("\n" + "\n".join(tally.lines()))
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return 2
    return 0 if tally.holds else 1


if __name__ == "__main__":
    sys.exit(main())
