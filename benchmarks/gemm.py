"""Generated matrix products against OpenBLAS, one thread, GF/s.

    python -m benchmarks.gemm [--dtypes f32,f64] [--shapes 64x64x64,128x784x512] [--vector-bytes 32] [--tries 15]

A shape is ``m x k x n``; the letters behind it say which operands are stored transposed (T) or not (N). ``numpy`` is
``np.dot(a, b, out=c)``, its call included; ``blas`` is the same library's cousin that SciPy ships, called from the same
native loop as ours, so without Python in between (absent without SciPy). Systems take turns; figures are medians over
tries; ``peak`` is a loop of independent multiply-adds.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autojit.codegen.cpu.products.gemm import gemm_module, scratch_bytes
from autojit.codegen.target import HostTarget, host_target
from autojit.core.dtypes import DType, float32, float64
from autojit.runtime.llvm import compile_to_object
from autojit.runtime.loader import LoadedObject, load
from benchmarks.limits import fma_gflops, fma_loops

SHAPES = (
    "64x64x64 NN,64x64x64 NT,64x64x64 TN,128x784x512 NN,128x784x512 NT,128x784x512 TN,256x256x256 NN,"
    "1024x1024x1024 NN,1024x1024x1024 NT,1024x128x384 NN,64x64x10 NN,10000x20x20 NN,20x10000x20 TN,64x32x64 NN,"
    "32x32x32 NN,512x128x784 TN,1000x2x64 NN,1x512x512 NN,512x512x1 NN"
)
SAMPLE_S = 2e-3
EXPECTED_FLOPS_PER_S = 5e10  # only to choose how many calls make a sample

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """One product: extents and which operands are stored transposed."""

    m: int
    k: int
    n: int
    stored: str

    @classmethod
    def parse(cls, text: str) -> Case:
        extents, _, stored = text.strip().partition(" ")
        m, k, n = (int(extent) for extent in extents.split("x"))
        return cls(m, k, n, stored or "NN")

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.k * self.n

    def operands(self, dtype: DType) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((self.m, self.k) if self.stored[0] == "N" else (self.k, self.m)).astype(dtype.numpy)
        b = rng.standard_normal((self.k, self.n) if self.stored[1] == "N" else (self.n, self.k)).astype(dtype.numpy)
        c = np.empty((self.m, self.n), dtype.numpy)
        return a if self.stored[0] == "N" else a.T, b if self.stored[1] == "N" else b.T, c


def repeat_ir(name: str, callee: str, kinds: str) -> str:
    """``void name(i64 times, ptr callee, ...)`` calls ``callee(...)`` that often; kinds are ``i`` and ``p``."""
    types = ["ptr" if kind == "p" else "i64" for kind in kinds]
    arguments = ", ".join(f"{kind} %x{k}" for k, kind in enumerate(types))
    return f"""
define void @{name}(i64 %times, ptr %callee, {arguments}) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void {callee}({arguments})
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""


GEMM_KINDS = "iiipiipiipiiip"
BLAS_KINDS = "p" * 13
LOOPS_IR = repeat_ir("repeat_gemm", "%callee", GEMM_KINDS) + repeat_ir("repeat_blas", "%callee", BLAS_KINDS)

Timed = Callable[[int], object]


def ours(library: LoadedObject, dtype: DType, a: Array, b: Array, c: Array) -> tuple[Timed, object]:
    """What runs the product that many times, and what it needs alive."""
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    scratch = aligned(scratch_bytes(dtype, m, n, k))
    places = [(x.ctypes.data, x.strides[0] // x.itemsize, x.strides[1] // x.itemsize) for x in (a, b, c)]
    values = (m, n, k, *places[0], *places[1], *places[2], 0, scratch.ctypes.data)
    address = library.address(f"aj_gemm_{dtype.short}")
    loop = native(library.address("repeat_gemm"), GEMM_KINDS)
    return lambda times: loop(times, address, *values), scratch


def blas(library: LoadedObject, dtype: DType, a: Array, b: Array, c: Array) -> tuple[Timed, object] | None:
    """Column-major BLAS computes C^T = B^T A^T; None without SciPy."""
    address = blas_address({"f32": "sgemm", "f64": "dgemm"}[dtype.short])
    if address is None:
        return None
    scalar = ctypes.c_float if dtype is float32 else ctypes.c_double
    letters = [ctypes.c_char(b"N" if x.flags.c_contiguous else b"T") for x in (b, a)]
    strides = [max(x.strides) // x.itemsize for x in (b, a, c)]
    extents = [ctypes.c_int(value) for value in (b.shape[1], a.shape[0], a.shape[1])]
    ldb, lda, ldc = (ctypes.c_int(value) for value in strides)
    one, zero = scalar(1.0), scalar(0.0)
    boxes = [*letters, *extents, one, b, ldb, a, lda, zero, c, ldc]
    places = [box.ctypes.data if isinstance(box, np.ndarray) else ctypes.addressof(box) for box in boxes]
    loop = native(library.address("repeat_blas"), BLAS_KINDS)
    return lambda times: loop(times, address, *places), boxes


def blas_address(name: str) -> int | None:
    try:
        from scipy.linalg import cython_blas
    except ImportError:
        return None
    capsule = cython_blas.__pyx_capi__[name]
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer_of(capsule, name_of(capsule))
    return address


def native(address: int, kinds: str) -> Callable[..., object]:
    types = [ctypes.c_void_p if kind == "p" else ctypes.c_int64 for kind in "ip" + kinds]
    return ctypes.CFUNCTYPE(None, *types)(address)


def numpy_dot(a: Array, b: Array, c: Array) -> Timed:
    def run(times: int) -> None:
        for _ in range(times):
            np.dot(a, b, out=c)

    return run


def aligned(size_bytes: int) -> Array:
    buffer = np.zeros(size_bytes + 64, np.uint8)
    first = -buffer.ctypes.data % 64
    return buffer[first : first + size_bytes]


def rates(case: Case, systems: dict[str, Timed], tries: int) -> dict[str, float]:
    """Median GF/s of each system, taking turns."""
    calls = max(1, int(SAMPLE_S * EXPECTED_FLOPS_PER_S / case.flops))
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for attempt in range(tries + 1):
        for name, run in systems.items():
            started = time.perf_counter()
            run(calls)
            if attempt:  # the first turn only warms up
                seconds[name].append((time.perf_counter() - started) / calls)
    return {name: case.flops / statistics.median(found) / 1e9 for name, found in seconds.items()}


def measure(case: Case, dtype: DType, library: LoadedObject, tries: int) -> dict[str, float]:
    a, b, c = case.operands(dtype)
    run_ours, scratch = ours(library, dtype, a, b, c)
    run_ours(1)
    reference = a @ b
    scale = np.abs(a).astype(np.float64) @ np.abs(b)
    if not (np.abs(c - reference) <= 4 * case.k * np.finfo(dtype.numpy).eps * scale).all():
        raise SystemExit(f"wrong product: {case}")
    systems = {"autojit": run_ours, "numpy": numpy_dot(a, b, c)}
    found = blas(library, dtype, a, b, c)
    if found is not None:
        systems["blas"] = found[0]
    result = rates(case, systems, tries)
    del scratch, found
    return result


def compiled(dtype: DType, target: HostTarget) -> tuple[LoadedObject, float]:
    """The library with the timing loops, and the CPU milliseconds its compilation took."""
    compile_to_object("define void @warm_up() { ret void }", target)
    started = time.process_time()
    content = compile_to_object(gemm_module(dtype, target), target)
    elapsed_ms = 1e3 * (time.process_time() - started)
    parts = load(content), load(compile_to_object(LOOPS_IR, target))
    return LoadedObject(parts[0].symbols | parts[1].symbols, parts), elapsed_ms


def peak_gflops() -> dict[str, float]:
    engine, loops = fma_loops()
    found = {name: fma_gflops(address, flops, 1) for name, (address, flops) in loops.items()}
    del engine
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="f32,f64")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--vector-bytes", type=int, default=host_target().vector_bytes)
    parser.add_argument("--tries", type=int, default=15)
    options = parser.parse_args()
    target = host_target().limited_to(options.vector_bytes)
    for dtype in [d for d in (float32, float64) if d.short in options.dtypes.split(",")]:
        library, compile_ms = compiled(dtype, target)
        peak = peak_gflops()[dtype.name]
        print(
            f"\n{dtype.short}: {8 * target.vector_bytes}-bit vectors, peak {peak:.1f}, compiled in {compile_ms:.0f} ms"
        )
        print(f"{'m x k x n':<20}{'autojit':>9}{'of peak':>9}{'numpy':>8}{'ratio':>7}{'blas':>8}{'ratio':>7}")
        for case in map(Case.parse, options.shapes.split(",")):
            found = measure(case, dtype, library, options.tries)
            best = found["autojit"]
            line = f"{case.m}x{case.k}x{case.n} {case.stored:<5}".ljust(20) + f"{best:>9.1f}{best / peak:>9.0%}"
            for name in ("numpy", "blas"):
                if name in found:
                    line += f"{found[name]:>8.1f}{best / found[name]:>7.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
