"""One choice of what compiles a graph: by the device of its values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import autojit.ops  # noqa: F401
from autojit.backend import backend_of, compiling_by, cpu_backend, host_backend
from autojit.codegen.cpu.machine import CPU_MACHINE
from autojit.compiler import compile
from autojit.core.device import Device, space_at
from autojit.core.errors import DeviceError
from autojit.ir import parse_graph, verify
from autojit.schedule.bands import Band
from autojit.schedule.kernels import CopyKernel
from autojit.testing import second_device
from tests.on_cpu import compiling_with

HERE = "(x: f32[3]) { y: f32[3] = tanh(x); return y }"
THERE = "(x: f32[3]@there:0) { y: f32[3]@there:0 = tanh(x); return y }"


def test_the_device_of_the_values_chooses() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    with second_device("there") as name:
        other = backend_of(parse_graph(THERE))
        assert other.machine.kind == name
        assert backend_of(parse_graph(HERE)).machine is host_backend().machine
        found = compile(verify(parse_graph(THERE)))
        space = space_at(Device(name, 0))
        (y,) = found.executable.run([space.copied_in(x)])
        assert found.schedule.machine is other.machine
        np.testing.assert_array_equal(space.copied_out(y), compile(parse_graph(HERE)).executable.run([x])[0])
        graph = parse_graph(THERE)
    with pytest.raises(DeviceError, match="no steps are compiled for device 'there:0'"):
        compile(graph)


def test_a_graph_of_two_devices_beside_the_cpu_is_refused() -> None:
    text = "(x: f32[3]@there:0, n: f32[3]@there:1) { y: f32[3]@there:0 = tanh(x); return y, n }"
    with second_device("there"), pytest.raises(DeviceError, match="several devices"):
        compile(parse_graph(text))


def test_kernels_of_a_mixed_graph_compute_on_one_device_each_and_keep_apart_what_they_store() -> None:
    lines = "; ".join(
        (
            "a: f32[64, 1] = tanh(n)",
            "m: f32[64, 1] = matmul(w, a)",
            "b: f32[64, 1]@there:0 = to_device[device=device('there:0')](m)",
            "c: f32[64, 1]@there:0 = matmul(v, b)",
            "d: f32[64, 1]@there:0 = add(c, x)",
            "e: f32[64, 1]@there:0 = matmul(v, d)",
            "f: f32[64, 1] = to_device[device=device('cpu')](e)",
            "g: f32[64, 1] = mul(f, n)",
        )
    )
    inputs = "x: f32[64, 1]@there:0, v: f32[64, 64]@there:0, n: f32[64, 1], w: f32[64, 64]"
    rng = np.random.default_rng(0)
    with second_device("there") as name:
        graph = verify(parse_graph(f"({inputs}) {{ {lines}; return g, d }}"))
        x, v, n, w = (rng.standard_normal(value.type.shape).astype(np.float32) for value in graph.inputs)
        space = space_at(Device(name, 0))
        found = compile(graph)
        for kernel in found.schedule.kernels:
            there = {value.type.device for value in (*kernel.reads(), *kernel.writes())}
            assert len(there) == 1 or isinstance(kernel, CopyKernel)
        assert sorted(map(str, found.schedule.memory.arenas)) == ["cpu", "there:0"]
        (g, d) = found.executable.run([space.copied_in(x), space.copied_in(v), n, w])
        assert type(g) is np.ndarray
        expected = v @ (w @ np.tanh(n)) + x
        np.testing.assert_allclose(space.copied_out(d), expected, rtol=2e-5, atol=2e-4)
        np.testing.assert_allclose(g, (v @ expected) * n, rtol=2e-5, atol=2e-3)


def test_a_graph_without_values_is_the_cpus() -> None:
    assert backend_of(parse_graph("() { return }")).machine is host_backend().machine


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
