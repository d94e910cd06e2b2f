"""Loop kernels on the emulated device: printed as grids, compiled by LLVM, launched, and compared with eager rules.

The device checks every access, so a launch that returns has kept to its buffers, met at its barriers and raced nowhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autojit.codegen.cuda.entry_point import alignment_of, entry_text
from autojit.codegen.cuda.finished_ptx import finished_ptx
from autojit.codegen.cuda.grid_loops import print_grid
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.ir import Graph, evaluate
from autojit.ir.graph import Value
from autojit.runtime.gpu.emulator.driver import EmulatedDriver
from autojit.runtime.llvm import compile_to_object
from autojit.schedule.kernels import LoopKernel
from autojit.schedule.loops import LoopProgram
from autojit.schedule.schedule import Schedule
from tests.codegen.agreement import disagreement

Known = Mapping[Value, NDArray[Any]]

CODE = 7
"""What a kernel is called in its reports."""

LANE_ORDERS = (None, 1)
"""The lowest lanes first, and by chance."""

LARGE, SMALL = CudaTarget("sm_90", 132), CudaTarget("sm_90", 1)
"""The same work on many processors and on one: there lanes hold more, and groups walk more rows."""


class Ran(NamedTuple):
    """What a kernel wrote, and the step's error words after it."""

    values: dict[Value, NDArray[Any]]
    errors: tuple[int, int]


@cache
def device(order: int | None) -> EmulatedDriver:
    """A device that all tests share, with lanes in an order."""
    return EmulatedDriver(order=order, memory_bytes=64 << 20, pinned_bytes=1 << 20)


@cache
def ptx_of(text: str, target: CudaTarget) -> str:
    """A kernel's text, compiled once for all orders."""
    return finished_ptx(compile_to_object(text, target).decode(), target)


def launches(grid: GridText) -> Iterator[GridText]:
    """A kernel, and what follows it."""
    kernel: GridText | None = grid
    while kernel is not None:
        yield kernel
        kernel = kernel.combine


class Memory:
    """Arrays on the device, for one kernel."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self.driver = driver
        self.addresses: list[int] = []

    def fresh(self, size_bytes: int) -> int:
        self.addresses.append(self.driver.allocate(max(size_bytes, 1)))
        return self.addresses[-1]

    def put(self, array: NDArray[Any]) -> int:
        address = self.fresh(array.nbytes)
        if array.size:
            self.driver.write(address, array.reshape(-1))
        return address

    def get(self, address: int, value: Value) -> NDArray[Any]:
        content = self.driver.read(address, "u1", (value.type.size_bytes,))
        return content.view(value.type.dtype.numpy).reshape(value.type.shape)

    def release(self) -> None:
        for address in self.addresses:
            self.driver.release(address)


def run(program: LoopProgram, known: Known, target: CudaTarget = LARGE, order: int | None = None) -> Ran:
    """Launch a program's kernel, and what combines its partial results, on arrays."""
    grid, memory = print_grid(program, target), Memory(device(order))
    try:
        addresses = [memory.put(known[value]) for value in program.loads]
        written = [s.value for s in program.stores] + [a.value for a in program.accumulators]
        made: dict[Value, int] = {}  # what is stored in parts has an argument for each
        for value in written:
            place = program.in_place.get(value)
            if value not in made:
                made[value] = memory.fresh(value.type.size_bytes) if place is None else addresses[place]
            addresses.append(made[value])
        arguments = list(addresses)
        if grid.partial_bytes:
            arguments.append(memory.fresh(grid.partial_bytes))
        errors = memory.put(np.zeros(2, np.int64))
        if grid.reports:
            arguments += [errors, CODE]
        sizes = [value.type.size_bytes for value in (*program.loads, *written)]
        for kernel in launches(grid):
            launch(memory.driver, kernel, target, arguments, sizes)
        results = addresses[len(program.loads) :]
        values = {value: memory.get(at, value) for value, at in zip(written, results, strict=True)}
        word, position = memory.driver.read(errors, "<i8", (2,)).tolist()
        return Ran(values, (word, position))
    finally:
        memory.release()


def launch(
    driver: EmulatedDriver,
    kernel: GridText,
    target: CudaTarget,
    arguments: Sequence[int],
    sizes: Sequence[int] | None = None,
) -> None:
    """Run a kernel whose buffers do not move, begin at multiples of 256 bytes and have ``sizes`` bytes, or any."""
    sizes = [0] * len(kernel.buffers) if sizes is None else sizes
    alignments = [
        max(alignment_of(buffer, size, 256), buffer.element_bytes)
        for buffer, size in zip(kernel.buffers, sizes, strict=True)
    ]
    launch_entry(driver, kernel, entry_text(kernel, alignments, {}), target, arguments)


def launch_entry(
    driver: EmulatedDriver, kernel: GridText, entry: str, target: CudaTarget, arguments: Sequence[int]
) -> None:
    """Run a kernel by an entry point of its own."""
    text = ptx_of(entry, target)
    module = driver.load(driver.assemble(text, driver.architecture))
    try:
        words = (ctypes.c_uint64 * max(len(arguments), 1))(*arguments)
        places = (ctypes.c_uint64 * max(len(arguments), 1))(
            *[ctypes.addressof(words) + 8 * k for k in range(len(arguments))]
        )
        function = driver.function(module, "kernel")
        extents = kernel.blocks, (kernel.threads, 1, 1)
        driver.launch_extents(function, *extents, kernel.asked_bytes, ctypes.addressof(places), 0)
    finally:
        driver.unload(module)


def all_values(graph: Graph, inputs: Sequence[NDArray[Any]]) -> dict[Value, NDArray[Any]]:
    """Every value of a graph, by eager rules."""
    made = [value for node in graph.nodes for value in node.outputs]
    with np.errstate(all="ignore"):
        found = evaluate(replace(graph, outputs=tuple(made)), inputs)
    return {**dict(zip(graph.inputs, map(np.asarray, inputs), strict=True)), **dict(zip(made, found, strict=True))}


def loop_kernels(schedule: Schedule) -> list[LoopKernel] | None:
    """The kernels of a schedule; None if there are others."""
    kernels = [kernel for item in schedule.kernels for kernel in getattr(item, "kernels", [item])]
    return kernels if all(isinstance(kernel, LoopKernel) for kernel in kernels) else None


def disagreements(
    programs: Sequence[LoopProgram], known: Known, ulps: float, target: CudaTarget = LARGE, order: int | None = None
) -> list[str]:
    """What kernels write that is not what eager rules say, and what they report."""
    found: list[str] = []
    for program in programs:
        ran = run(program, known, target, order)
        wrong = [(v, disagreement(array, np.asarray(known[v]), ulps)) for v, array in ran.values.items()]
        found += [f"{value}: {text}" for value, text in wrong if text]
        found += [f"reported {ran.errors}"] * any(ran.errors)
    return found
