"""Every op on all its samples, as kernels on the emulated device: right in two lane orders, and nothing to report.

A run takes every twelfth sample, by a hash of its name; ``pytest tests/codegen/cuda/test_op_samples.py --slow`` takes
all 4,800 that schedule to loop kernels (one minute on one core), and those whose ops have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.structured import print_structured
from autojit.core.dtypes import ALL_DTYPES
from autojit.core.errors import AutojitError
from autojit.ir import Op
from autojit.ops.scattering import Scattering
from autojit.passes.pipeline import optimize
from autojit.schedule.kernels import StructuredKernel
from autojit.schedule.loops import LoopProgram
from autojit.schedule.scheduler import schedule
from tests.codegen.agreement import disagreement
from tests.codegen.cuda.emulated import TARGET, run_grid
from tests.codegen.cuda.grids import LANE_ORDERS, LARGE, SMALL, Known, all_values, disagreements, loop_kernels
from tests.ops.laws import graph_of

OPS = [op for op in Op.registry.load().values() if op.__module__.startswith("autojit.ops.") and hasattr(op, "samples")]
PARTS = 12
ULPS = 16.0
"""Of the largest magnitude: 2e-6 in float32. Functions are within 2 ulp; sums run in another order than NumPy's."""
STRUCTURED_ULPS = 64.0
"""Those of elimination, of the samples' matrices, which are well-conditioned."""


def samples(part: int, *, values: bool = True) -> Iterator[tuple[str, list[LoopProgram], Known]]:
    """The samples of a part that schedule to loop kernels alone: their names, kernels and, if asked for, values."""
    for op_class in OPS:
        for dtype in ALL_DTYPES:
            for number, (op, inputs) in enumerate(op_class.samples(dtype)):  # type: ignore[attr-defined]
                name = f"{op_class.name} {dtype.short} {number}"
                if crc32(name.encode()) % PARTS != part:
                    continue
                arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs]
                graph = optimize(graph_of(op, arrays), CUDA_MACHINE)
                kernels = loop_kernels(schedule(graph, CUDA_MACHINE))
                if kernels:
                    yield name, [kernel.program for kernel in kernels], all_values(graph, arrays) if values else {}


def check(part: int, order: int | None) -> None:
    wrong: list[str] = []
    count = 0
    for name, programs, known in samples(part):
        count += 1
        target = LARGE if crc32(name.encode()) // PARTS % 2 else SMALL
        try:
            wrong += [f"{name}: {text}" for text in disagreements(programs, known, ULPS, target, order)]
        except AutojitError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, f"{len(wrong)} of {count} samples:\n" + "\n".join(wrong)
    assert count > 300


def structured_samples(part: int) -> Iterator[tuple[str, list[StructuredKernel], Known]]:
    """The samples of a part with kernels of ops of their own: their names, these kernels, values."""
    for op_class in OPS:
        for dtype in ALL_DTYPES:
            for number, (op, inputs) in enumerate(op_class.samples(dtype)):  # type: ignore[attr-defined]
                name = f"{op_class.name} {dtype.short} {number}"
                if crc32(name.encode()) % PARTS != part:
                    continue
                arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs]
                graph = optimize(graph_of(op, arrays), CUDA_MACHINE)
                items = schedule(graph, CUDA_MACHINE).kernels
                kernels = [kernel for item in items for kernel in getattr(item, "kernels", [item])]
                own = [kernel for kernel in kernels if isinstance(kernel, StructuredKernel)]
                if own:
                    yield name, own, all_values(graph, arrays)


def check_structured(part: int, order: int | None) -> None:
    wrong: list[str] = []
    count = 0
    for name, kernels, known in structured_samples(part):
        for kernel in kernels:
            text = print_structured(kernel, TARGET)
            if text is None:
                continue
            count += 1
            node = kernel.node
            operands = [np.ascontiguousarray(known[value]) for value in kernel.operands]
            results = [np.zeros(value.type.shape, value.type.dtype.numpy) for value in node.outputs]
            same = {len(operands): 0} if isinstance(node.op, Scattering) else {}
            try:
                found, words = run_grid(text, [*operands, *results], same=same, order=order)
            except AutojitError as error:
                wrong.append(f"{name}: {error}")
                continue
            wrong += [f"{name}: reported {words}"] * bool(words.any())
            for value, array in zip(node.outputs, found[len(operands) :], strict=True):
                apart = disagreement(array, np.asarray(known[value]), STRUCTURED_ULPS)
                wrong += [f"{name}: {value}: {apart}"] * bool(apart)
    assert not wrong, f"{len(wrong)} of {count} kernels:\n" + "\n".join(wrong)
    assert count > 20


@pytest.mark.parametrize("order", LANE_ORDERS)
def test_samples_of_structured_ops_are_right_in_every_lane_order(order: int | None) -> None:
    check_structured(0, order)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS))
def test_all_samples_of_structured_ops_are_right_in_every_lane_order(part: int) -> None:
    for order in LANE_ORDERS:
        check_structured(part, order)


@pytest.mark.parametrize("order", LANE_ORDERS)
def test_samples_are_right_in_every_lane_order(order: int | None) -> None:
    check(0, order)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS))
def test_all_samples_are_right_in_every_lane_order(part: int) -> None:
    for order in LANE_ORDERS:
        check(part, order)
