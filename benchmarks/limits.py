"""What the machine can do: memory bandwidth by memcpy, fused multiply-adds per second by a generated loop.

Both are measured with as many Python threads as asked; the functions they call release the interpreter lock.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from autojit.codegen.target import host_target

COPY_BYTES = 40_000_000  # ten million float32, far beyond any second-level cache
CHAINS = 12  # independent accumulators: more than latency times issue width of any current core
FMA_ITERATIONS = 4_000_000
TRIES = 15


def measure_limits(threads: int) -> dict[str, Any]:
    """Bandwidth in GB/s (bytes read plus bytes written), arithmetic in GF/s (a fused multiply-add counts two)."""
    engine, peaks = fma_loops()
    limits: dict[str, Any] = {"threads": threads, "memcpy_gbs": memcpy_gbs(threads), **fresh_page_cost()}
    for dtype, (address, flops) in peaks.items():
        limits[f"{dtype}_gflops"] = fma_gflops(address, flops, threads)
    del engine
    return limits


def together(work: Callable[[int], object], threads: int) -> float:
    """Least wall-clock seconds in which ``work(0) ... work(threads - 1)`` ran at the same time."""
    with ThreadPoolExecutor(threads) as pool:
        best_s = float("inf")
        for _ in range(TRIES):
            started = time.perf_counter()
            list(pool.map(work, range(threads)))
            best_s = min(best_s, time.perf_counter() - started)
    return best_s


def memcpy_gbs(threads: int) -> float:
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    part = COPY_BYTES // threads

    def copy(thread: int) -> None:
        ctypes.memmove(target.ctypes.data + thread * part, source.ctypes.data + thread * part, part)

    return 2 * part * threads / together(copy, threads) / 1e9


def fresh_page_cost() -> dict[str, float]:
    """Microseconds that the first touch of a 4 KiB page costs beyond writing it."""
    size = 32 << 20

    def write(area: mmap.mmap) -> float:
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        started = time.perf_counter()
        ctypes.memset(address, 1, size)
        return time.perf_counter() - started

    pairs = []
    for _ in range(5):
        area = mmap.mmap(-1, size)
        pairs.append((write(area), write(area)))
    fresh_s, again_s = (min(times) for times in zip(*pairs, strict=True))
    return {"fresh_page_us": 1e6 * (fresh_s - again_s) / (size / 4096)}


def fma_gflops(address: int, flops: float, threads: int) -> float:
    loop = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)
    return threads * flops / together(lambda _: loop(FMA_ITERATIONS), threads) / 1e9


def fma_loops() -> tuple[Any, dict[str, tuple[int, float]]]:
    """Compile one loop per dtype; returns what keeps them alive, and ``{dtype: (address, flops of one call)}``."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = host_target()
    lanes = {"float32": target.vector_bytes // 4, "float64": target.vector_bytes // 8}
    text = "\n".join(fma_loop(dtype, width) for dtype, width in lanes.items())
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    flops_per_lane = 2.0 * CHAINS * FMA_ITERATIONS
    return engine, {d: (engine.get_function_address(f"fma_{d}"), flops_per_lane * w) for d, w in lanes.items()}


def fma_loop(dtype: str, width: int) -> str:
    """LLVM IR of ``void fma_<dtype>(i64 iterations)``: ``CHAINS`` independent vector accumulators in registers."""
    scalar = {"float32": "float", "float64": "double"}[dtype]
    vector, suffix = f"<{width} x {scalar}>", f"v{width}f{dtype[-2:]}"
    factor = f"splat ({scalar} 5.000000e-01)"
    phis = "\n".join(f"  %a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in range(CHAINS))
    steps = "\n".join(
        f"  %b{k} = call {vector} @llvm.fma.{suffix}({vector} %a{k}, {vector} {factor}, {vector} {factor})"
        for k in range(CHAINS)
    )
    uses = "\n".join(f'  call void asm sideeffect "", "x"({vector} %b{k})' for k in range(CHAINS))
    return f"""
declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})
define void @fma_{dtype}(i64 %iterations) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %iterations
  br i1 %more, label %loop, label %exit
exit:
{uses}
  ret void
}}"""
