"""Run as a program by MPI's launcher, one per rank: runs the rank's program, and tells `autojit.launch` how it ended.

It is started with ``python -P``, as this folder has modules of the names of Python's, and imports nothing of autojit,
so a rank costs one start of Python. The program is ``__main__`` as without it, and finds the variables of torchrun. A
second process waits for it: the launcher may be one that goes on when a rank has died (Open MPI with fault tolerance),
and then somebody has to say so. The program ends when that process does.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

REPORT = "AUTOJIT_LAUNCH_REPORT"  # a folder; each rank that has failed writes a file
DONE = ".done"  # behind the number of a rank that has come to its end, in the name of such a file
PROCESS = "AUTOJIT_RANK_PROCESS"  # the number of the rank's process: processes that it starts are not ranks
ELASTIC = "AUTOJIT_ELASTIC"  # set where ranks go on without those that are lost
_KNOWN = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "WORLD_SIZE"),
}
_DEFAULTS = {"LOCAL_RANK": "0", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def set_variables() -> None:
    """The variables of torchrun, from those of MPI's launcher."""
    for name, sources in _KNOWN.items():
        found = next((os.environ[s] for s in sources if s in os.environ), None)
        if found is not None:
            os.environ[name] = found
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)


def end_with_parent() -> None:
    """Let this process be killed when its parent ends, in whatever way."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL))


def watch(child: int) -> NoReturn:
    """Wait for the program; end as it has ended.

    Hydra sees that a rank has ended when nobody has the descriptor ``PMI_FD`` open, and kills the others and this one:
    so this process keeps it until it has told.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if os.path.isdir(os.environ.get(REPORT, "")):
        name = os.environ.get("RANK", "0") + ("" if status else DONE)
        Path(os.environ[REPORT], name).write_text(f"{os.uname().nodename} {status}", encoding="utf-8")
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status & 255)


def run(arguments: list[str]) -> None:
    """Run the program as ``python program`` or ``python -m module`` does."""
    if arguments[0] == "-m":
        import runpy

        sys.argv[:] = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    path = arguments[0]
    sys.argv[:] = arguments
    sys.path.insert(0, str(Path(path).resolve().parent))
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), module.__dict__)


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def abort(status: int) -> None:
    """End the other ranks, which would wait for this one, if it has joined them."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    sys.stdout.flush()
    sys.stderr.flush()
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(status)


def leave_without_the_lost() -> None:
    """End without MPI's own end where a rank was lost, for which that may wait for ever."""
    engine: Any = sys.modules.get("autojit.distributed.mpi")
    if engine is None or not engine.lost_ranks:
        return
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Run a program, and watch it from a second process."""
    set_variables()
    end_with_parent()
    child = os.fork()
    if child:
        watch(child)
    end_with_parent()
    os.environ[PROCESS] = str(os.getpid())
    try:
        run(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if status:
            if not isinstance(error.code, int):
                print(error.code, file=sys.stderr)  # noqa: T201  (as Python does)
            abort(status & 255)
        leave_without_the_lost()
        sys.exit(status)
    except BaseException as error:
        told = error.with_traceback(_of_program(error.__traceback__) or error.__traceback__)
        sys.excepthook(type(told), told, told.__traceback__)
        abort(130 if isinstance(error, KeyboardInterrupt) else 1)
        sys.exit(1)
    leave_without_the_lost()


if __name__ == "__main__":
    main(sys.argv[1:])
