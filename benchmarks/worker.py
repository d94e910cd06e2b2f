"""One measurement in a process of its own; started by ``benchmarks.run``, prints one JSON line after ``RECORD``."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy  # noqa: F401  # every system needs it, so it counts for none

from benchmarks.overheads import measure_overheads
from benchmarks.systems import load, prepare
from benchmarks.timing import steady_state
from benchmarks.workloads import WORKLOADS

MARK = "RECORD "
AGREEMENT_STEPS = 20  # outputs are compared after the first and after this many steps


def peak_memory_mb() -> float:
    """Highest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_workload(
    system: str, name: str, device: str, threads: int, seconds: float, started: float
) -> dict[str, Any]:
    """First call, agreement values, steady state and memory of one workload on one system.

    ``started`` is the wall-clock time at which the process was asked for.
    """
    before_import = time.perf_counter()
    module = load(system, threads, device)
    imported = time.perf_counter()
    imported_mb = peak_memory_mb()
    step = prepare(system, module, WORKLOADS[name], device)
    built = time.perf_counter()
    result = step.call()
    step.wait(result)
    first_call_s = time.perf_counter() - built
    record: dict[str, Any] = {
        "to_first_step_s": time.time() - started,
        "import_s": imported - before_import,
        "build_s": built - imported,
        "first_call_s": first_call_s,
        "first_check": step.check(result),
    }
    for _ in range(AGREEMENT_STEPS - 1):
        result = step.call()
    record["last_check"] = step.check(result)
    record |= asdict(steady_state(step.call, step.wait, seconds))
    return record | {"peak_mb": peak_memory_mb(), "peak_over_import_mb": peak_memory_mb() - imported_mb}


def main() -> None:
    kind, system, name, device, threads, seconds, started = sys.argv[1:]
    if kind == "workload":
        record = measure_workload(system, name, device, int(threads), float(seconds), float(started))
    else:
        record = measure_overheads(system, load(system, int(threads), device), float(seconds))
    print(MARK + json.dumps(record), flush=True)
    sys.stdout.flush()
    os._exit(0)  # some peers keep helper processes and threads that would delay the exit


if __name__ == "__main__":
    main()
