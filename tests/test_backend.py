"""One choice of what compiles a graph: by the device of its values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.backend import backend_of, compiling_by, cpu_backend
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.compiler import compile
from autojit.core.errors import DeviceError
from autojit.ir import parse_graph, verify
from autojit.schedule.bands import Band
from tests.on_cpu import compiling_with

HERE = "(x: f32[3]) { y: f32[3] = tanh(x); return y }"
THERE = "(x: f32[3]@cuda:0) { y: f32[3]@cuda:0 = tanh(x); return y }"


def test_the_device_of_the_values_chooses() -> None:
    other = replace(cpu_backend(), machine=replace(CPU_MACHINE, kind="cuda", bands=None))
    with compiling_by(other, "cuda"):
        assert backend_of(parse_graph(THERE)) is other
        assert backend_of(parse_graph(HERE)).machine is CPU_MACHINE
        found = compile(verify(parse_graph(THERE)))
    x = np.array([1.0, 2.0, 3.0], np.float32)
    (y,) = found.executable.run([x])
    assert found.schedule.machine is other.machine
    np.testing.assert_array_equal(y, compile(parse_graph(HERE)).executable.run([x])[0])
    with pytest.raises(DeviceError, match="no steps are compiled for device 'cuda:0'"):
        compile(parse_graph(THERE))


def test_a_graph_of_several_devices_is_refused() -> None:
    text = "(x: f32[3]@cuda:0, n: f32[3]) { y: f32[3] = tanh(n); return y }"
    with pytest.raises(DeviceError, match="several devices"):
        compile(parse_graph(text))


def test_a_graph_without_values_is_the_cpus() -> None:
    assert backend_of(parse_graph("() { return }")).machine is CPU_MACHINE


def test_a_machine_s_numbers_decide_and_the_results_stay() -> None:
    lines = "; ".join(
        f"h{k + 1}: f32[512, 16] = matmul(t{k}, w); t{k + 1}: f32[512, 16] = tanh(h{k + 1})" for k in range(4)
    )
    graph = verify(parse_graph(f"(t0: f32[512, 16], w: f32[16, 16]) {{ {lines}; return t4 }}"))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]
    usual = compile(graph)
    with compiling_with(least_bytes=1):
        sliced = compile(graph)
    unsliced = replace(CPU_MACHINE, bands=None)
    with compiling_by(cpu_backend(unsliced)):
        whole = compile(graph)
    bands = [[isinstance(k, Band) for k in found.schedule.kernels].count(True) for found in (usual, sliced, whole)]
    assert bands == [0, 1, 0]
    for found in (sliced, whole):
        np.testing.assert_allclose(
            found.executable.run(arrays)[0], usual.executable.run(arrays)[0], rtol=1e-5, atol=1e-6
        )


def test_where_temporaries_begin_is_the_machine_s() -> None:
    text = "(x: f32[5, 5]) { a: f32[5, 5] = matmul(x, x); b: f32[5, 5] = matmul(a, a); "
    text += "c: f32[5, 5] = matmul(b, a); return c }"
    for alignment in (64, 256):
        with compiling_by(cpu_backend(replace(CPU_MACHINE, alignment=alignment))):
            memory = compile(parse_graph(text)).schedule.memory
        assert {offset % alignment for offset in memory.offsets.values()} == {0}
        assert memory.arena_bytes == 2 * max(alignment, 128)
