"""The main job: what it prints, what it compares, what it says when the input is at fault."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

import autojit as aj
from autojit.__main__ import main
from autojit.core.config import config
from autojit.demo.command import STAGES
from autojit.demo.digits import bundled_digits, mnist
from autojit.demo.report import loss_difference, write_plot
from autojit.demo.training import train
from tests.demo.test_idx import idx_bytes


def write_half(directory: Path, prefix: str, count: int, suffix: str = "") -> None:
    """Images in which the label is the brightest row."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, count).astype(np.uint8)
    images = rng.integers(0, 60, (count, 10, 10)).astype(np.uint8)
    images[np.arange(count), labels] = 255
    for stem, array in (("images-idx3", images), ("labels-idx1", labels)):
        content = idx_bytes(array)
        (directory / f"{prefix}-{stem}-ubyte{suffix}").write_bytes(gzip.compress(content) if suffix else content)


def test_compiled_training_is_eager_training() -> None:
    digits = bundled_digits()
    eager, compiled = (train(digits, 30, compiled=flag) for flag in (False, True))
    assert loss_difference(eager, compiled) < 1e-4
    assert abs(eager.accuracy - compiled.accuracy) < 0.02
    assert compiled.losses[-1] < compiled.losses[0]
    assert compiled.stats["captures"] == 1  # the learning rate changes in every step


def test_small_demo_reaches_its_goal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "folder" / "plot.png"
    assert main(["demo", "--small", "--plot", str(plot)]) == 0
    printed = capsys.readouterr()
    for part in ("held-out accuracy", "time per step", "compile time", "object cache", str(plot)):
        assert part in printed.out
    assert "150/150" in printed.err
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("stage", STAGES)
def test_show_prints_the_stage_and_nothing_else(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--show", stage]) == 0
    start = "" if stage in ("schedule", "llvm") else "("
    inside = {"schedule": "kernels", "llvm": "define"}.get(stage, "matmul(")
    printed = capsys.readouterr().out
    assert printed.startswith(start)
    assert inside in printed
    assert "accuracy" not in printed


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("prefixes", [("t10k",), ("train",), ("train", "t10k")])
def test_mnist_is_read_from_what_is_there(prefixes: tuple[str, ...], suffix: str, tmp_path: Path) -> None:
    for prefix in prefixes:
        write_half(tmp_path, prefix, 50, suffix)
    digits = mnist(tmp_path)
    counts = (50, 50) if len(prefixes) == 2 else (40, 10)
    assert (len(digits.labels), len(digits.held_out_labels)) == counts
    assert digits.images.dtype == np.float32
    assert digits.images.max() == 1
    rows = digits.images.reshape(-1, 10, 10).mean(axis=2)
    np.testing.assert_array_equal(rows.argmax(axis=1), digits.labels)


def test_demo_trains_on_mnist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_half(tmp_path, "t10k", 100)
    assert main(["demo", "--data", str(tmp_path), "--steps", "3", "--plot", str(tmp_path / "plot.svg")]) == 0
    assert "80 digits of 100 pixels to train on, 20 held out" in capsys.readouterr().out


def test_faults_of_the_input_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error(*arguments: str) -> str:
        assert main(["demo", *arguments]) == 2
        return capsys.readouterr().err

    missing = tmp_path / "missing"
    assert str(missing) in error("--data", str(missing))
    assert "t10k-images-idx3-ubyte" in error("--data", str(tmp_path))
    write_half(tmp_path, "t10k", 5)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert "must come together" in error("--data", str(tmp_path))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(4, np.uint8)))
    assert "do not belong together" in error("--data", str(tmp_path))


def test_a_device_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aj.cuda, "is_available", lambda: False)
    assert main(["demo", "--device", "cuda"]) == 2
    assert "AUTOJIT_CUDA=emulate" in capsys.readouterr().err


@pytest.mark.parametrize("steps", ["0", "-1", "many"])
def test_impossible_numbers_of_steps_are_refused(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--steps", steps])
    assert "number of steps" in capsys.readouterr().err


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["demo"]) == 2
    printed = capsys.readouterr().err
    assert "scikit-learn" in printed
    assert "autojit[examples]" in printed


def test_without_matplotlib_the_figures_are_still_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--steps", "2"]) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_a_demo_that_cannot_compile_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "disable", True)
    assert main(["demo", "--small"]) == 2
    assert "AUTOJIT_DISABLE" in capsys.readouterr().err


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_a_plot_of_a_single_step_is_written(tmp_path: Path) -> None:
    digits = bundled_digits()
    run = train(digits, 1, compiled=False)
    write_plot(tmp_path / "plot.svg", run, run)
    assert (tmp_path / "plot.svg").exists()
