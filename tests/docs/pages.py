"""Runs the Python blocks of a page in order in one namespace; as a program, in a process of the page's own.

A page that wants environment variables says so in a comment: ``<!-- runs with NAME=value -->``.
"""

from __future__ import annotations

import builtins
import doctest
import os
import re
import sys
from pathlib import Path

FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WANTED = re.compile(r"^<!-- runs with (\w+)=(\S+) -->$", re.MULTILINE)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> list[tuple[int, str]]:
    """``(lines before the block, its code)`` of every fence marked exactly ``python``."""
    return [(text.count("\n", 0, found.start(1)), found.group(1)) for found in FENCE.finditer(text)]


def environment(text: str) -> dict[str, str]:
    """The variables that a page wants."""
    return dict(WANTED.findall(text))


def run_page(page: Path) -> None:
    """Run every block of a page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page.read_text(encoding="utf-8")):
        run = run_session if code.lstrip().startswith(">>>") else run_plain
        run(page, line, code, namespace)


def run_plain(page: Path, line: int, code: str, namespace: dict[str, object]) -> None:
    """Run a block of statements; line numbers in tracebacks and in autojit's own errors are those of the page."""
    exec(compile("\n" * line + code, str(page), "exec"), namespace)


def run_session(page: Path, line: int, code: str, namespace: dict[str, object]) -> None:
    """Run a block of ``>>>`` prompts and compare what it prints; nothing stays in ``_``, not even a Variable."""
    test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(test, out=report.append, clear_globs=False)
    vars(builtins).pop("_", None)
    namespace.update(test.globs)
    assert runner.failures == 0, "".join(report)


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    run_page(Path(sys.argv[1]))
