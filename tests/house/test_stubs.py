"""What type checkers see of the package: the stubs are current, and mypy finds a user's mistakes by them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
from typing import assert_type
import autojit as aj
from autojit.functions.reduction import ValuesIndices
from autojit.tensor.size import Size

x = aj.ones(2, 3, requires_grad=True)
assert_type(aj.exp(x), aj.Tensor)
assert_type(x.exp(), aj.Tensor)
assert_type(x.exp_().add_(1), aj.Tensor)
assert_type(1 + x * x, aj.Tensor)
assert_type(x == x, aj.Tensor)
assert_type(aj.sum(x, axis=0, keepdims=True), aj.Tensor)
assert_type(x.sum(0).max(), aj.Tensor)
assert_type(x.max(1), ValuesIndices)
assert_type(x.size(), Size)
assert_type(x.size(0), int)
assert_type(x.grad, aj.Tensor | None)
assert_type(x.T, aj.Tensor)
assert_type(aj.float32, aj.dtype)
"""
MISTAKES = {
    "x.exq()": '"Tensor" has no attribute "exq"',
    "aj.exq(x)": 'Module has no attribute "exq"',
    'x.sum("0")': 'Argument 1 to "sum" of "TensorMethods" has incompatible type "str"',
    "x.exp(1)": "Too many arguments",
    "x.T = x": 'Property "T" defined in "TensorMethods" is read-only',
}


def test_the_stubs_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_stubs.py", "--check"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_type_checker_knows_functions_and_methods_and_finds_those_that_do_not_exist(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "\n".join(MISTAKES), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(program)]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    first = PROGRAM.count("\n") + 1
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(found) == len(MISTAKES), done.stdout
    for k, (line, said) in enumerate(zip(found, MISTAKES.values(), strict=True)):
        assert line.startswith(f"program.py:{first + k}: "), line
        assert said in line
