"""What tests of exported steps share: bits of results, calls of both sides, the compiler of C."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autojit as aj
from autojit.export.names import names_of_arrays


def arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as a library takes them."""
    return tuple(a.detach().numpy() if isinstance(a, aj.Tensor) else a for a in arguments)


def bits(value: Any) -> list[Any]:
    """Shapes and bits of a nest of tensors, arrays and numbers."""
    if isinstance(value, dict):
        return [part for key in value for part in (key, *bits(value[key]))]
    if isinstance(value, tuple | list):
        return [part for item in value for part in bits(item)]
    array = np.asarray(value.detach().numpy() if isinstance(value, aj.Tensor) else value)
    return [array.shape, array.dtype.itemsize, np.ascontiguousarray(array).tobytes()]


def state_bits(step: Any) -> dict[str, bytes]:
    """The state of a jitted function's last step as it is in this process, by the names of its library."""
    names = names_of_arrays(step)
    return {names[id(e.array)]: bits(e.array)[-1] for e in step.last_step().entries if id(e.array) in names}


def exported(function: Callable[..., Any], calls: list[tuple[Any, ...]], path: Path) -> tuple[Any, Any]:
    """A jitted function that has run twice, and an instance of its library."""
    step = aj.jit(function)
    for arguments in (calls[0], calls[0]):
        step(*arguments)
    step.export(path)
    return step, aj.export.load(path)


def compile_c(source: str, folder: Path, library: str) -> Path:
    """A C program that uses a library in a folder, compiled; skips where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: cc is not installed")
    (folder / "main.c").write_text(source)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-Wl,-rpath,$ORIGIN"]
    command = [compiler, *flags, "-o", "main", "main.c", library]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "main"


def run_alone(code: str, folder: Path) -> str:
    """What an isolated interpreter prints that can import NumPy and what is in a folder, and nothing of ours."""
    hidden = "import sys; sys.modules['autojit'] = sys.modules['llvmlite'] = None; sys.path.insert(0, '.')\n"
    command = [sys.executable, "-c", hidden + code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
