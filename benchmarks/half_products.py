"""Products of bfloat16 and of float32, alone and as layers with their derivatives, against torch.

    python -m benchmarks.half_products [--torch PYTHON] [--rounds 5] [--seconds 0.2] [--threads 1]

``--torch`` names an interpreter that has torch (this one by default). A measurement is a fresh process, systems in
turns. GF/s: of the best call of the best round; ``x float32`` is how many times as fast as autojit's float32 bfloat16
is, ``x torch`` as torch's bfloat16. Layers are compiled steps here, calls by calls there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from benchmarks.timing import steady_state

SYSTEMS = ("autojit", "torch")
DTYPES = ("float32", "bfloat16")
CASES = {  # batch, rows, steps, columns; whether with both derivatives
    "1024x512 @ 512x128": ((), 1024, 512, 128, False),
    "128x1024 @ 1024x512": ((), 128, 1024, 512, False),
    "512x512 @ 512x512": ((), 512, 512, 512, False),
    "64x64 @ 64x64": ((), 64, 64, 64, False),
    "32 of 128x64 @ 64x128": ((32,), 128, 64, 128, False),
    "layer 1024x512 -> 512": ((), 1024, 512, 512, True),
    "layer 256x1024 -> 256": ((), 256, 1024, 256, True),
}


def call_of(system: str, case: tuple[Any, ...], dtype: str, threads: int) -> Callable[[], Any]:
    """One product, or one layer with its derivatives."""
    T = importlib.import_module(system)
    T.set_num_threads(threads)
    batch, m, k, n, differentiates = case
    rng, kind = np.random.default_rng(0), getattr(T, dtype)
    a, b = (T.tensor(rng.normal(size=(*batch, *shape)).astype(np.float32)).to(kind) for shape in ((m, k), (k, n)))

    def product(a: Any, b: Any) -> Any:
        return a @ b

    def layer(x: Any, w: Any, y_bar: Any) -> Any:
        y = T.nn.functional.linear(x, w)
        return y, T.autograd.grad(y, (x, w), y_bar)

    jit = T.jit if system == "autojit" else lambda function: function
    if not differentiates:
        run = jit(product)
        return lambda: run(a, b)
    x, w = a.requires_grad_(), b.mT.contiguous().requires_grad_()
    y_bar, step = T.ones(*batch, m, n).to(kind), jit(layer)
    return lambda: step(x, w, y_bar)


def measure(system: str, seconds: float, threads: int) -> dict[str, list[float]]:
    """GF/s of every case in every dtype, in this process."""
    found = {}
    for name, case in CASES.items():
        batch, m, k, n, differentiates = case
        flops = 2.0 * prod((*batch, m, k, n)) * (3 if differentiates else 1)
        calls = [call_of(system, case, dtype, threads) for dtype in DTYPES]
        found[name] = [flops / steady_state(call, lambda result: None, seconds).best_s / 1e9 for call in calls]
    return found


def main() -> None:
    """Measure both systems in turns; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    given = ["--seconds", str(args.seconds), "--threads", str(args.threads)]
    if args.measure:
        print(json.dumps(measure(args.measure, args.seconds, args.threads)))
        return
    found: dict[str, list[dict[str, list[float]]]] = {system: [] for system in SYSTEMS}
    for _ in range(args.rounds):
        for system in SYSTEMS:
            python = args.torch if system == "torch" else sys.executable
            command = [python, "-m", "benchmarks.half_products", "--measure", system, *given]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
            found[system].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'GF/s':26}{'float32':>9}{'bfloat16':>10}{'x float32':>11}{'torch':>9}{'x torch':>9}")
    for case in CASES:
        best = {system: [max(one[case][k] for one in rounds) for k in (0, 1)] for system, rounds in found.items()}
        (single, half), theirs = best["autojit"], best["torch"][1]
        print(f"{case:26}{single:9.0f}{half:10.0f}{half / single:11.2f}{theirs:9.0f}{half / theirs:9.2f}")


if __name__ == "__main__":
    main()
