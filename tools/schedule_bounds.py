"""What the numbers of the schedule decide: kernels, bands, memory and time to schedule, for one value after the other.

    python -m tools.schedule_bounds

Every workload of ``benchmarks`` and every acceptance program is captured once; the graphs are then scheduled with other
bounds of the search and for other machines, without state that is updated in place. The comments beside these numbers
quote this table. Nothing is compiled, so it says nothing of how fast the kernels are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar

import autojit as aj
from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.codegen.lowered import LoweredStep
from autojit.core.machine import Bands, Machine
from autojit.ir import Graph
from autojit.schedule import bands, batches, fusion, loops
from autojit.schedule.bands import Band
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule
from benchmarks.systems import prepare
from benchmarks.workloads import WORKLOADS
from tests.acceptance.programs import PROGRAMS

R = TypeVar("R", Machine, Bands)

BOUNDS: dict[tuple[ModuleType, str], tuple[int, ...]] = {
    (fusion, "MOST_MEMBERS"): (50, 100, 200, 10_000),
    (fusion, "CANDIDATES"): (1, 2, 3, 12, 100),
    (fusion, "RECENT_READERS"): (1, 2, 10, 100_000),
    (bands, "LOOK_AHEAD"): (8, 32, 128, 1000),
    (bands, "LEAST_KERNELS"): (3, 4),
    (bands, "LONG_ROWS"): (1, 2, 16, 1000),
    (batches, "MOST_KERNELS"): (16, 64, 100_000),
    (loops, "LONGEST_CHAIN"): (8, 16, 64, 1000),
}
MACHINES = {
    "most_buffers": (10, 20, 80),
    "small_domain": (0, 256, 65536),
    "expansion": (2, 4, 16, 1 << 30),
    "batch_bytes": (0, 1 << 18, 1 << 22),
}
SLICES = {
    "slice_bytes": (96 << 10, 1536 << 10),
    "least_slices": (2, 4, 32),
    "most_slices": (64, 4096),
    "contracted_bytes": (0, 16 << 10, 1 << 20),
    "least_bytes": (1 << 16, 1 << 20),
    "resident_bytes": (0, 1 << 20),
    "rows_per_packing": (24, 384),
}


def captured() -> list[Graph]:
    """The graphs of all steps, as they are scheduled."""
    graphs: list[Graph] = []
    usual = cpu_backend()

    def lower(found: Schedule, target: Any) -> LoweredStep:
        graphs.append(found.graph)
        return usual.lower(found, target)

    with compiling_by(replace(usual, lower=lower)):
        for workload in WORKLOADS.values():
            prepare("autojit", aj, workload).call()
        for program in PROGRAMS.values():
            run = program.build("medium")
            aj.jit(run.step)(*run.args)
    return graphs


def report(label: str, graphs: Sequence[Graph], machine: Machine = CPU_MACHINE) -> None:
    """One line: what the schedules are made of."""
    elapsed_s: list[float] = []
    for _ in range(3):
        start = time.process_time()
        found = [schedule(graph, machine) for graph in graphs]
        elapsed_s.append(time.process_time() - start)
    items = [item for plan in found for item in plan.kernels]
    kernels = [k for item in items for k in getattr(item, "kernels", [item])]
    sliced = [item for item in items if isinstance(item, Band)]
    print(
        f"{label:28s} {len(kernels):5d} kernels of at most {max(len(k.nodes) for k in kernels)} nodes,"
        f" {len(sliced):3d} bands of {sum(len(b.kernels) for b in sliced):4d},"
        f" {sum(plan.memory.arena_bytes for plan in found) / 1e6:8.2f} MB, {1e3 * min(elapsed_s):4.0f} ms",
        flush=True,
    )


@contextmanager
def other(module: ModuleType, name: str, value: int) -> Iterator[None]:
    """Inside, a bound has another value."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _with(numbers: R, name: str, value: Any) -> R:
    return replace(numbers, **{name: value})


def main() -> None:
    graphs = captured()
    print(f"{len(graphs)} graphs with {sum(len(graph.nodes) for graph in graphs)} nodes")
    report("as it is", graphs)
    for (module, name), values in BOUNDS.items():
        for value in values:
            with other(module, name, value):
                report(f"{name} = {value}", graphs)
    for name, values in MACHINES.items():
        for value in values:
            report(f"{name} = {value}", graphs, _with(CPU_MACHINE, name, value))
    assert CPU_MACHINE.bands is not None
    for name, values in SLICES.items():
        for value in values:
            slices = _with(CPU_MACHINE.bands, name, value)
            report(f"{name} = {value}", graphs, replace(CPU_MACHINE, bands=slices))


if __name__ == "__main__":
    main()
