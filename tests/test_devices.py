"""Where the tests' tensors are: the list of what needs the CPU says what is there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import autojit as aj
from tests.devices import Exclusion, Exclusions, read_exclusions

ROOT = Path(__file__).parents[1]


def functions_in(path: Path) -> set[str]:
    return {n.name for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}


def test_every_exclusion_names_a_file_and_a_test_with_a_reason() -> None:
    lines = read_exclusions()
    assert len({line.pattern for line in lines}) == len(lines)
    for line in lines:
        file, _, name = line.pattern.partition("::")
        assert (ROOT / file).is_file(), line
        assert not name or "*" in name or name.partition("[")[0] in functions_in(ROOT / file), line
        assert len(line.reason) > 10, line


@pytest.mark.parametrize(
    "pattern", ["tests/a.py", "tests/a.py::test_b", "tests/a.py::test_b[jit-1]", "tests/*::test_*"]
)
def test_a_pattern_is_a_file_a_test_or_a_case(pattern: str) -> None:
    line = Exclusion(pattern, "why")
    assert line.matches("tests/a.py::test_b[jit-1]")
    assert not line.matches("tests/ab.py::tests_bc[jit-11]")


def test_lines_that_nothing_needs_are_told(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(
        "# for readers\ntests/a.py::test_b  one\n\ntests/c.py  two\n tests/d.py  three\n"
    )
    found = Exclusions(read_exclusions(tmp_path / "list.txt"), are_checked=True)
    for name, outcome in (("tests/a.py::test_b[x]", "passed"), ("tests/d.py::test_e", "skipped")):
        found.pytest_runtest_logreport(pytest.TestReport(name, ("", 0, ""), {}, outcome, None, "call"))
    assert list(found.unneeded(["tests"])) == ["tests/a.py::test_b  passes", "tests/c.py  names no test"]
    assert list(found.unneeded(["tests/c.py"])) == ["tests/c.py  names no test"]


def test_a_test_runs_on_both_devices(device: str) -> None:
    x = aj.arange(4.0, device=device, requires_grad=True)
    (slope,) = aj.autograd.grad((x * x).sum(), (x,))
    assert slope.device.type == device
    assert slope.numpy().tolist() == [0.0, 2.0, 4.0, 6.0]


def test_tests_for_hardware_are_skipped_where_there_is_none() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "-k",
        "both_devices",
        __file__,
    ]
    hidden = os.environ | {"AUTOJIT_CUDA_LIBRARY": "/nowhere/libcuda.so"}
    hidden.pop("AUTOJIT_CUDA", None)
    done = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, text=True)
    assert "1 skipped" in done.stdout and "libra" in done.stdout, done.stdout
