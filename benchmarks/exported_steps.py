"""A step called from C, exported, beside the same step called in the process; that both compute the same bits.

``python -m benchmarks.exported_steps [NAME ...] [--rounds N] [--threads N]``. Needs ``cc``. The two take turns; times
are the least and the lower quartile of all rounds, in microseconds a call, of the processor where there is one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import autojit as aj
from benchmarks.systems import plain_step
from benchmarks.workloads import STEPS

ROUND_S = 0.01
CHECKED = 4  # calls whose bits are compared
QUICK = ("mlp_digits", "residual_block", "gpt", "rosenbrock10")

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include "step.h"

/* Memory as NumPy's arrays have it: large blocks in huge pages where the system has them. */
static void *memory(long size)
{
    void *found;
    if (posix_memalign(&found, size < 1L << 22 ? 64 : 1L << 21, size)) exit(8);
    if (size >= 1L << 22) madvise(found, size, MADV_HUGEPAGE);
    return found;
}

static void *contents(int number)
{
    char path[32];
    snprintf(path, sizeof path, "argument%d", number);
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    void *found = memory(size + 64);
    rewind(file);
    if (fread(found, 1, size, file) != (size_t)size) exit(9);
    fclose(file);
    return found;
}

int main(int count, char **values)
{
    step_instance *instance;
    void *arguments[64], *results[64];
    int given = atoi(values[2]), taken = atoi(values[3]), clock = atoi(values[4]), calls;
    if (step_create(&instance) || step_set_threads(atoi(values[1])) || count < 5) return 1;
    for (int k = 0; k < given; k++) arguments[k] = contents(k);
    for (int k = 0; k < taken; k++) results[k] = memory(1 << 28);
    while (scanf("%d", &calls) == 1) {
        struct timespec start, end;
        clock_gettime(clock, &start);
        for (int k = 0; k < calls; k++)
            if (step_run(instance, (step_arguments *)arguments, (step_results *)results)) return 2;
        clock_gettime(clock, &end);
        printf("%.4f\n", ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / 1e3 / calls);
        fflush(stdout);
    }
    return 0;
}
"""


def prepared(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A workload's jitted step, and its arguments."""
    problem: Any = STEPS[name].build(aj)
    return aj.jit(plain_step(aj, problem)), problem.args


def clock_of(threads: int) -> int:
    """Of one thread the processor's time is measured, which others on the machine change less than the wall's."""
    return time.CLOCK_PROCESS_CPUTIME_ID if threads == 1 else time.CLOCK_MONOTONIC


def from_c(folder: Path, arguments: list[Any], results: int, threads: int) -> Callable[[int], float]:
    """Microseconds of so many calls of the library in a folder, by a program in C."""
    (folder / "main.c").write_text(PROGRAM, encoding="utf-8")
    command = ["cc", "-O2", "-o", "main", "main.c", "step.so", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=folder, check=True)
    for number, array in enumerate(arguments):
        (folder / f"argument{number}").write_bytes(array.tobytes())
    numbers = [str(n) for n in (threads, len(arguments), results, clock_of(threads))]
    pipe = subprocess.PIPE
    child = subprocess.Popen(["./main", *numbers], cwd=folder, stdin=pipe, stdout=pipe, text=True)

    def timed(calls: int) -> float:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{calls}\n")
        child.stdin.flush()
        return float(child.stdout.readline())

    return timed


def compared(name: str, rounds: int, threads: int) -> str:
    """One line of the table."""
    step, args = prepared(name)
    clock = clock_of(threads)
    for _ in range(3):
        step(*args)
    arrays = [np.ascontiguousarray(a.detach().numpy()) for a in args]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        start = time.perf_counter()
        step.export(folder / "step")
        export_s = time.perf_counter() - start
        library = aj.export.load(folder / "step")
        same = all(_bits(library(*arrays)) == _bits(step(*args)) for _ in range(CHECKED))
        c = from_c(folder, arrays, len(library.manifest["results"]), threads)

        def here(calls: int) -> float:
            start = time.clock_gettime(clock)
            for _ in range(calls):
                step(*args)
            return (time.clock_gettime(clock) - start) / calls * 1e6

        calls = max(1, round(ROUND_S * 1e6 / min(here(1), here(1))))
        c(calls)
        pairs = np.array([(c(calls), here(calls)) for _ in range(rounds)])
        least, quarter = pairs.min(0), np.percentile(pairs, 25, axis=0)
        kilobytes = (folder / "step.so").stat().st_size / 1e3
    return (
        f"{name:<20} {least[0]:>10.2f} {least[1]:>10.2f} {quarter[0]:>10.2f} {quarter[1]:>10.2f} "
        f"{kilobytes:>9.0f} KB {export_s:>7.2f} s  {'same bits' if same else 'OTHER BITS'}"
    )


def _bits(found: Any) -> list[bytes]:
    values = found if isinstance(found, tuple | list) else [found]
    return [np.asarray(v.detach().numpy() if isinstance(v, aj.Tensor) else v).tobytes() for v in values]


def main() -> None:
    parser = argparse.ArgumentParser(description="exported steps called from C, beside the process")
    parser.add_argument("names", nargs="*", default=QUICK, metavar="NAME", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    aj.set_num_threads(options.threads)
    print(f"{'':<20} {'C least':>10} {'here least':>10} {'C 25 %':>10} {'here 25 %':>10}")
    for name in options.names:
        print(compared(name, options.rounds, options.threads), flush=True)


if __name__ == "__main__":
    main()
