"""``python -m autojit export``: a function named on the command line becomes files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from autojit.__main__ import main

MODULE = """
import autojit as aj

aj.manual_seed(0)
model = aj.nn.Linear(3, 2)
total = aj.zeros(2)


@aj.jit
def step(x):
    total.add_(x)
    return total * 2


step(aj.ones(2))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "exported_module.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "exported_module", raising=False)
    return tmp_path


def test_a_module_is_exported_with_open_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "exported_module:model", "--example", "float32[batch, 3]", "-o", "net"]) == 0
    assert "Linear(input: float32[batch, 3]) -> result: float32[batch, 2]" in capsys.readouterr().out
    library = aj.export.load(folder / "net")
    for n in (0, 1, 6):
        assert library(np.ones((n, 3), np.float32)).shape == (n, 2)
    assert json.loads((folder / "net.json").read_text())["name"] == "net"


def test_a_step_that_the_module_has_run_is_exported_as_it_is(folder: Path) -> None:
    assert main(["export", "exported_module:step"]) == 0
    assert aj.export.load(folder / "step")(np.ones(2, np.float32)).tolist() == [4, 4]


@pytest.mark.parametrize(
    "arguments",
    [["exported_module:none"], ["none:step"], ["step"], ["exported_module:model", "--example", "float33[2]"]],
)
def test_what_is_not_there_is_said(folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *arguments]) == 2
    assert "error: export:" in capsys.readouterr().err
