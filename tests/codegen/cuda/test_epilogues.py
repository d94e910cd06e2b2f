"""Products with epilogues on the emulated device: as the same graph gives without them, and as its eager rules give."""

from __future__ import annotations

from typing import Any

import numpy as np

from autojit.codegen.cuda.grid_loops import print_grid
from autojit.codegen.cuda.machine import CUDA_MACHINE
from autojit.codegen.cuda.products import print_product
from autojit.codegen.cuda.structured import print_structured
from autojit.codegen.cuda.target import CudaTarget
from autojit.codegen.grid_text import GridText
from autojit.core.machine import Machine
from autojit.ir.graph import Value
from autojit.ir.interpreter import evaluate
from autojit.schedule.kernels import CopyKernel, LoopKernel, MatmulKernel, StructuredKernel
from autojit.schedule.schedule import Schedule
from tests.codegen.cuda.emulated import ORDERS, TARGET, run_grid
from tests.covering import covering
from tests.schedule.shown import graph_of, machine, scheduled

Array = np.ndarray[Any, Any]

FUSING = machine(bands=None, epilogue_expressions=96, product_dtypes=CUDA_MACHINE.product_dtypes)
APART = machine(bands=None, product_dtypes=CUDA_MACHINE.product_dtypes)

LAYER = """(x: {t}[{m}, {k}], w: {t}[{k}, {n}], b: {t}[{n}], r: {t}[{m}, {n}]) {{
    p: {t}[{m}, {n}] = matmul(x, w); s: {t}[1, {n}] = reshape[shape=(1, {n})](b);
    t: {t}[{m}, {n}] = broadcast_to[shape=({m}, {n})](s); y: {t}[{m}, {n}] = add(p, t);
    z: {t}[{m}, {n}] = tanh(y); o: {t}[{m}, {n}] = add(z, r); return y, o
}}"""
BATCHED = """(x: {t}[3, {m}, {k}], w: {t}[3, {k}, {n}], s: {t}[3, 1, 1]) {{
    p: {t}[3, {m}, {n}] = matmul(x, w); c: {t}[3, {m}, {n}] = broadcast_to[shape=(3, {m}, {n})](s);
    y: {t}[3, {m}, {n}] = mul(p, c); return y
}}"""
UPDATE = """(w: {t}[{m}, {n}], x: {t}[{m}, {k}], g: {t}[{k}, {n}], m: {t}[{m}, {n}]) {{
    p: {t}[{m}, {n}] = matmul(x, g); d: {t}[{m}, {n}] = add(p, m); v: {t}[{m}, {n}] = sub(w, d); return v, d, p
}}"""
COLUMNS = """(x: {t}[{m}, {k}], w: {t}[{k}, {n}], r: {t}[{m}, {n}]) {{
    p: {t}[{m}, {n}] = matmul(x, w); y: {t}[{m}, {n}] = mul(p, r); s: {t}[{n}] = sum[axes=(0,)](y);
    z: {t}[{m}, {n}] = tanh(y); a: {t}[{n}] = amax[axes=(0,)](z); return y, s, a
}}"""
BATCHED_COLUMNS = """(x: {t}[3, {m}, {k}], w: {t}[3, {k}, {n}]) {{
    p: {t}[3, {m}, {n}] = matmul(x, w); s: {t}[{n}] = sum[axes=(0, 1)](p); return s, p
}}"""
CONVOLUTION = """(x: {t}[2, 3, {m}, 7], w: {t}[{k}, 3, 3, 2], b: {t}[1, {k}, 1, 1]) {{
    p: {t}[2, {k}, {m}, 6] =
        convolution[extents=({m}, 6), stride=(1, 1), padding=(1, 0), dilation=(1, 1), groups=1](x, w);
    c: {t}[2, {k}, {m}, 6] = broadcast_to[shape=(2, {k}, {m}, 6)](b); y: {t}[2, {k}, {m}, 6] = add(p, c);
    z: {t}[2, {k}, {m}, 6] = tanh(y); return z, y
}}"""
SIZES = ((33, 17, 40), (64, 64, 24))


def _text(kernel: LoopKernel | MatmulKernel | StructuredKernel, target: CudaTarget) -> GridText:
    if isinstance(kernel, StructuredKernel):
        found = print_structured(kernel, target)
        assert found is not None
        return found
    if isinstance(kernel, LoopKernel):
        return print_grid(kernel.program, target)
    return print_product(kernel, target)


def _run(found: Schedule, inputs: dict[Value, Array], donated: dict[int, int], order: int | None) -> list[Array]:
    """The outputs of a schedule of loops and products, whose kernels are launched one by one."""
    target = CudaTarget(TARGET.cpu, 1)
    memory = dict(inputs)
    overwrites = {found.outputs[place]: found.graph.inputs[source] for place, source in donated.items()}
    for kernel in found.kernels:
        assert isinstance(kernel, LoopKernel | MatmulKernel | StructuredKernel), "nothing else is in these graphs"
        assert not isinstance(kernel, CopyKernel)
        reads, writes = kernel.reads(), kernel.writes()
        arrays = [memory[v] for v in reads]
        arrays += [np.zeros(v.type.shape, v.type.dtype.numpy) for v in writes]
        same = {len(reads) + k: reads.index(overwrites[v]) for k, v in enumerate(writes) if v in overwrites}
        results, _ = run_grid(_text(kernel, target), arrays, same=same, order=order)
        memory.update(zip(writes, results[len(reads) :], strict=True))
    return [memory[v] for v in found.outputs]


def _outputs(
    text: str, on: Machine, order: int | None, donated: dict[int, int]
) -> tuple[list[Array], list[Array], int]:
    """Of a graph: what its kernels give, what its eager rules give, and how many kernels there are."""
    graph = graph_of(text)
    found = scheduled(text, on, donated=donated)
    generator = np.random.default_rng(8)
    arrays = [generator.normal(size=v.type.shape).astype(v.type.dtype.numpy) for v in graph.inputs]
    inputs = dict(zip(found.graph.inputs, arrays, strict=True))
    eager = [np.asarray(x) for x in evaluate(graph, arrays)]
    return _run(found, inputs, donated, order), eager, len(found.kernels)


GRAPHS = {
    "layer": (LAYER, {}),
    "batched": (BATCHED, {}),
    "update": (UPDATE, {0: 0}),
    "convolution": (CONVOLUTION, {}),
    "columns": (COLUMNS, {}),
    "batched columns": (BATCHED_COLUMNS, {}),
}


@covering("name, dtype", GRAPHS, ["f32", "bf16", "f64"], every=2)
def test_an_epilogue_changes_nothing_but_the_number_of_kernels(name: str, dtype: str) -> None:
    text, donated = GRAPHS[name]
    for number, (m, n, k) in enumerate(SIZES):
        filled, order = text.format(m=m, n=n, k=k, t=dtype), ORDERS[number % 2]
        fused, eager, count = _outputs(filled, FUSING, order, donated)
        apart, _, more = _outputs(filled, APART, order, donated)
        assert (count, more) == (1, 2)
        tolerance = {"f32": 1e-5, "bf16": 0.05, "f64": 1e-12}[dtype]
        for one, other, reference in zip(fused, apart, eager, strict=True):
            assert np.array_equal(one, other) or one.ndim == 1, "but for the order in which columns are folded"
            wide, exact = one.astype(np.float64), reference.astype(np.float64)
            assert np.allclose(wide, exact, rtol=tolerance, atol=tolerance * np.abs(exact).max())
