"""The Python blocks of README.md and of every page in docs/ run, a page's blocks in order in one namespace."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> list[tuple[int, str]]:
    """``(lines before the block, its code)`` of every fence marked exactly ``python``."""
    return [(text.count("\n", 0, found.start(1)), found.group(1)) for found in FENCE.finditer(text)]


def run_plain(page: Path, line: int, code: str, namespace: dict[str, object]) -> None:
    """Run a block of statements; line numbers in tracebacks and in autojit's own errors are those of the page."""
    exec(compile("\n" * line + code, str(page), "exec"), namespace)


def run_session(page: Path, line: int, code: str, namespace: dict[str, object]) -> None:
    """Run a block of ``>>>`` prompts and compare what it prints."""
    test = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page.read_text(encoding="utf-8")):
        run = run_session if code.lstrip().startswith(">>>") else run_plain
        run(page, line, code, namespace)


def test_blocks_are_found_with_their_line() -> None:
    text = "one\n```python\nx = 1\n```\n```text\nno\n```\n```python\ny = 2\n```\n"
    assert blocks(text) == [(2, "x = 1\n"), (8, "y = 2\n")]


def links(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert not missing
