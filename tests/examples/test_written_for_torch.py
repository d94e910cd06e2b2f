"""Programs that say ``import torch`` run as they are, and compiled, and print what they print under torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.__main__ import main
from tests.examples.test_examples import FOLDER, RECORDED

PROGRAMS = sorted((FOLDER / "written_for_torch").glob("*.py"))
QUICK = ("characters", "oscillator")  # compiled in every run; the others with --slow
STEPS = {"adversaries": ["train_step"], "characters": ["train_step"], "classifier": ["train_step", "evaluate"],
         "oscillator": ["train_step", "closure"], "transformer": ["micro_step"]}  # fmt: skip
TOLERANCE = 2e-3  # of float32, after tens of steps; the programs print six digits
FIRST = 1e-5  # of what is printed in the beginning


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(FOLDER)
    yield
    aj.set_default_dtype(aj.float32)


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    from _torch import numbers

    assert main(["run", *arguments]) == 0
    out, err = capsys.readouterr()
    assert not err
    return np.array(numbers(out))


def agree(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found[:3], wanted[:3], rtol=FIRST, atol=FIRST)
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def recorded(path: Path) -> Any:
    return np.array(json.loads(RECORDED.read_text(encoding="utf-8"))[path.stem])


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_prints_under_torch(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agree(printed([str(path)], capsys), recorded(path))


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow) for p in PROGRAMS],
    ids=lambda path: path.stem,
)
def test_a_program_prints_the_same_compiled(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions: list[Any] = []
    compile_step = aj.jit

    def recording(function: Callable[..., object]) -> object:
        functions.append(compile_step(function))
        return functions[-1]

    monkeypatch.setattr(aj, "jit", recording)
    steps = [option for name in STEPS[path.stem] for option in ("--step", f"{path.stem}:{name}")]
    agree(printed(["--jit", *steps, str(path)], capsys), recorded(path))
    assert len(functions) == len(STEPS[path.stem])
    for function in functions:
        stats = function.stats()
        assert stats["captures"] <= 3 and not stats["fallbacks"] and not stats["splits"]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_one_screen_or_two(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "autojit" not in text and len(text.splitlines()) < 120
