"""A training step of ``nn.LSTM``, 64 steps, 128 wide, batch 32, Adam: autojit's jit against torch, eager and compiled.

    python -m benchmarks.recurrent [--torch PYTHON] [--rounds 3] [--calls 40] [--threads 2]

``--torch`` names an interpreter that has torch (this one by default); systems without their package are left out.
Every measurement is a fresh process, systems in turns; milliseconds per step, the median and the best over calls, of
the best round. The losses are printed for comparison.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

LENGTH, BATCH, WIDTH, CLASSES = 64, 32, 128, 10
SYSTEMS = ("autojit-jit", "torch-eager", "torch-compile")


def step_of(system: str, threads: int) -> Any:
    """The step as a function without arguments that returns the loss."""
    T = importlib.import_module(system.split("-")[0])
    T.set_num_threads(threads)
    rng = np.random.default_rng(0)

    def filled(*shape: int) -> Any:
        return T.tensor(rng.uniform(-0.08, 0.08, shape).astype(np.float32))

    recurrent, head = T.nn.LSTM(WIDTH, WIDTH), T.nn.Linear(WIDTH, CLASSES)
    model = T.nn.ModuleList([recurrent, head])
    with T.no_grad():
        for p in model.parameters():
            p.copy_(filled(*p.shape))
    optimizer = T.optim.Adam(model.parameters(), lr=1e-3)
    x = T.tensor(rng.normal(size=(LENGTH, BATCH, WIDTH)).astype(np.float32))
    y = T.tensor(rng.integers(0, CLASSES, BATCH))

    def forward(x: Any) -> Any:
        return head(recurrent(x)[0][-1])

    if system == "torch-compile":
        forward = T.compile(forward)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = T.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = T.jit(step) if system == "autojit-jit" else step
    return lambda: run(x, y).item()


def measure(system: str, calls: int, threads: int) -> dict[str, float]:
    step = step_of(system, threads)
    losses = [step() for _ in range(8)]
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median": float(np.median(times)), "best": min(times), "loss": losses[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.calls, options.threads)))
        return
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for system in SYSTEMS:
            python = options.torch if system.startswith("torch") else sys.executable
            command = [python, __file__, "--measure", system, "--calls", str(options.calls)]
            done = subprocess.run(
                [*command, "--threads", str(options.threads)], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                found.setdefault(system, []).append(json.loads(done.stdout.splitlines()[-1]))
    for system, rounds in found.items():
        median, best = (min(one[name] for one in rounds) for name in ("median", "best"))
        print(f"{system:14} median {median:7.2f} ms   best {best:7.2f} ms   loss {rounds[0]['loss']:.5f}")


if __name__ == "__main__":
    main()
