"""Random graphs: what grids compute of their loop programs is what NumPy computes, walking all loops at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.target import CudaTarget
from autojit.core.machine import Machine
from autojit.ir import Graph
from autojit.ir.graph import Value
from autojit.ops.reductions import Prod
from autojit.passes.pipeline import optimize
from autojit.schedule.loops import LoopProgram
from autojit.schedule.scheduler import schedule
from tests.codegen.agreement import disagreement
from tests.codegen.cuda.grids import LARGE, SMALL, all_values, run
from tests.fuzz_graphs import ULPS, graph_case
from tests.on_cpu import cpu_with
from tests.schedule import numpy_target
from tests.schedule.shown import kernels as text_of

MACHINES: dict[str, Machine] = {"gpu": CUDA_MACHINE, "few nests": cpu_with(least_bytes=1, slice_bytes=1024)}


def _depends_on_order(graph: Graph, inputs: Sequence[NDArray[Any]]) -> bool:
    """Whether a product overflows on its way in one order, and then meets a zero, and not in another."""
    known = all_values(graph, inputs)
    with np.errstate(all="ignore"):
        return any(
            not np.isfinite(np.prod(np.maximum(np.abs(known[node.inputs[0]]), 1), dtype=known[node.inputs[0]].dtype))
            for node in graph.nodes
            if isinstance(node.op, Prod) and node.inputs[0].type.dtype.kind == "float"
        )


def check(seed: int, machine: Machine, target: CudaTarget, order: int | None) -> None:
    graph, inputs = graph_case(seed)
    if _depends_on_order(graph, inputs):
        return
    found = schedule(optimize(graph, machine), machine)

    def on_device(program: LoopProgram, known: Mapping[Value, NDArray[Any]]) -> Mapping[Value, NDArray[Any]]:
        shaped = {value: np.asarray(known[value]).reshape(value.type.shape) for value in program.loads}
        ran = run(program, shaped, target, order)
        assert ran.errors == (0, 0)
        return {value: array.reshape(-1) for value, array in ran.values.items()}

    expected = numpy_target.run(found, inputs)
    for place, (made, reference) in enumerate(zip(numpy_target.run(found, inputs, on_device), expected, strict=True)):
        wrong = disagreement(made, reference, ULPS)
        assert not wrong, f"output {place}: {wrong}\nseed {seed}\n{graph}\n{text_of(found)}"


@pytest.mark.parametrize("how", MACHINES)
@pytest.mark.parametrize(("target", "order"), [(LARGE, None), (SMALL, 1)], ids=["large", "small"])
def test_grids_compute_what_loop_programs_mean(how: str, target: CudaTarget, order: int | None) -> None:
    first = 1000 * list(MACHINES).index(how) + 100 * (order or 0)
    for seed in range(first, first + 6):
        check(seed, MACHINES[how], target, order)


@pytest.mark.slow
@pytest.mark.parametrize("how", MACHINES)
@pytest.mark.parametrize(("target", "order"), [(LARGE, None), (SMALL, 1)], ids=["large", "small"])
def test_long_campaign_of_random_graphs(how: str, target: CudaTarget, order: int | None) -> None:
    for seed in range(20_000, 20_200):
        check(seed, MACHINES[how], target, order)
