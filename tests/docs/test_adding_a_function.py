"""The functions of ``docs/adding_an_op.md``: added to one file of the package they have all their forms."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding_an_op.md"
FILE = Path("autojit", "tensor", "functions_derived.py")


def block(language: str) -> str:
    """The one block of the page in a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_one_file_has_all_that_is_said_of_a_function(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src" / "autojit", tmp_path / "autojit", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write(block("py"))
    session = tmp_path / "session.txt"
    session.write_text(block("pycon"), encoding="utf-8")
    command = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE", str(session)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
