"""One process of ``python -m tools.torch_tests``: runs the tests of one file, and writes a line for each as it ends."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import traceback
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any, TextIO

from tools.torch_tests.stand_ins import serve

MESSAGE = 600
"""Characters of an error that are kept."""


class TookTooLong(Exception):
    """A test had more seconds than it may have."""


class Lines(unittest.TestResult):
    """Writes what became of each test: ``{"id", "outcome", "error", "message", "at"}``."""

    def __init__(self, out: TextIO, limit_s: float) -> None:
        super().__init__()
        self._out, self._limit_s = out, limit_s
        self._outcome: dict[str, Any] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome = {"outcome": "passed"}
        self._write({"id": name_of(test), "outcome": "started"})
        signal.setitimer(signal.ITIMER_PROF, self._limit_s)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s * 6)

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)
        self._write({"id": name_of(test), **self._outcome})

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._failed("failed", err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._failed("failed", err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._failed("failed", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._outcome = {"outcome": "skipped", "message": reason[:MESSAGE]}

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._outcome = {"outcome": "skipped", "message": "expected to fail"}

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._outcome = {"outcome": "failed", "error": "UnexpectedSuccess", "message": "", "at": []}

    def _failed(self, outcome: str, err: tuple[type[BaseException], BaseException, TracebackType]) -> None:
        kind, error, where = err
        frames = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(where)]
        frames = [frame for frame in frames if not frame.startswith(("case.py", "common_utils.py", "contextlib.py"))]
        self._outcome = {
            "outcome": outcome, "error": kind.__name__, "message": str(error)[:MESSAGE], "at": frames[-6:],
        }  # fmt: skip

    def _write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


def name_of(test: unittest.TestCase) -> str:
    """``Class.method``, as torch has it: some are made of the paths of what they test."""
    return f"{type(test).__name__}.{test._testMethodName}".replace("_autojit_", "_")


def interrupted(number: int, frame: FrameType | None) -> None:
    """A timer ran out."""
    raise TookTooLong("the test had more time than it may have")


def cases(module: ModuleType, done: set[str], only: str) -> Iterator[unittest.TestCase]:
    """The module's tests that have not run."""
    for name, kind in sorted(vars(module).items()):
        if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ == module.__name__):
            continue
        for method in unittest.defaultTestLoader.getTestCaseNames(kind):
            test = kind(method)
            if re.search(only, f"{name}.{method}") and name_of(test) not in done:
                yield test


@contextlib.contextmanager
def processes_with_torch_names() -> Iterator[None]:
    """Inside, Pythons that tests start have torch's names from their beginning."""
    before = os.environ.get("PYTHONPATH", "")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(
            "import atexit, autojit\nnames = autojit.torch_names()\nnames.__enter__()\n"
            "atexit.register(names.__exit__, None, None, None)\n"
        )
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (folder, before) if path)
        yield
        os.environ["PYTHONPATH"] = before


def run_classes(tests: list[unittest.TestCase], result: Lines) -> None:
    """Each class with what it sets up."""
    suite = unittest.TestSuite(tests)
    suite.run(result)


def main() -> None:
    """What the parent asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--over", choices=("autojit", "torch"), default="autojit")
    parser.add_argument("--limit", type=float, default=30.0)
    parser.add_argument("--only", default="", metavar="PATTERN", help="of the tests whose Class.name has it")
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.is_file() else []
    done = {json.loads(line)["id"] for line in lines}
    os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"] = "cpu"
    sys.argv = [str(options.file)]
    sys.modules["__main__"].__file__ = str(options.file)
    sys.path.insert(0, str(options.sources / "test"))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, interrupted)
    with contextlib.ExitStack() as entered, options.out.open("a") as out:
        if options.over == "autojit":
            entered.enter_context(importlib.import_module("autojit").torch_names())
            entered.enter_context(processes_with_torch_names())
        else:
            importlib.import_module("torch")
        serve(options.sources, options.file.parent)
        warnings.simplefilter("default")
        try:
            module = importlib.import_module(options.file.stem)
        except BaseException as error:
            traceback.print_exc()
            told = {"error": type(error).__name__, "message": str(error)[:MESSAGE], "at": []}
            out.write(json.dumps({"id": "<import>", "outcome": "failed", **told}) + "\n")
            return
        result = Lines(out, options.limit)
        run_classes(list(cases(module, done, options.only)), result)
    os._exit(0)


if __name__ == "__main__":
    main()
