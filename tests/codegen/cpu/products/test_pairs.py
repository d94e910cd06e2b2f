"""Products of bfloat16: what passes make of them; machines with dot products of pairs agree with eager mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autojit as aj
from autojit.backend import compiling_by, cpu_backend, host_backend
from autojit.codegen.cpu.machine import CPU_MACHINE, machine_of
from autojit.codegen.target import HostTarget
from autojit.compiler import compile
from autojit.core.dtypes import HALVES, bfloat16
from autojit.core.machine import Machine
from autojit.ir import evaluate, parse_graph, verify
from autojit.ops.matmul import Matmul, MatmulAdd
from autojit.passes.pipeline import optimize
from autojit.runtime.host import cached_host_target
from autojit.schedule.bands import Band
from tests.codegen.agreement import check_compiled

DOTTING = replace(CPU_MACHINE, dot_dtypes=frozenset((bfloat16,)))
BFLOAT16 = ml_dtypes.bfloat16
needs_dots = pytest.mark.skipif(not cached_host_target().has_dots, reason="no dot products of bfloat16 here")

PROGRAMS = {
    "odd steps": "(a: bf16[37, 65], b: bf16[65, 43]) { y: bf16[37, 43] = matmul(a, b); return y }",
    "both transposed": """(a: bf16[65, 37], b: bf16[43, 65]) {
        x: bf16[37, 65] = permute[axes=(1, 0)](a); w: bf16[65, 43] = permute[axes=(1, 0)](b);
        y: bf16[37, 43] = matmul(x, w); return y }""",
    "matrices of a batch": "(a: bf16[3, 9, 17], b: bf16[3, 17, 8]) { y: bf16[3, 9, 8] = matmul(a, b); return y }",
    "heads": """(a: bf16[2, 33, 4, 16], b: bf16[2, 33, 4, 16]) {
        q: bf16[2, 4, 33, 16] = permute[axes=(0, 2, 1, 3)](a); k: bf16[2, 4, 16, 33] = permute[axes=(0, 2, 3, 1)](b);
        y: bf16[2, 4, 33, 33] = matmul(q, k); return y }""",
    "one row, column, step": """(a: bf16[1, 40], b: bf16[40, 30], c: bf16[30, 1]) {
        x: bf16[1, 30] = matmul(a, b); y: bf16[1, 1] = matmul(x, c); z: bf16[30, 30] = matmul(c, x); return y, z }""",
    "sums of products": """(a: bf16[40, 600], b: bf16[600, 500], c: bf16[40, 30], d: bf16[30, 500]) {
        x: bf16[40, 500] = matmul(a, b); y: bf16[40, 500] = matmul(c, d); z: bf16[40, 500] = add(x, y); return z }""",
    "several blocks of steps": "(a: bf16[5, 2500], b: bf16[2500, 9]) { y: bf16[5, 9] = matmul(a, b); return y }",
    "nothing": "(a: bf16[5, 0], b: bf16[0, 9]) { y: bf16[5, 9] = matmul(a, b); return y }",
    "results of float32": "(a: bf16[5, 7], b: bf16[7, 9]) { y: f32[5, 9] = matmul[result=f32](a, b); return y }",
}


def operands(graph: Any, rng: np.random.Generator) -> list[Any]:
    return [rng.standard_normal(value.type.shape).astype(BFLOAT16) for value in graph.inputs]


@needs_dots
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_pairs_are_eager_modes(name: str, rng: np.random.Generator) -> None:
    graph = verify(parse_graph(PROGRAMS[name]))
    compiled = check_compiled(graph, operands(graph, rng), 2)
    assert compiled.lowered.fallbacks == ()


@pytest.mark.parametrize("name", PROGRAMS)
def test_machines_choose_in_what_they_multiply(name: str, rng: np.random.Generator) -> None:
    graph = verify(parse_graph(PROGRAMS[name]))
    arrays = operands(graph, rng)
    for machine in (CPU_MACHINE, DOTTING):
        found = verify(optimize(graph, machine))
        multiplied = {n.inputs[0].type.dtype for n in found.nodes if isinstance(n.op, Matmul | MatmulAdd)}
        assert not multiplied.intersection(HALVES) or machine is DOTTING
        for one, other in zip(evaluate(found, arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=0.02, atol=0.1)
    with compiling_by(cpu_backend(CPU_MACHINE)):
        check_compiled(graph, arrays, 2)


def test_a_processor_without_the_instruction_or_its_registers_has_no_such_products() -> None:
    host = HostTarget("x86_64-unknown-linux-gnu", "znver4", "+avx2,+avx512bf16,+avx512f,+fma", 64)
    assert machine_of(host).dot_dtypes == {bfloat16}
    for narrow in (host.limited_to(32), replace(host, features="+avx2,+avx512f,+fma")):
        assert machine_of(narrow) is CPU_MACHINE


def linear(x: Any, w: Any, b: Any) -> Any:
    """A layer under autocast, with its derivatives."""
    with aj.autocast("cpu", dtype=aj.bfloat16):
        y = aj.nn.functional.gelu(aj.nn.functional.linear(x, w, b))
    return y.detach(), *aj.autograd.grad(y.float().square().mean(), (x, w, b))


def layer(rows: int, rng: np.random.Generator) -> list[Any]:
    shapes = ((rows, 70), (50, 70), (50,))
    return [aj.tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True) for s in shapes]


def test_a_layer_and_its_derivatives_agree_with_eager_mode_for_any_batch(rng: np.random.Generator) -> None:
    step = aj.jit(linear)
    for rows in (33, 64, 5):
        tensors = layer(rows, rng)
        for found, expected in zip(step(*tensors), linear(*tensors), strict=True):
            scale = float(expected.abs().max())
            one, other = (t.detach().float().numpy() for t in (found, expected))
            np.testing.assert_allclose(one, other, atol=0.02 * scale)
    assert step.stats()["captures"] <= 2 and step.stats()["fallbacks"] == 0


@needs_dots
def test_slices_of_bands_multiply_pairs(rng: np.random.Generator) -> None:
    """Also where slices cut the steps: the derivative by the weight."""
    lines = "x: bf16[8192, 32] = tanh(a); y: bf16[8192, 48] = matmul(x, w); z: bf16[8192, 48] = tanh(y)"
    turned = "t: bf16[32, 8192] = permute[axes=(1, 0)](x); g: bf16[32, 48] = matmul(t, z)"
    graph = verify(parse_graph(f"(a: bf16[8192, 32], w: bf16[32, 48]) {{ {lines}; {turned}; return g }}"))
    compiled = check_compiled(graph, operands(graph, rng), 4)
    assert any(isinstance(kernel, Band) for kernel in compiled.schedule.kernels)


@needs_dots
def test_infinities_and_nan_stay_and_denormals_are_zero() -> None:
    tiny = np.float32(2.0**-130).astype(BFLOAT16)
    a = np.array([[np.inf, 1, 1], [np.nan, 1, 1], [np.inf, 0, -np.inf], [tiny, tiny, 0], [3e38, 3e38, 0]], BFLOAT16)
    b = np.repeat(np.array([[1], [2], [1]], BFLOAT16), 40, axis=1)
    graph = verify(parse_graph("(a: bf16[5, 3], b: bf16[3, 40]) { y: bf16[5, 40] = matmul(a, b); return y }"))
    (y,) = compile(graph).executable.run([a, b])
    found = y.astype(np.float32)
    assert (found == found[:, :1]).all(axis=1).tolist() == [True, False, False, True, True]
    assert found[0, 0] == np.inf and np.isnan(found[1:3]).all() and found[4, 0] == np.inf
    assert found[3, 0] == 0


def test_the_hosts_machine_is_asked_once() -> None:
    machine: Machine = host_backend().machine
    assert host_backend().machine is machine and machine == machine_of(cached_host_target())
