"""Starting scripts as processes of their own, with this checkout and a given object cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import autojit

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(autojit.__file__).resolve().parents[1]
TIMEOUT_S = 600.0  # only what hangs takes it: a busy machine is slow


def environment_of(cache_directory: str | Path) -> dict[str, str]:
    """This process's environment with this checkout importable and the given cache."""
    return dict(os.environ, AUTOJIT_CACHE_DIR=str(cache_directory), PYTHONPATH=f"{SOURCES}{os.pathsep}{ROOT}")


def run_python(
    arguments: Sequence[str],
    cache_directory: str | Path,
    prepare: Callable[[], None] | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run ``python arguments``; ``prepare`` is called in the new process first. Fails with the process's own words."""
    found = subprocess.run(
        [sys.executable, *arguments],
        env={**environment_of(cache_directory), **variables},
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert found.returncode == 0, f"{found.stdout[-4000:]}\n{found.stderr[-20000:]}"
    return found


def train(cache_directory: str | Path, prepare: Callable[[], None] | None = None, **variables: str) -> Any:
    """What ``child.py`` reports."""
    found = run_python(["-m", "tests.acceptance.child", "mlp_sgd"], cache_directory, prepare, **variables)
    return json.loads(found.stdout.splitlines()[-1])
