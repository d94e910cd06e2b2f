"""The tests that numbers decide, run as other machines would run them: ``python tools/test_machines.py [--short]``.

A row of the matrix is one way in which a machine may differ from this one: OpenBLAS's kernels (``OPENBLAS_CORETYPE``
changes the order of sums), NumPy's own vector loops (``NPY_DISABLE_CPU_FEATURES``), the width of the vector registers
that our kernels are compiled for (``AUTOJIT_VECTOR_BYTES``), the number of threads, checked kernels, another device,
CUDA on its emulator, the versions of what we build on, MPICH in Open MPI's place, and the Pythons that are installed
here. ``--short`` runs the rows and files that differ most, of the tests a share; with ``--only`` all rows of that name,
with few of their tests. ``--list`` only prints the rows.

Registers wider than the machine's are not run: ``tests/runtime/test_llvm.py`` assembles for them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "machines"
"""Virtual environments of other versions; each is made once."""

NUMERIC = (
    "tests/ops", "tests/codegen", "tests/special", "tests/linalg", "tests/transforms", "tests/runtime/test_llvm.py",
    "tests/runtime/test_executable.py", "tests/nn/test_convolution.py", "tests/nn/test_functional.py",
    "tests/nn/test_layers.py", "tests/nn/test_recurrent.py", "tests/optim/test_optimizers.py",
    "tests/acceptance/test_programs.py",
)  # fmt: skip
SHORT = ("tests/ops/test_laws.py", "tests/codegen/test_compiled.py", "tests/nn/test_convolution.py", "--sample", "3")
THREADED = (
    "tests/codegen/test_compiled.py",
    "tests/codegen/cpu/products/test_gemm.py",
    "tests/runtime",
    "tests/nn/test_convolution.py",
)
VERSIONED = (
    "tests/ops",
    "tests/codegen/test_compiled.py",
    "tests/runtime",
    "tests/numba_ops",
    "tests/interop",
    "tests/tensor",
)


OBSERVED = ("tests/jit", "tests/control_flow", "tests/functions", "tests/interop", "tests/runtime", "tests/optim")
"""What bytecode, classes of the standard library and NumPy's newest version decide."""

SAMPLED = ("tests", "src", "--ignore=tests/house", "--sample", "20")
"""One test of twenty of everything: minutes. House rules are about the sources, which are the same."""


SECOND_DEVICE = (
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/autograd/test_rows_*.py")),
    "tests/ops/test_laws.py",
    "tests/codegen/test_compiled.py",
    "tests/acceptance/test_programs.py",
    "tests/testing/test_second_device.py",
)
"""What must hold wherever tensors are: the reference of autograd, the ops' laws, whole programs."""

CUDA = (*SECOND_DEVICE[:-1], "tests/optim")
"""What must hold on CUDA, but for what `tests/cpu_only.txt` excludes with a reason."""
CUDA_SHORT = (
    *(
        f"tests/acceptance/test_programs.py::test_compiled_steps_equal_eager_ones_in_one_native_call_each[{name}-tiny]"
        for name in ("mlp_sgd", "mlp_adam", "softmax_layernorm", "heat_in_place", "black_scholes", "implied_volatility")
    ),
    *SECOND_DEVICE[:-2],
    "--sample",
    "20",
)


class Row(NamedTuple):
    """One machine: its name, what the environment says of it, the tests that could notice, other versions' packages,
    and the interpreter.
    """

    name: str
    environment: dict[str, str]
    tests: Sequence[str] = NUMERIC
    short_tests: Sequence[str] = ()
    packages: tuple[str, ...] = ()
    is_short: bool = False
    python: str = sys.executable


def widest_bytes() -> int:
    """Bytes of this machine's vector registers."""
    sys.path.insert(0, str(ROOT / "src"))
    from autojit.codegen.target import host_target

    return host_target().vector_bytes


def rows() -> Iterator[Row]:
    """The whole matrix."""
    for core in ("Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX"):
        tests = ("tests/ops", "tests/linalg", "tests/nn/test_convolution.py", "tests/codegen/cpu/products/test_gemm.py")
        yield Row(f"blas {core}", {"OPENBLAS_CORETYPE": core}, tests)
    plain = {"NPY_DISABLE_CPU_FEATURES": _dispatched(), "OPENBLAS_CORETYPE": "Prescott"}
    for width in (16, 32, 64):
        if width <= widest_bytes():
            others = plain if width == 16 else {}
            yield Row(
                f"registers of {width} bytes", {"AUTOJIT_VECTOR_BYTES": str(width), **others}, is_short=width == 16
            )
        else:
            print(f"registers of {width} bytes: this machine has none; assembled only (tests/runtime/test_llvm.py)")
    for threads in (1, 2, 3):
        yield Row(f"{threads} threads", {"AUTOJIT_NUM_THREADS": str(threads)}, THREADED)
    short = (*SECOND_DEVICE, "--sample", "4")
    yield Row("second device", {"AUTOJIT_TEST_DEVICE": "second"}, SECOND_DEVICE, short, is_short=True)
    on_cuda = {"AUTOJIT_TEST_DEVICE": "cuda"}
    yield Row("cuda, emulated", on_cuda, CUDA, CUDA_SHORT, is_short=True)
    yield Row("cuda, what is excluded", on_cuda, (*CUDA, "--excluded"))
    yield Row("checked kernels", {"AUTOJIT_CHECK": "1", "AUTOJIT_NUM_THREADS": "3"}, is_short=True)
    yield Row("oldest versions", {}, VERSIONED, packages=_versions(oldest=True))
    yield Row("newest versions", {}, VERSIONED, packages=_versions(oldest=False))
    mpich = (*_versions(oldest=False), "mpi4py", "mpich")
    yield Row("MPICH", {}, ("tests/distributed", "tests/codegen/test_collective_entries.py"), packages=mpich)
    for version in re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()):
        if version == f"3.{sys.version_info[1]}":
            continue
        python = _interpreter(version)
        if python:
            newest = _versions(oldest=False)
            yield Row(f"Python {version}", {}, OBSERVED, SAMPLED, packages=newest, python=python)
        else:
            print(f"Python {version}: not installed here")


def _interpreter(version: str) -> str:
    """A Python of this version that runs: from PATH, or one of pyenv's; "" if there is none."""
    known = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")
    for found in (shutil.which(f"python{version}"), *map(str, sorted(known))):
        if found and subprocess.run([found, "-c", "import venv, ctypes"], capture_output=True).returncode == 0:
            return found
    return ""


def _dispatched() -> str:
    """The instruction groups that this machine's NumPy dispatches to: naming another one is an error."""
    code = (
        "import numpy; from numpy._core._multiarray_umath import __cpu_dispatch__ as d, __cpu_features__ as f; "
        "print(*[n for n in d if f.get(n)])"
    )
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _versions(oldest: bool) -> tuple[str, ...]:
    """The packages of ``pyproject.toml`` with a lower bound, at that bound or as new as the bounds allow."""
    text = (ROOT / "pyproject.toml").read_text()
    found = []
    for name in ("numpy", "llvmlite", "numba", "ml_dtypes"):
        (requirement,) = set(re.findall(rf'"({name}[<>=][^"]*)"', text))
        lower = re.search(r">=([\d.]+)", requirement)
        assert lower is not None
        exact = lower[1] if lower[1].count(".") > 1 else f"{lower[1]}.0"
        found.append(f"{name}=={exact}" if oldest else requirement)
    return tuple(found)


def environment_of(row: Row) -> str:
    """The Python to run a row with: this one, or one with other versions of some packages over this one's others."""
    if not row.packages:
        return sys.executable
    place = BUILD / row.name.replace(" ", "-")
    python, stamp = place / "bin" / "python", place / "installed"
    wanted = "\n".join(row.packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([row.python, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        tools = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "scipy", "scikit-learn", "matplotlib", "safetensors")
        subprocess.run([*install, *row.packages, *tools], check=True)
        stamp.write_text(wanted)
    return str(python)


def run(row: Row, workers: str, is_short: bool) -> tuple[bool, str]:
    """Run one row's tests: whether they passed, and pytest's last line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **row.environment}
    shorter = row.short_tests or (SHORT if row.tests is NUMERIC else row.tests)
    tests = shorter if is_short else (*row.tests, "--every-case")
    command = [environment_of(row), "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-20_000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    return done.returncode == 0, done.stdout.strip().rsplit("\n", 1)[-1]


def main() -> int:
    """Run the matrix; 1 if a row failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the rows and files that differ most")
    parser.add_argument("--list", action="store_true", help="print the rows")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--workers", default="2", help="of pytest-xdist")
    options = parser.parse_args()
    has_row = bool(options.only) or not options.short
    chosen = [row for row in rows() if options.only in row.name and (row.is_short or has_row)]
    failed = []
    for row in chosen:
        described = " ".join([*(f"{k}={v!r}" for k, v in row.environment.items()), *row.packages])
        print(f"{row.name}: {described}", flush=True)
        if options.list:
            continue
        started_s = time.monotonic()
        passed, line = run(row, options.workers, options.short)
        print(f"  {'passed' if passed else 'FAILED'} in {time.monotonic() - started_s:.0f} s: {line}", flush=True)
        if not passed:
            failed.append(row.name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
