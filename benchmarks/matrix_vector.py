"""Products of a matrix with a vector, alone and on both sides of a pointwise middle, against torch.

    python -m benchmarks.matrix_vector [--torch PYTHON] [--rounds 5] [--seconds 0.05] [--threads 1]

``--torch`` names an interpreter that has torch (this one by default). A measurement is a fresh process, systems in
turns. Microseconds per call, the median over calls in the best round, and how many times as fast as torch autojit is.
``forward`` is ``X @ q``, ``transposed`` is ``X.T @ r``, ``both`` is ``X.T @ (s * (X @ q))`` (a Hessian-vector product)
and ``logistic`` is ``X.T @ (sigmoid(X @ q) - s)`` (a gradient); ``layer`` is a training step's loss and derivatives of
``Linear(columns, 1)``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import steady_state

SYSTEMS = ("autojit", "torch")
PARTS = ("forward", "transposed", "both", "logistic", "layer")
CASES = ((1000, 3), (1000, 20), (1000, 100), (256, 256), (1000, 784), (1024, 1024), (20000, 64), (30000, 100))


def calls_of(system: str, rows: int, columns: int, threads: int) -> dict[str, Callable[[], Any]]:
    """The parts for one size, as functions without arguments."""
    T = importlib.import_module(system)
    T.set_num_threads(threads)
    rng = np.random.default_rng(0)
    x, q, s = (T.tensor(rng.normal(size=n).astype(np.float32)) for n in ((rows, columns), (columns,), (rows,)))
    w = T.tensor(rng.normal(size=(1, columns)).astype(np.float32), requires_grad=True)
    b = T.zeros(1, requires_grad=True)
    jit = T.jit if system == "autojit" else lambda function: function

    def layer(x: Any, s: Any, w: Any, b: Any) -> Any:
        loss = ((T.nn.functional.linear(x, w, b)[:, 0] - s) ** 2).mean()
        return loss.detach(), T.autograd.grad(loss, [w, b])

    parts: dict[str, Callable[..., Any]] = {
        "forward": lambda x, q, s: x @ q,
        "transposed": lambda x, q, s: x.T @ s,
        "both": lambda x, q, s: x.T @ (s * (x @ q)),
        "logistic": lambda x, q, s: x.T @ (T.sigmoid(x @ q) - s),
    }
    compiled = {name: jit(part) for name, part in parts.items()}
    made: dict[str, Callable[[], Any]] = {name: partial(part, x, q, s) for name, part in compiled.items()}
    return made | {"layer": partial(jit(layer), x, s, w, b)}


def measure(system: str, seconds: float, threads: int) -> list[list[float]]:
    """Microseconds of every part of every case, in this process."""
    found = []
    for rows, columns in CASES:
        calls = calls_of(system, rows, columns, threads)
        found.append([1e6 * steady_state(calls[p], lambda result: None, seconds).median_s for p in PARTS])
    return found


def main() -> None:
    """Measure both systems in turns; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.seconds, args.threads)))
        return
    found: dict[str, list[list[list[float]]]] = {system: [] for system in SYSTEMS}
    for _ in range(args.rounds):
        for system in SYSTEMS:
            python = args.torch if system == "torch" else sys.executable
            command = [python, "-m", "benchmarks.matrix_vector", "--measure", system, "--seconds", str(args.seconds)]
            done = subprocess.run(
                [*command, "--threads", str(args.threads)], capture_output=True, text=True, check=True
            )
            found[system].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'':14}" + "".join(f"{part:>24}" for part in PARTS))
    for place, (rows, columns) in enumerate(CASES):
        print(f"{f'{rows} x {columns}':14}", end="")
        for k in range(len(PARTS)):
            ours, theirs = (min(one[place][k] for one in found[system]) for system in SYSTEMS)
            print(f"  {ours:7.2f} {theirs:7.2f} {theirs / ours:5.2f}x", end="")
        print()


if __name__ == "__main__":
    main()
