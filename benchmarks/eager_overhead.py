"""Time per small eager op (10-element tensors), with and without recording, in microseconds; NumPy beside it."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import autojit as aj

REPEATS, CALLS = 7, 20_000


def per_call_us(call: Callable[[], Any]) -> float:
    """The fastest of several runs: what the code costs when nothing disturbs it."""
    return min(timeit.repeat(call, number=CALLS, repeat=REPEATS)) / CALLS * 1e6


def cases() -> dict[str, Callable[[], Any]]:
    """One call per kind of small op."""
    x, y, leaf = aj.randn(10), aj.randn(10), aj.randn(10, requires_grad=True)
    a, b = x.numpy(), y.numpy()
    return {
        "numpy add": lambda: a + b,
        "add": lambda: x + y,
        "add a number": lambda: x + 2.0,
        "exp": lambda: x.exp(),
        "sum": lambda: x.sum(),
        "add_": lambda: x.add_(0.0),
        "x[2]": lambda: x[2],
        "view": lambda: x.view(2, 5),
        "add, recorded": lambda: leaf + y,
        "mul, recorded": lambda: leaf * y,
        "exp, recorded": lambda: leaf.exp(),
        "sum, recorded": lambda: leaf.sum(),
    }


def main() -> None:
    """Print a table."""
    print("| op on 10 elements | us |\n|---|---|")
    for name, call in cases().items():
        print(f"| {name} | {per_call_us(call):.2f} |")


if __name__ == "__main__":
    main()
