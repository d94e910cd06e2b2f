"""Runs a program on several ranks; as a program, the checks of a file, or those named: one launch checks many things.

A failing function is told by every rank on which it failed, with its traceback.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIME_LIMIT_S = 600  # what hangs is told by the watchdog; a busy machine is only slow

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None
    or shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    is None,
    reason="mpi4py and an MPI are not installed (pip install 'autojit[mpi]')",
)


def launch(
    ranks: int, program: Sequence[str], more: Sequence[str] = (), limit_s: float = TIME_LIMIT_S, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m autojit.launch -n ranks program``; what is left of it after the limit is killed.

    Ranks that wait leave the cores to those that compute, as others run tests here meanwhile (Open MPI's variable).
    """
    environment = {
        **os.environ, "AUTOJIT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **variables,
    }  # fmt: skip
    line = [sys.executable, "-m", "autojit.launch", "-n", str(ranks), *more, *program]
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        text, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        raise AssertionError(f"not done after {limit_s} s: {' '.join(line)}\n{text}") from None
    return subprocess.CompletedProcess(line, process.returncode, text)


def check(ranks: int, file: str, limit_s: float = TIME_LIMIT_S, **variables: str) -> None:
    """Run the functions ``check_…`` of a file in this folder on so many ranks.

    Every rank compiles its own kernels, and what is checked is how ranks go together: LLVM does its least.
    """
    done = launch(ranks, [str(HERE / "worlds.py"), file], limit_s=limit_s, **{"AUTOJIT_OPT_LEVEL": "0", **variables})
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all hold") == ranks, done.stdout


def _run_checks(file: str, names: Sequence[str]) -> int:
    import autojit as aj

    spec = importlib.util.spec_from_file_location(file, HERE / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file] = module
    spec.loader.exec_module(module)
    aj.distributed.init_process_group()
    rank, failed = aj.distributed.get_rank(), 0
    for name, function in list(vars(module).items()):
        if name.startswith("check_") and (not names or name in names):
            aj.manual_seed(0)
            try:
                function()
                error = ""
            except Exception:
                error = traceback.format_exc()
            errors = [None] * aj.distributed.get_world_size()
            aj.distributed.all_gather_object(errors, error)
            if error:
                print(f"{name} on rank {rank}:\n{error}", flush=True)
            failed += any(errors)
    aj.distributed.destroy_process_group()
    print("all hold" if not failed else f"{failed} fail", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(_run_checks(sys.argv[1], sys.argv[2:]))
