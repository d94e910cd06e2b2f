"""What type checkers see of the package: the stubs are current. `typed_program.py` is what mypy makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_stubs_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_stubs.py", "--check"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
