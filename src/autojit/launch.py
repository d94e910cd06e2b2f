"""``python -m autojit.launch -n 2 train.py``: a program on several ranks, by the launcher of the MPI that is there.

What it does that plain ``mpiexec`` does not: finds the mpiexec that belongs to this Python, lets it run as root and
with more ranks than cores, turns on Open MPI's fault tolerance, shares the cores among the ranks' threads, sets the
variables that torchrun sets, and starts the program again when it has failed (``--max-restarts``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autojit import launched_rank
from autojit.core.errors import ArgumentError, AutojitError, UsageError

__all__ = ["command", "main"]

_GRACE_S = 8.0  # that ranks have to end after a signal, or after another one has failed
_LOOK_S = 0.2
_RING_BELOW = 4
"""Ranks below which Open MPI's begun all-reduces are told to go around a ring, as they do for more: by themselves they
reduce to one rank and broadcast. Two ranks of one machine, least of 40 rounds in turns: 7 MB 2.4 in place of 4.1 ms,
1 MB 0.25 in place of 0.42 ms, 64 KB 41 in place of 39 us."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m autojit.launch", description="run a program on several ranks", allow_abbrev=False
    )
    made.add_argument(
        "-n", "-np", "--nproc-per-node", "--nproc_per_node", dest="ranks", type=int, default=2, help="how many ranks"
    )
    made.add_argument(
        "--as-torch", action="store_true", help="the program is written for torch: import torch is autojit"
    )
    made.add_argument("-m", "--module", action="store_true", help="the program is named as a module")
    made.add_argument("--mpiexec", help="the launcher; by default the one that belongs to this Python, or on the PATH")
    made.add_argument(
        "--mpi-args",
        action="append",
        default=[],
        metavar="ARG",
        help="a further argument for mpiexec, e.g. --hostfile=F",
    )
    made.add_argument("--max-restarts", type=int, default=0, help="start again so often when the program has failed")
    made.add_argument(
        "--elastic", action="store_true", help="let ranks go on when another is lost (autojit.elastic.run)"
    )
    made.add_argument("--standalone", action="store_true", help=argparse.SUPPRESS)  # torchrun's; it always is
    made.add_argument("program", help="the program, or a module after -m")
    made.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return made


def find_mpiexec(given: str | None = None) -> str:
    """The launcher of the MPI that is installed beside this Python, or of the system.

    Raises:
        UsageError: there is none.
    """
    beside = Path(sys.executable).parent
    found = shutil.which(given) if given else shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec")
    if found is None:
        raise UsageError(
            "launch: there is no mpiexec", {"looked for": given or f"{beside}, PATH"}, "pip install 'autojit[mpi]'"
        )
    return found


def is_open_mpi(mpiexec: str) -> bool:
    """Whether a launcher is Open MPI's; the flags of others are Hydra's, which MPICH, Intel MPI and MVAPICH share."""
    done = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in done.stdout or "OpenRTE" in done.stdout or "PRRTE" in done.stdout


def command(mpiexec: str, ranks: int, program: Sequence[str], more: Sequence[str] = ()) -> list[str]:
    """The command line that starts a program's ranks; ``program``: what follows ``python``."""
    flags: list[str] = []
    if is_open_mpi(mpiexec):
        # threads of a rank may use all cores; --with-ft: a dead rank is an error of the others, not their end
        flags = ["--with-ft", "ulfm", "--oversubscribe", "--bind-to", "none"]
        if ranks > _cores():
            flags += ["--mca", "mpi_yield_when_idle", "1"]
    return [mpiexec, *flags, *more, "-n", str(ranks), sys.executable, "-P", launched_rank.__file__, *program]


def environment(ranks: int, restart: int = 0) -> dict[str, str]:
    """The ranks' variables."""
    found = dict(os.environ)
    if os.geteuid() == 0:
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    found.setdefault("AUTOJIT_NUM_THREADS", str(max(1, _cores() // ranks)))
    found.setdefault("OMP_NUM_THREADS", "1")  # as torchrun
    if ranks < _RING_BELOW:
        found.setdefault("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "ring")
    found["AUTOJIT_RESTART"] = found["TORCHELASTIC_RESTART_COUNT"] = str(restart)
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Ranks:
    """A running job: mpiexec, and the folder where ranks say how they have failed."""

    def __init__(self, line: Sequence[str], env: dict[str, str], folder: str) -> None:
        self.is_elastic = launched_rank.ELASTIC in env
        self.folder = Path(folder)
        self.process = subprocess.Popen(line, env={**env, launched_rank.REPORT: folder})
        self.deadline: float | None = None

    def pass_on(self, number: int, _frame: Any) -> None:
        """A signal to this process is one to the job."""
        self.process.send_signal(number)
        self.deadline = time.monotonic() + _GRACE_S

    def failed(self) -> dict[int, tuple[str, int]]:
        """By rank, where it ran and its exit status, for those that have failed; in the order in which they did."""
        files = [f for f in self.folder.iterdir() if f.name.isdigit()]
        told = {int(f.name): f.read_text(encoding="utf-8").split() for f in sorted(files, key=os.path.getmtime)}
        return {rank: (text[0], int(text[1])) for rank, text in told.items() if len(text) == 2}

    def finished(self) -> bool:
        """Whether a rank has come to its end."""
        return any(f.name.endswith(launched_rank.DONE) for f in self.folder.iterdir())

    def _is_failing(self) -> bool:
        """Whether a rank has failed, in a way that the others do not go on from."""
        return any(code > 0 or not self.is_elastic for _, code in self.failed().values())

    def wait(self) -> int:
        """The exit status: of the first rank that has failed, else mpiexec's. No rank is left afterwards.

        When a rank has failed, the others have some seconds to notice and to end by themselves.
        """
        while True:
            try:
                status = self.process.wait(_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if self.deadline is None and self._is_failing():
                    self.deadline = time.monotonic() + _GRACE_S
                if self.deadline is not None and time.monotonic() > self.deadline:
                    self._end()
        failed = self.failed()
        if self.is_elastic and not self._is_failing() and self.finished():
            status, failed = 0, {}
        for rank, (host, code) in failed.items():
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
            print(f"autojit.launch: rank {rank} on {host} has ended {how}", file=sys.stderr)
        first = next(iter(failed.values()), ("", status))[1]
        return 128 - first if first < 0 else first

    def _end(self) -> None:
        """End mpiexec, which ends the ranks; these are killed at the latest when their parents are gone."""
        assert self.deadline is not None
        is_late = time.monotonic() > self.deadline + _GRACE_S
        self.process.send_signal(signal.SIGKILL if is_late else signal.SIGTERM)


def run(line: Sequence[str], env: dict[str, str]) -> int:
    """Run a command that starts ranks, in the foreground: its exit status. Signals are passed on."""
    with tempfile.TemporaryDirectory(prefix="autojit-launch-") as folder:
        ranks = Ranks(line, env, folder)
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.signal(number, ranks.pass_on) for number in numbers}
        try:
            return ranks.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if ranks.process.poll() is None:
                ranks.process.kill()
                ranks.process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program on several ranks: the exit status of the rank that failed, 0 where none did."""
    options = parser().parse_args(arguments)
    try:
        if options.ranks < 1:
            raise ArgumentError("launch: there is at least one rank", {"-n": options.ranks})
        program = [options.program, *options.args]
        if options.module:
            program = ["-m", *program]
        elif not Path(options.program).is_file():
            raise ArgumentError("launch: there is no such program", {"program": options.program}, "name a Python file")
        if options.as_torch:
            program = ["-m", "autojit", "run", *program]
        line = command(find_mpiexec(options.mpiexec), options.ranks, program, options.mpi_args)
    except AutojitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for restart in range(options.max_restarts + 1):
        began = time.monotonic()
        env = environment(options.ranks, restart)
        status = run(line, env | ({launched_rank.ELASTIC: "1"} if options.elastic else {}))
        if status in (0, 130, 128 + signal.SIGTERM) or restart == options.max_restarts:
            return status
        print(
            f"autojit.launch: the program ended with status {status} after {time.monotonic() - began:.1f} s; "
            f"restart {restart + 1} of {options.max_restarts}",
            file=sys.stderr,
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
