"""Where the fast paths of eager mode begin to pay: NumPy's time and the kernel's, per op of ``fast_paths.TABLE``.

Microseconds, the fastest of many rounds, both taking turns; the last column is the first size from which on the kernel
is faster. ``python -m benchmarks.fast_paths [--only NAME]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import autojit  # noqa: F401 (fills the table)
from autojit.dispatch.fast_paths import TABLE
from autojit.ir.op import Op
from autojit.tensor.state import quietly

SIZES = (1024, 4096, 1 << 15, 100_000)
ROUNDS = 60
Arrays = tuple[Any, ...]


def _draw(n: int, seed: int = 0) -> Any:
    return np.abs(np.random.default_rng(seed).normal(size=n)).astype(np.float32) + np.float32(0.1)


def _rows(n: int, seed: int = 0) -> Any:
    return _draw(n // 32 * 32, seed).reshape(-1, 32)


def _scattered(n: int) -> Arrays:
    return np.zeros(64, np.float32), _draw(n), np.arange(n) % 64


CASES: dict[str, tuple[tuple[Any, ...], Callable[[int], Arrays]]] = {
    **{
        name: ((), lambda n: (_draw(n) / 5,))
        for name in ("sigmoid", "rsqrt", "sign", "relu", "erf", "erfc", "erfinv", "lgamma", "digamma")
    },
    **{
        name: ((), lambda n: (_draw(n), _draw(n, 1)))
        for name in (
            "logaddexp", "hypot", "copysign", "floor_divide", "trunc_divide", "remainder", "fmod",
        )
    },
    "where": ((), lambda n: (_draw(n) > 1, _draw(n), _draw(n, 1))),
    "polygamma": ((1,), lambda n: (_draw(n) + 1,)),
    "pow_number": ((3,), lambda n: (_draw(n),)),
    "softmax": ((1,), lambda n: (_rows(n),)),
    "log_softmax": ((1,), lambda n: (_rows(n),)),
    "flip": (((0,),), lambda n: (_draw(n),)),
    "cumulative": (("sum", 1), lambda n: (_rows(n),)),
    "cumulative_extreme": (("max", 1), lambda n: (_rows(n),)),
    "linear_recurrence": ((1,), lambda n: (_rows(n) / 8, _rows(n, 1))),
    "sum": (((0, 1),), lambda n: (_rows(n),)),
    "mean": (((1,), False), lambda n: (_rows(n),)),
    "sort": ((0, False), lambda n: (_draw(n),)),
    "scatter": ((0, "add"), _scattered),
    "random_bits": ((0,), lambda n: (np.array([1, 2]),)),
}  # fmt: skip


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(name: str, n: int) -> tuple[float, float]:
    """Seconds by NumPy and by the kernel."""
    parameters, make = CASES[name]
    op: Any = Op.registry[name](*(((n,),) if name == "random_bits" else parameters))
    arrays = make(n)
    compute = TABLE[name].compute
    calls = (lambda: quietly(op.eager, *arrays), lambda: quietly(compute, op, arrays))
    if calls[1]() is None:
        return _time(calls[0]), float("inf")
    best = [float("inf")] * 2
    spent = 0.0
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            taken = _time(call)
            best[k], spent = min(best[k], taken), spent + taken
        if spent > 1.0:
            break
    return best[0], best[1]


def lines(only: str = "") -> Iterator[str]:
    """The table."""
    yield f"{'op':20}" + "".join(f"{n:>9} NumPy   kernel" for n in SIZES) + "  pays from"
    for name in CASES:
        if only not in name:
            continue
        times = [measure(name, n) for n in SIZES]
        pays = next((str(n) for n, (slow, fast) in zip(SIZES, times, strict=True) if fast < slow), "-")
        cells = "".join(f"{slow * 1e6:15.1f} {fast * 1e6:8.1f}" for slow, fast in times)
        yield f"{name:20}{cells}  {pays:>9}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of an op's name")
    for line in lines(parser.parse_args().only):
        print(line, flush=True)


if __name__ == "__main__":
    main()
