"""Eager mode beside torch's: every workload and the small programs of ``eager_cases.py``, as they are written.

    python -m benchmarks.eager_programs [--only NAME,...] [--seconds 4] [--core 0]

Both libraries run one thread each on one core, in processes that take turns: a batch here, a batch there. A figure is
the lower quartile over the batches of processor time a call, so that neither other work of the machine nor its drift
decides. Results are compared after the first call: a fast wrong program is no program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.eager_cases import CASES
from benchmarks.systems import environment, is_installed, load, prepare
from benchmarks.timing import median, quantile
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = ("autojit-eager", "torch-eager")
WARM_UP_S, FEWEST_WARM_UPS = 0.7, 60  # passes are known after some thirty calls, and compiled beside
BATCH_S = 0.01
CLOSE = 5e-2  # of the first result's checks: what is compared is the program, not its rounding


class Figure(NamedTuple):
    """Of one program: seconds of processor time a call, here and in torch, and whether the results agree."""

    name: str
    ours_s: float
    torchs_s: float
    agree: bool

    @property
    def ratio(self) -> float:
        return self.ours_s / self.torchs_s

    def row(self) -> str:
        remark = "" if self.agree else "  results differ"
        return f"{self.name:22} {self.ours_s * 1e3:9.3f} {self.torchs_s * 1e3:9.3f} {self.ratio:6.2f}{remark}"


class Child:
    """A process that runs one program on one system, a batch whenever it is asked."""

    def __init__(self, system: str, name: str, core: int | None, cache: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.eager_programs", "--child", system, name]
        if core is not None:
            command += ["--core", str(core)]
        self.process = subprocess.Popen(
            command,
            env=environment(system, cache, 1),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.check: dict[str, float] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with status {self.process.wait()}")
        return json.loads(line)

    def batch(self) -> float:
        """Seconds a call in one more batch."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(system: str, name: str) -> None:
    """What a child does: the first result's checks, then a batch for every line of the input."""
    module = load(system, 1)
    if name in WORKLOADS:
        step = prepare(system, module, WORKLOADS[name])
        call, check = step.call, step.check
    else:
        call, check = CASES[name](module), lambda result: {"result": float(result)}
    print(json.dumps(check(call())), flush=True)
    started, calls = time.process_time(), 0
    while time.process_time() - started < WARM_UP_S or (
        calls < FEWEST_WARM_UPS and time.process_time() - started < 4 * WARM_UP_S
    ):
        call()
        calls += 1
    count = max(1, int(BATCH_S / ((time.process_time() - started) / calls)))
    for _ in sys.stdin:
        before = time.process_time()
        for _ in range(count):
            call()
        print(json.dumps((time.process_time() - before) / count), flush=True)


def measured(name: str, seconds: float, core: int | None, cache: Path) -> Figure:
    """One program on both systems."""
    children = [Child(system, name, core, cache) for system in SYSTEMS]
    times: list[list[float]] = [[], []]
    stop = time.perf_counter() + seconds
    for child in children:
        child.batch()  # after its warm-up
    while time.perf_counter() < stop or len(times[0]) < 5:
        for child, found in zip(children, times, strict=True):
            found.append(child.batch())
    for child in children:
        child.close()
    ours, torchs = (child.check for child in children)
    agree = all(np.isclose(ours[key], torchs[key], rtol=CLOSE, atol=1e-5) for key in torchs)
    mine, others = (quantile(sorted(found), 0.25) for found in times)
    return Figure(name, mine, others, agree)


def main() -> None:
    """Print a table and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--seconds", type=float, default=4.0, help="of batches in turns, per program")
    parser.add_argument("--core", type=int, help="the core all run on; default: any")
    parser.add_argument("--child", nargs=2, metavar=("SYSTEM", "NAME"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {chosen.core})
    if chosen.child:
        serve(*chosen.child)
        return
    if not all(map(is_installed, SYSTEMS)):
        sys.exit("torch is not installed: there is nothing to compare with")
    names = chosen.only.split(",") if chosen.only else [*WORKLOADS, *CASES]
    print(f"{'program':22} {'ms':>9} {'torch ms':>9} {'ratio':>6}")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            figures.append(measured(name, chosen.seconds, chosen.core, Path(folder)))
            print(figures[-1].row(), flush=True)
    for title, group in (("workloads", WORKLOADS), ("further programs", CASES), ("all", {**WORKLOADS, **CASES})):
        ratios = [figure.ratio for figure in figures if figure.name in group]
        if ratios:
            mean = float(np.exp(np.mean(np.log(ratios))))
            print(f"{title}: {len(ratios)}, median {median(ratios):.2f}, geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
