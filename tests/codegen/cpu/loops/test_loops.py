"""Loop kernels: accuracy of sums, independence from threads, vectorised folds, reports of bad indices, checked form."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autojit.ops  # noqa: F401
from autojit.codegen.cpu.kernel_text import CpuKernel, KernelModule
from autojit.codegen.report_sites import ACCESS_SITE
from autojit.codegen.target import host_target
from autojit.compiler import Compiled, compile
from autojit.core.dtypes import float32
from autojit.core.errors import IndexOutOfRangeError
from autojit.core.source import here
from autojit.ir import parse_graph
from autojit.ir.graph import Node
from autojit.ops.failed_matrices import LinAlgError
from autojit.runtime.failures import reported_error
from autojit.runtime.llvm import optimised_ir
from autojit.runtime.loader import load
from autojit.runtime.pool import get_num_threads, set_num_threads
from tests.fuzz_graphs import cut
from tests.runtime.programs import compiled as object_of


def compile_text(text: str) -> Compiled:
    return compile(parse_graph(text))


def run(text: str, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    return compile_text(text).executable.run([np.ascontiguousarray(x) for x in inputs])


@pytest.mark.parametrize("shape", [(10_000_000,), (5, 2_000_000), (2_000_000, 5)])
def test_a_full_sum_of_float32_does_not_lose_digits_with_length(shape: tuple[int, ...], rng: Any) -> None:
    x = rng.random(shape, np.float32)
    axes = tuple(range(len(shape)))
    (total,) = run(f"(x: f32{list(shape)}) {{ y: f32[] = sum[axes={axes}](x); return y }}", x)
    exact = float(np.sum(x, dtype=np.float64))
    assert abs(float(total) - exact) <= 1e-6 * exact


def test_a_long_row_sum_of_float32_does_not_lose_digits(rng: Any) -> None:
    x = rng.random((3, 1_000_003), np.float32)
    (found,) = run("(x: f32[3, 1000003]) { y: f32[3] = sum[axes=(1,)](x); return y }", x)
    np.testing.assert_allclose(found, np.sum(x, axis=1, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "amax", "amin", "prod"])
def test_folds_become_vector_reductions(name: str) -> None:
    compiled = compile_text(f"(x: f32[100000]) {{ y: f32[] = {name}[axes=(0,)](x); return y }}")
    text = optimised_ir(compiled.lowered.entries[0].body, host_target())  # type: ignore[arg-type, union-attr]
    assert "llvm.vector.reduce.f" in text


def test_extrema_propagate_nan(rng: Any) -> None:
    x = rng.standard_normal(5000).astype(np.float32)
    x[4321] = np.nan
    for name in ("amax", "amin"):
        (found,) = run(f"(x: f32[5000]) {{ y: f32[] = {name}[axes=(0,)](x); return y }}", x)
        assert np.isnan(found)


def test_results_do_not_depend_on_threads(rng: Any) -> None:
    x = rng.standard_normal((700, 1300)).astype(np.float32)
    text = """(x: f32[700, 1300]) {
      s: f32[] = sum[axes=(0, 1)](x);
      c: f32[1300] = sum[axes=(0,)](x);
      r: f32[700] = sum[axes=(1,)](x);
      return s, c, r
    }"""
    before = get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append([y.tobytes() for y in run(text, x)])
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]


GATHERS = {
    "index_select": "(x: f32[5, 4], i: i64[3]) { y: f32[3, 4] = index_select[axis=0](x, i); return y }",
    "gather": "(x: f32[5, 4], i: i64[3, 4]) { y: f32[3, 4] = gather[axis=0](x, i); return y }",
    "gather_nd": "(x: f32[5, 4], i: i64[3]) { y: f32[3, 4] = gather_nd(x, i); return y }",
}


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("bad", [5, -6, 2**62, -(2**62)])
def test_an_index_out_of_range_is_an_error_and_the_next_call_works(name: str, bad: int) -> None:
    compiled = compile_text(GATHERS[name])
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    index = np.zeros(compiled.graph.inputs[1].type.shape, np.int64)
    index.flat[1] = bad
    with pytest.raises(IndexOutOfRangeError, match=name):
        compiled.executable.run([x, index])
    index.flat[1] = -5
    assert np.array_equal(compiled.executable.run([x, index])[0], np.tile(x[0], (3, 1)))


def test_an_error_of_a_called_back_op_reaches_the_caller() -> None:
    compiled = compile_text("(x: c128[2, 2]) { y: c128[2, 2] = cholesky[](x); return y }")
    assert compiled.lowered.fallbacks == ("cholesky",)
    x = np.array([[2, 1j], [-1j, 3]])
    with pytest.raises(LinAlgError, match="not positive-definite"):
        compiled.executable.run([-x])
    factor = compiled.executable.run([x])[0]
    np.testing.assert_allclose(factor @ factor.conj().T, x, rtol=1e-12)


def test_a_checked_kernel_reports_and_skips_accesses_outside() -> None:
    function = CpuKernel(KernelModule(), "kernel", is_checked=True)
    function.pointers([4, 4])
    with function.loop(0, 6) as i:
        function.write(1, function.read(0, float32, i), i)
    function.finish()
    code = load(object_of(function.module.text()))
    source, target, errors = np.ones(6, np.float32), np.zeros(6, np.float32), np.zeros(2, np.int64)
    words = np.array([source.ctypes.data, target.ctypes.data, errors.ctypes.data, 7], np.uint64)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("kernel"))
    kernel(words.ctypes.data, 0, 0)
    assert target.tolist() == [1, 1, 1, 1, 0, 0]
    assert errors[0] >> 32 == 7 and errors[0] & 0xFFFFFFFF > ACCESS_SITE and errors[1] == 5


def test_the_checked_form_is_another_text_that_computes_the_same(rng: Any) -> None:
    text = "(x: f32[40, 30]) { y: f32[30, 40] = permute[axes=(1, 0)](x); z: f32[30, 40] = exp(y); return z }"
    x = rng.standard_normal((40, 30)).astype(np.float32)
    (usual,) = run(text, x)
    with cut("checked"):
        checked = compile_text(text)
    assert checked.lowered.reporters
    assert np.array_equal(checked.executable.run([x])[0], usual)


def test_a_report_names_op_and_line() -> None:
    graph = parse_graph(GATHERS["gather"])
    (node,) = graph.nodes
    placed = Node(node.op, node.inputs, node.outputs, here())
    compiled = compile_text(GATHERS["gather"])
    reporter = type(compiled.lowered.reporters[0])((placed,), (placed,))
    text = str(reported_error(reporter, 1, 0))
    assert "gather" in text and "test_loops.py:" in text
    assert "out of bounds" in str(reported_error(reporter, ACCESS_SITE + 1, 9))
