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


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("named", "examples", "shapes"),
    [
        ("cnn.py:Network(4)", ["float32[batch,1,8,8]", "--eval"], [(5, 1, 8, 8)]),
        ("gpt.py:Gpt(11, 8, width=16, layers=1, heads=2)", ["int64[batch,length]"], [(3, 6)]),
        ("leapfrog.py:fly", ["float32[6]", "--example", "float32[6]", "--example", "5"], [(6,), (6,)]),
    ],
)
def test_examples_are_exported_from_the_command_line(
    named: str, examples: list[str], shapes: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    aj.manual_seed(0)
    assert main(["export", f"{EXAMPLES}/{named}", "--example", *examples, "-o", str(tmp_path / "made")]) == 0
    library = aj.export.load(tmp_path / "made")
    kind = np.int64 if "int64" in examples[0] else np.float32
    given = [np.random.default_rng(0).integers(0, 8, shape).astype(kind) for shape in shapes]
    found = library(*given, *([5] if "fly" in named else []))
    for array in found if isinstance(found, tuple) else (found,):
        assert np.isfinite(array).all()
    sys.modules.pop(named.partition(".")[0], None)


def test_a_class_is_made_with_weights_of_a_file(folder: Path) -> None:
    text = MODULE + "\n\nclass Net(aj.nn.Linear):\n    pass\n"
    (folder / "classes.py").write_text(text, encoding="utf-8")
    weights = {"weight": aj.ones(2, 3), "bias": aj.tensor([1.0, 2.0])}
    aj.io.safetensors.save_file(weights, folder / "net.safetensors")
    assert main(
        ["export", "classes.py:Net(3, out_features=2)", "--example", "float32[3]", "--weights", "net.safetensors"]
    ) == 0  # fmt: skip
    assert aj.export.load(folder / "Net")(np.ones(3, np.float32)).tolist() == [4, 5]


@pytest.mark.parametrize(
    "arguments",
    [
        ["exported_module:step", "--weights", "none"],
        ["exported_module:step(x)"],
        ["exported_module:none"],
        ["none:step"],
        ["step"],
        ["exported_module:model", "--example", "float33[2]"],
    ],
)
def test_what_is_not_there_is_said(folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *arguments]) == 2
    assert "error: export:" in capsys.readouterr().err
