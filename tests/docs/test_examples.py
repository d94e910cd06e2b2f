"""The Python blocks of README.md and of every page in docs/ run, a page's blocks in order in one namespace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, environment, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = environment(page.read_text(encoding="utf-8"))
    if wanted:
        child = [sys.executable, "-W", "error", "-m", "tests.docs.pages", str(page), str(tmp_path)]
        done = subprocess.run(child, cwd=ROOT, env=os.environ | wanted, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        monkeypatch.chdir(tmp_path)
        run_page(page)


def test_a_page_says_what_environment_it_wants() -> None:
    assert environment("# Title\n<!-- runs with AUTOJIT_CUDA=emulate -->\n") == {"AUTOJIT_CUDA": "emulate"}
    assert environment("a page that runs with AUTOJIT_CUDA=emulate") == {}


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
