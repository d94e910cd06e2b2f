"""Single convolutions, forward, backward and both, against torch.

    python -m benchmarks.convolution [--torch PYTHON] [--rounds 5] [--seconds 0.2] [--threads 2]
        [--dtype float32]

``--torch`` names an interpreter that has torch (this one by default). A measurement is a fresh process, systems in
turns: threads of one that still wait for work would take a core from the other. torch gets an allocator that keeps
large arrays mapped. Milliseconds per call, the median over calls in the best round, and how many times as fast
as torch autojit is. Steps with derivatives return the result too, so that none can leave it out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timing import steady_state

SYSTEMS = ("autojit", "torch")
PARTS = ("forward", "input", "weight", "all")
KEEPS_MAPPED = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
CASES = {  # batch, channels, size, outputs, kernel, stride, padding, groups
    "16x64x16x16 -> 64, 3x3": (16, 64, 16, 64, 3, 1, 1, 1),
    "64x1x28x28 -> 16, 5x5": (64, 1, 28, 16, 5, 1, 2, 1),
    "64x16x28x28 -> 16, 5x5": (64, 16, 28, 16, 5, 1, 2, 1),
    "16x64x32x32 -> 128, 3x3 / 2": (16, 64, 32, 128, 3, 2, 1, 1),
    "16x64x16x16 -> 64, 1x1": (16, 64, 16, 64, 1, 1, 0, 1),
    "16x64x32x32 depthwise 3x3": (16, 64, 32, 64, 3, 1, 1, 64),
    "4x256x14x14 -> 256, 3x3": (4, 256, 14, 256, 3, 1, 1, 1),
}


def calls_of(system: str, case: tuple[int, ...], threads: int, dtype: str = "float32") -> dict[str, Callable[[], Any]]:
    """The parts of one convolution, as functions without arguments."""
    T = importlib.import_module(system)
    T.set_num_threads(threads)
    batch, channels, size, outputs, kernel, stride, padding, groups = case
    rng = np.random.default_rng(0)
    kind = getattr(T, dtype)
    x = T.tensor(rng.normal(size=(batch, channels, size, size)).astype(np.float32)).to(kind)
    w = T.tensor(0.05 * rng.normal(size=(outputs, channels // groups, kernel, kernel)).astype(np.float32)).to(kind)
    jit = T.jit if system == "autojit" else lambda function: function

    def forward(x: Any, w: Any) -> Any:
        return T.nn.functional.conv2d(x, w, stride=stride, padding=padding, groups=groups)

    y_bar = T.ones_like(forward(x, w))
    xg, wg = x.clone().requires_grad_(), w.clone().requires_grad_()

    def gradients(x: Any, w: Any, y_bar: Any) -> Any:
        y = forward(x, w)
        return y, T.autograd.grad(y, [t for t in (x, w) if t.requires_grad], y_bar)

    run, differentiate = jit(forward), jit(gradients)

    def only_forward() -> Any:
        with T.no_grad():
            return run(x, w)

    made = (only_forward, *(lambda a=a, b=b: differentiate(a, b, y_bar) for a, b in ((xg, w), (x, wg), (xg, wg))))
    return dict(zip(PARTS, made, strict=True))


def measure(system: str, seconds: float, threads: int, dtype: str) -> dict[str, list[float]]:
    """Milliseconds of every part of every case, in this process."""
    found = {}
    for name, case in CASES.items():
        calls = calls_of(system, case, threads, dtype).values()
        found[name] = [1e3 * steady_state(call, lambda result: None, seconds).median_s for call in calls]
    return found


def main() -> None:
    """Measure both systems in turns; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.seconds, args.threads, args.dtype)))
        return
    found: dict[str, list[dict[str, list[float]]]] = {system: [] for system in SYSTEMS}
    for _ in range(args.rounds):
        for system in SYSTEMS:
            python, kept = (args.torch, KEEPS_MAPPED) if system == "torch" else (sys.executable, {})
            command = [python, "-m", "benchmarks.convolution", "--measure", system, "--seconds", str(args.seconds)]
            done = subprocess.run(
                [*command, "--threads", str(args.threads), "--dtype", args.dtype],
                capture_output=True, text=True, check=True, env={**os.environ, **kept},
            )  # fmt: skip
            found[system].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'':28}" + "".join(f"{part:>24}" for part in ("forward", "+ input", "+ weight", "+ both")))
    for case in CASES:
        print(f"{case:28}", end="")
        for k in range(len(PARTS)):
            ours, theirs = (min(one[case][k] for one in found[system]) for system in SYSTEMS)
            print(f"  {ours:7.3f} {theirs:7.3f} {theirs / ours:5.2f}x", end="")
        print()


if __name__ == "__main__":
    main()
