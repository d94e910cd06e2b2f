"""What an all-reduce costs in a compiled step, beside mpi4py alone.

    python -m autojit.launch -n 2 benchmarks/collectives.py [--rounds 60] [--sizes "1 KB,1 MB,100 MB"]

Every round measures, one after the other: mpi4py's ``Allreduce`` of two buffers, the same in place, the compiled step
that reduces its argument and, of small ones, a step that does not. So what disturbs a round disturbs all of them; the
least time of all rounds is shown, and the lower quartile; of processor time, which other jobs disturb less, and of page
faults, the median. ``over`` is the step's least time without that of the empty step, beyond the least of mpi4py's with
two buffers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Any, NamedTuple

import numpy as np

import autojit as aj
from autojit import distributed as dist
from autojit.core.communicator import communicator
from autojit.distributed import functional

SIZES = {"1 KB": 1 << 8, "1 MB": 1 << 18, "100 MB": 25 << 20}
"""Elements of float32."""


class Measured(NamedTuple):
    """Of one call: seconds, seconds of this process's processor time, page faults."""

    wall_s: float
    processor_s: float
    faults: float


def measured(run: Callable[[], object], calls: int) -> Measured:
    """What a call costs."""
    dist.barrier()
    faults, processor_s, start = getrusage(RUSAGE_SELF).ru_minflt, time.process_time(), time.perf_counter()
    for _ in range(calls):
        run()
    wall_s, processor_s = time.perf_counter() - start, time.process_time() - processor_s
    return Measured(wall_s / calls, processor_s / calls, (getrusage(RUSAGE_SELF).ru_minflt - faults) / calls)


def ways(length: int) -> dict[str, Callable[[], object]]:
    """What is compared."""
    from mpi4py import MPI

    group: Any = communicator("world")
    comm = group.comm
    x = aj.ones(length)
    source, target = np.ones(length, np.float32), np.empty(length, np.float32)
    step = aj.jit(lambda x: functional.all_reduce(x))
    empty = aj.jit(lambda x: x + 1) if length <= 1 << 10 else None
    for _ in range(3):
        step(x)
    found: dict[str, Callable[[], object]] = {
        "mpi4py": lambda: comm.Allreduce(source, target),
        "mpi4py in place": lambda: comm.Allreduce(MPI.IN_PLACE, target),
        "step": lambda: step(x),
    }
    if empty is not None:
        empty(x), empty(x)
        found["empty step"] = lambda: empty(x)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sizes", default=",".join(SIZES))
    rounds = parser.parse_args().rounds
    dist.init_process_group()
    for name in parser.parse_args().sizes.split(","):
        length = SIZES[name]
        runs = ways(length)
        calls = max(1, (1 << 19) // (length * 4))
        times: dict[str, list[Measured]] = {way: [] for way in runs}
        for k in range(rounds if length < 1 << 24 else max(rounds // 4, 5)):
            order = list(runs) if k % 2 == 0 else list(runs)[::-1]
            for way in order:
                times[way].append(measured(runs[way], calls))
        if dist.get_rank() == 0:
            report(name, times)
    dist.destroy_process_group()


def report(name: str, found: dict[str, list[Measured]]) -> None:
    """Some lines per size."""
    times = {way: [m.wall_s for m in each] for way, each in found.items()}
    best = {way: min(each) for way, each in times.items()}
    low = {way: float(np.quantile(each, 0.25)) for way, each in times.items()}
    over = best["step"] - best["mpi4py"] - best.get("empty step", 0.0)
    shown = {way: f"{best[way] * 1e6:.2f} / {low[way] * 1e6:.2f} us" for way in best}
    print(f"{name}: {shown}; over {over * 1e6:+.2f} us, {100 * over / best['mpi4py']:+.1f} %", flush=True)
    processor_s = {way: float(np.median([m.processor_s for m in each])) for way, each in found.items()}
    faults = {way: float(np.median([m.faults for m in each])) for way, each in found.items()}
    shown = {way: f"{processor_s[way] * 1e6:.2f} us, {faults[way]:.0f} page faults" for way in processor_s}
    print(f"  processor time {shown}", flush=True)
    print(json.dumps({"size": name, "best_s": best, "quartile_s": low}), flush=True)


if __name__ == "__main__":
    main()
