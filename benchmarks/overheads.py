"""What a system costs beside arithmetic: import, disk, eager dispatch, the compiled call; and a long fused loop."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.systems import MODULES, base_name
from benchmarks.timing import best_of, median
from benchmarks.workloads.problem import Namespace

SMALL = 10  # elements of the tensors whose cost is all overhead
LONG = 10_000_000  # elements of the fused loop that is compared with memcpy
ARRAYS = 10
IMPORTS = 5
TIMED_IMPORT = "import time, numpy; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def measure_overheads(system: str, module: Namespace, seconds: float) -> dict[str, Any]:
    """Times in microseconds, and bandwidth of a fused loop in GB/s (bytes read and written over seconds)."""
    if base_name(system) == "jax":
        return compiled_overheads(module.jit, module.numpy.array, module.block_until_ready, seconds)
    if base_name(system) in ("autojit-eager", "torch-eager"):
        return eager_overheads(module, seconds)
    compiler = module.jit if system == "autojit" else module.compile
    return compiled_overheads(compiler, module.tensor, lambda result: result, seconds)


def eager_overheads(T: Namespace, seconds: float) -> dict[str, Any]:
    """One small addition without and with recording, and a product, a sum and its backward pass."""
    x, y = T.tensor(np.arange(SMALL, dtype=np.float32)), T.tensor(np.ones(SMALL, np.float32))
    recorded = T.tensor(np.arange(SMALL, dtype=np.float32)).requires_grad_(True)
    return {
        "small_op_us": 1e6 * best_of(lambda: x + y, seconds),
        "small_op_recording_us": 1e6 * best_of(lambda: recorded + y, seconds),
        "small_backward_us": 1e6 * best_of(lambda: (recorded * y).sum().backward(), seconds),
    }


def compiled_overheads(compiler: Any, array: Any, wait: Any, seconds: float) -> dict[str, Any]:
    """The call of a compiled function of ten small arrays, and a pointwise chain over ten million elements."""
    small = [array(np.full(SMALL, k, np.float32)) for k in range(ARRAYS)]
    add_all = compiler(lambda *terms: sum(terms[1:], terms[0]))
    x, y = (array(np.random.default_rng(k).normal(size=LONG).astype(np.float32)) for k in range(2))
    chain = compiler(lambda x, y: (x * y + x) * 0.5 - y)
    loop_s = best_of(lambda: wait(chain(x, y)), seconds)
    return {
        "call_10_arrays_us": 1e6 * best_of(lambda: wait(add_all(*small)), seconds),
        "fused_loop_ms": 1e3 * loop_s,
        "fused_loop_gbs": 3 * 4 * LONG / loop_s / 1e9,
    }


def import_seconds(system: str, environment: dict[str, str]) -> float:
    """Median over fresh processes of ``import``, NumPy already imported."""
    command = [sys.executable, "-c", TIMED_IMPORT.format(MODULES[base_name(system)])]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(IMPORTS)
    ]
    return median([float(run.stdout) for run in runs])


def installed_mb(system: str) -> float:
    """Disk space of the distribution and everything it requires, in MB (10^6 bytes)."""
    sizes: dict[str, int] = {}
    for name in closure(MODULES[base_name(system)]):
        distribution = metadata.distribution(name)
        for file in distribution.files or []:
            path = os.path.realpath(str(distribution.locate_file(file)))
            if os.path.isfile(path):
                sizes[path] = os.path.getsize(path)
    return sum(sizes.values()) / 1e6 + editable_mb(MODULES[base_name(system)])


def editable_mb(name: str) -> float:
    """Size of a package that is installed in place, so that its distribution does not list its files."""
    listed = [str(file) for file in metadata.distribution(name).files or []]
    if any(file.startswith(f"{name}/") for file in listed):
        return 0.0
    import importlib.util

    spec = importlib.util.find_spec(name)
    roots = (spec.submodule_search_locations if spec else None) or []
    files = [os.path.join(folder, file) for root in roots for folder, _, names in os.walk(root) for file in names]
    return sum(os.path.getsize(file) for file in files) / 1e6


def closure(name: str) -> set[str]:
    """The distribution and, through its unconditional requirements, all those installed with it."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            requirements = metadata.distribution(current).requires or []
        except metadata.PackageNotFoundError:
            continue
        if current not in seen:
            seen.add(current)
            waiting += [re.split(r"[\s;<>=!~\[(]", r, maxsplit=1)[0] for r in requirements if "extra ==" not in r]
    return seen
