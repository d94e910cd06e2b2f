"""A user's Numba function inside a fused kernel, against the same function called once per element and other ways.

    python -m benchmarks.numba_op [--elements 65536] [--tries 40] [--threads 1]

The function has a branch, a loop and ``exp``; it stands between two ops, ``y * f(2 x, y) + 1``. Nanoseconds per float64
element, the best of many tries, systems in turns: ``fused`` is ``aj.op`` in a compiled step; ``gradient`` the compiled
derivative of the sum with respect to both operands; ``eager`` the same program op by op; ``numba`` one loop written by
hand and compiled by Numba; ``called`` a loop that calls the function through its address once per element; ``numpy``
``numba.vectorize`` between NumPy's ufuncs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import autojit as aj


@numba.njit  # type: ignore[untyped-decorator]
def function(x: float, y: float) -> float:
    total = 0.0
    for k in range(4):
        total = total * x + y * k
    if x > y:
        return total + math.exp(-x)
    return total - y


def variants(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    op = aj.op(function)
    a, b = aj.tensor(x), aj.tensor(y)

    def program(a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
        return b * op(2.0 * a, b) + 1.0  # type: ignore[no-any-return]

    def gradient(a: aj.Tensor, b: aj.Tensor) -> tuple[aj.Tensor, ...]:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        return aj.autograd.grad(program(a, b).sum(), (a, b))  # type: ignore[no-any-return]

    fused, slopes = aj.jit(program), aj.jit(gradient)
    pointer = numba.cfunc("float64(float64, float64)")(function.py_func).ctypes

    @numba.njit  # type: ignore[untyped-decorator]
    def by_hand(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = y[i] * function(2.0 * x[i], y[i]) + 1.0

    @numba.njit  # type: ignore[untyped-decorator]
    def called(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = y[i] * pointer(2.0 * x[i], y[i]) + 1.0

    ufunc = numba.vectorize(["float64(float64, float64)"])(function.py_func)
    out = np.empty_like(x)
    found: dict[str, Callable[[], Any]] = {
        "fused": lambda: fused(a, b),
        "gradient": lambda: slopes(a, b),
        "eager": lambda: program(a, b),
        "numba": lambda: by_hand(x, y, out),
        "called": lambda: called(x, y, out),
        "numpy": lambda: y * ufunc(2.0 * x, y) + 1.0,
    }
    expected = y * ufunc(2.0 * x, y) + 1.0
    np.testing.assert_allclose(fused(a, b).numpy(), expected, rtol=1e-13)
    called(x, y, out)
    np.testing.assert_allclose(out, expected, rtol=1e-13)
    assert fused.stats()["kernels"] == 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=65536)
    parser.add_argument("--tries", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    aj.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    x, y = rng.random(options.elements) + 0.1, rng.random(options.elements) + 0.1
    calls = variants(x, y)
    best = dict.fromkeys(calls, math.inf)
    for _ in range(options.tries + 3):  # the first three warm up
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    for name, seconds in best.items():
        print(f"{name:<9} {seconds / options.elements * 1e9:6.2f} ns per element")


if __name__ == "__main__":
    main()
