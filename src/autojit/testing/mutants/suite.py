"""The checkout's own tests as killers: which they are, and what watches them one by one.

Left out are tests that are about time, threads, signals and other processes: a busy machine may fail them, and what
runs in another process imports the product as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from autojit.testing.mutants.killers import CHECKOUT

FOLDERS = tuple(f"tests/{name}" for name in (
    "passes", "transforms", "control_flow", "ops", "linalg", "jit", "optim", "acceptance", "func",
))  # fmt: skip
LEFT_OUT = (
    "test_races.py", "test_interrupts.py", "test_cache.py", "test_memory.py", "test_all_rows.py", "test_graphs.py",
)  # fmt: skip
LONGEST_S = 6.0  # of a test that is a killer: longer ones find little that shorter ones do not
PLAIN = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning",
    "--import-mode=importlib",
)  # fmt: skip
"""How tests run here; the warning is about autojit itself, which is imported before pytest begins."""
Note = Callable[[str, float], None]  # a test passed, in this many seconds


class _Watching:
    """Told of every test that passes."""

    def __init__(self, start: Callable[[], None], note: Note) -> None:
        self.start, self.note = start, note

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around one test."""
        self.start()
        began = time.process_time()
        self.passed = False
        result = yield
        if self.passed:
            self.note(item.nodeid, time.process_time() - began)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes whether the call passed."""
        if report.when == "call":
            self.passed = report.passed


def watch_tests(folders: Sequence[str], start: Callable[[], None], note: Note) -> None:
    """Run every test of some folders that may be a killer."""
    os.chdir(CHECKOUT)
    left_out = [f"--ignore-glob=*/{name}" for name in LEFT_OUT]
    pytest.main([*PLAIN, *left_out, *folders], [_Watching(start, note)])
