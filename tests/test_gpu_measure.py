"""What is measured first on a GPU runs on the emulated device, and gives no figures there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.gpu_measure import PARTS, difference

ROOT = Path(__file__).parents[1]


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.gpu_measure", *options]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=600)


def test_every_part_runs_without_a_gpu(tmp_path: Path) -> None:
    done = run("--dry-run", "--out", str(tmp_path / "table.md"))
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "table.md").read_text().splitlines()
    assert len(table) > 2 * len(PARTS)
    assert not any("FAILED" in row or "WRONG" in row for row in table)
    timed = [row for row in table if any(unit in row for unit in ("µs", "ms", "GB/s", "TB/s", "TFLOP/s"))]
    assert timed and all("not measured" in row for row in timed)


def test_an_emulated_device_is_not_measured() -> None:
    assert "--dry-run" in run(AUTOJIT_CUDA="emulate").stderr


def test_a_result_that_differs_is_told() -> None:
    a = np.linspace(1, 2, 5)
    assert difference([a], [a]) == 0
    assert difference([a + 0.2], [a]) == pytest.approx(0.1)
    assert difference([np.full(2, np.inf)], [np.zeros(2)]) == np.inf
