"""How compile time grows with depth: a Transformer's training step of few and of many layers.

    python -m benchmarks.compile_scaling [--layers 4,12] [--width 128] [--rounds 7]

Every figure is a fresh process with an empty cache. *Compile time* is what ``stats()`` calls ``capture_s`` and
``compile_s``: from the first call until the step could run (wall clock). *First call* runs it too, on memory that was
never touched. Then the CPU seconds of the calling thread by stage, which other processes disturb less; LLVM's part is
the rest, on both cores, while the memory plan and the call plan are made. The layers share their kernels, so it hardly
grows. Medians of the rounds, layers in turns, and the ratio of the last to the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

BATCH, LENGTH, SYMBOLS, HEADS = 8, 64, 100, 4
STAGES = ("optimize", "schedule", "lower", "build")


def measure(layers: int, width: int) -> dict[str, float]:
    """One first step in this process."""
    import autojit as aj
    import autojit.compiler as compiler
    from autojit.backend import compiling_by, cpu_backend

    aj.manual_seed(0)
    nn = aj.nn
    layer = nn.TransformerEncoderLayer(width, HEADS, 4 * width, dropout=0.0, batch_first=True)
    embedding = nn.Embedding(SYMBOLS, width)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    head = nn.Linear(width, SYMBOLS)
    model = nn.ModuleList([embedding, encoder, head])
    optimizer = aj.optim.Adam(model.parameters(), lr=1e-3)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    rng = np.random.default_rng(0)
    x, y = (aj.tensor(rng.integers(0, SYMBOLS, (BATCH, LENGTH))) for _ in range(2))
    seconds = dict.fromkeys(STAGES, 0.0)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[name] += time.thread_time() - start

        return call

    for name in ("optimize", "schedule"):
        setattr(compiler, name, timed(name, getattr(compiler, name)))
    backend = cpu_backend()
    backend = replace(backend, lower=timed("lower", backend.lower), build=timed("build", backend.build))

    @aj.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = head(encoder(embedding(x), mask=mask, is_causal=True))
        loss = nn.functional.cross_entropy(logits.reshape(-1, SYMBOLS), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    with compiling_by(backend):
        wall = time.perf_counter()
        step(x, y)
        wall = time.perf_counter() - wall
    stats = step.stats()
    return {
        "compile time": stats["capture_s"] + stats["compile_s"],
        "first call": wall,
        "capture": stats["capture_s"],
        **seconds,
        "kernels": float(stats["kernels"]),
    }


def in_fresh_process(layers: int, width: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "benchmarks.compile_scaling", "--measure", str(layers), "--width", str(width)]
        environment = {**os.environ, "AUTOJIT_CACHE_DIR": os.path.join(cache, "objects")}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="4,12")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.width)))
        return
    layers = [int(n) for n in options.layers.split(",")]
    runs: dict[int, list[dict[str, float]]] = {n: [] for n in layers}
    for _ in range(options.rounds):
        for n in layers:
            runs[n].append(in_fresh_process(n, options.width))
    middle = {n: {name: median(run[name] for run in found) for name in found[0]} for n, found in runs.items()}
    print(f"{'':18}" + "".join(f"{n:>12} layers" for n in layers) + "     ratio")
    for name in middle[layers[0]]:
        first, last = middle[layers[0]][name], middle[layers[-1]][name]
        print(f"{name:18}" + "".join(f"{middle[n][name]:19.3f}" for n in layers) + f"{last / first:10.2f}")


if __name__ == "__main__":
    main()
