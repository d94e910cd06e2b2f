"""Kernels for GPUs of many graphs: every op, and whole steps with their gradients and updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

import autojit as aj
from autojit.backend import compiling_by, cpu_backend
from autojit.codegen.cuda.entry_point import entry_text
from autojit.codegen.cuda.grid_loops import print_grid
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.products import print_product
from autojit.codegen.cuda.structured import print_structured
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.codegen.lowered import LoweredStep
from autojit.core.dtypes import ALL_DTYPES, DType, bool_, float32, float64, int64
from autojit.core.types import TensorType
from autojit.ir import Graph, Op
from autojit.ir.builder import GraphBuilder
from autojit.ops.counted_positions import PackedPositions
from autojit.ops.decompositions import Qr
from autojit.ops.linalg import Cholesky, Cofactor, Inv, Solve, TriangularSolve
from autojit.ops.scans import Cumulative, CumulativeExtreme, LinearRecurrence
from autojit.ops.scattering import IndexUpdate
from autojit.ops.sorting import Sort
from autojit.ops.triangular_factors import LuPivots
from autojit.passes.pipeline import optimize
from autojit.schedule.kernels import LoopKernel, MatmulKernel, StructuredKernel
from autojit.schedule.schedule import Schedule
from autojit.schedule.scheduler import schedule
from benchmarks.systems import prepare
from benchmarks.workloads import WORKLOADS
from tests.acceptance.programs import PROGRAMS
from tests.ops.laws import graph_of

WIDE = 16  # bytes: what the addresses of buffers are multiples of


def kernels_of(graph: Graph, target: CudaTarget) -> Iterator[GridText]:
    """The kernels of a graph that are grids of threads, with those that combine their partial results."""
    for kernel in schedule(optimize(graph, CUDA_MACHINE), CUDA_MACHINE).kernels:
        printed: GridText | None = None
        if isinstance(kernel, LoopKernel):
            printed = print_grid(kernel.program, target)
        elif isinstance(kernel, MatmulKernel):
            printed = print_product(kernel, target)
        elif isinstance(kernel, StructuredKernel):
            printed = print_structured(kernel, target)
        while printed is not None:
            yield printed
            printed = printed.combine


def module_text(kernel: GridText) -> str:
    """A kernel with the entry point of buffers that stay where they are."""
    return entry_text(kernel, [max(WIDE, buffer.element_bytes) for buffer in kernel.buffers], {})


def graphs_of_long_lines() -> Iterator[Graph]:
    """Structured ops that take several blocks for a line, or kernels in sequence."""
    for op, types in LONG:
        builder = GraphBuilder()
        values = [builder.input(TensorType(shape, dtype)) for shape, dtype in types]
        yield builder.finish(builder.apply(op, values))


SQUARES = ((12, float32), (300, float64))
LONG: tuple[tuple[Op, tuple[tuple[tuple[int, ...], DType], ...]], ...] = (
    (Sort(1, False), (((30, 3000), float32),)),
    (Sort(0, True), (((3000, 2), float64),)),
    (Sort(1, True, (0, 5)), (((2, 100_000), float32),)),
    (Sort(0, False), (((100_000,), int64),)),
    (IndexUpdate(0, "add"), (((1000, 64), float32), ((2000, 64), float32), ((2000,), int64))),
    *[(Cumulative(kind, 1), (((1, length), float32),)) for kind in ("sum", "logsumexp") for length in (999, 99_999)],
    (CumulativeExtreme("max", 0), (((99_999, 2), float64),)),
    (LinearRecurrence(1), (((1, 99_999), float32),) * 2),
    (PackedPositions(), (((9000,), bool_),)),
    *[
        (op, (((5, n, n), dtype),))
        for op in (Cholesky(), Inv(), Cofactor(), Qr(), LuPivots(True))
        for n, dtype in SQUARES
    ],
    *[(op, (((n, n), dtype), ((n, 40), dtype))) for op in (Solve(), TriangularSolve(True)) for n, dtype in SQUARES],
    (IndexUpdate(0, "set"), (((1000, 64), float32), ((9000, 64), float32), ((9000,), int64))),
)


def graphs_of_ops() -> Iterator[Graph]:
    """Each op on its first sample, in a dtype that changes from op to op."""
    classes = [c for _, c in sorted(Op.registry.load().items()) if c.__module__.startswith("autojit.ops.")]
    for number, op_class in enumerate(c for c in classes if hasattr(c, "samples")):
        for turn in range(len(ALL_DTYPES)):
            samples = op_class.samples(ALL_DTYPES[(number + turn) % len(ALL_DTYPES)])
            if samples:
                yield graph_of(*samples[0])
                break


def steps(names: tuple[str, ...]) -> Iterator[Callable[[], object]]:
    """The first call of acceptance programs of the smallest size, or of the benchmarks' workloads as they are."""
    for name in names:
        if name in PROGRAMS:
            run = PROGRAMS[name].build("tiny")
            yield partial(aj.jit(run.step), *run.args)
        else:
            yield prepare("autojit", aj, WORKLOADS[name.removeprefix("workload ")]).call


def graphs_of_steps(*names: str) -> list[Graph]:
    """What steps compute."""
    found: list[Graph] = []
    usual = cpu_backend()

    def lower(scheduled: Schedule, target: object) -> LoweredStep:
        found.append(scheduled.graph)
        return usual.lower(scheduled, target)

    with compiling_by(dataclasses.replace(usual, lower=lower)):
        for step in steps(names):
            step()
    return found
