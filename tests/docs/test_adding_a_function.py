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
FILE = Path("autojit", "functions", "derived.py")


def test_one_file_has_all_that_is_said_of_a_function(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    functions, use = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shutil.copytree(ROOT / "src" / "autojit", tmp_path / "autojit", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / FILE).open("a", encoding="utf-8") as file:
        file.write(functions)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", use]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not implemented for" in done.stdout
    assert "must be Tensor, not float" in done.stdout
