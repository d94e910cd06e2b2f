"""The stages that ask for a machine, for the CPU; and CPUs of other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.core.machine import Machine
from autojit.ir import Graph
from autojit.passes import accumulate, pipeline
from autojit.passes import expand as expanding
from autojit.passes import hoist_steps as hoisting
from autojit.passes import join_products as joining
from autojit.schedule import scheduler as scheduling
from autojit.schedule.schedule import Schedule


def optimize(graph: Graph) -> Graph:
    return pipeline.optimize(graph, CPU_MACHINE)


def expand(graph: Graph) -> Graph:
    return expanding.expand(graph, CPU_MACHINE)


def hoist_steps(graph: Graph) -> Graph:
    return hoisting.hoist_steps(graph, CPU_MACHINE)


def join_products(graph: Graph) -> Graph:
    return joining.join_products(graph, CPU_MACHINE)


def accumulate_products(graph: Graph) -> Graph:
    return accumulate.accumulate_products(graph, CPU_MACHINE)


def run_pass(run: pipeline.Pass | pipeline.MachinePass, graph: Graph) -> Graph:
    return pipeline.run_pass(run, graph, CPU_MACHINE)


def schedule(graph: Graph, donated: Any = None, **options: Any) -> Schedule:
    return scheduling.schedule(graph, CPU_MACHINE, donated, **options)


def cpu_with(**bands: int) -> Machine:
    """The CPU whose rows are sliced by other numbers."""
    assert CPU_MACHINE.bands is not None
    return replace(CPU_MACHINE, bands=replace(CPU_MACHINE.bands, **bands))


@contextmanager
def compiling_with(**bands: int) -> Iterator[None]:
    """Inside, steps are compiled for a CPU whose rows are sliced by other numbers."""
    with compiling_by(cpu_backend(cpu_with(**bands))):
        yield
