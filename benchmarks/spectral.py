"""A Fourier neural operator's training step, and single transforms, against torch.

    python -m benchmarks.spectral [--torch PYTHON] [--rounds 5] [--seconds 0.3] [--threads 1]

``--torch`` names an interpreter that has torch (this one by default). A measurement is a fresh process, systems in
turns. The step is two spectral layers (``rfft2``, complex weights by ``einsum``, ``irfft2``, a 1x1 convolution beside,
GELU), its loss, backward and Adam on real and complex parameters. torch gets an allocator that keeps large arrays
mapped. Milliseconds per call, the median over calls in the best round, and how many times as fast as torch autojit is.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import steady_state

SYSTEMS = ("autojit", "torch")
KEEPS_MAPPED = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
NETWORKS = {  # batch, width, modes, size
    "operator 8x20x64x64, 8 modes": (8, 20, 8, 64),
    "operator 16x32x32x32, 12 modes": (16, 32, 12, 32),
}
LINES = ((4096, 64), (256, 1024), (64, 4096), (512, 480), (64, 1009), (1, 65536))


def network_step(T: Any, jit: Callable[[Any], Any], batch: int, width: int, modes: int, size: int) -> Callable[[], Any]:
    """A training step on fixed data."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int, scale: float = 1.0) -> Any:
        return T.tensor((scale * rng.standard_normal(shape)).astype(np.float32))

    def weights(*shape: int) -> Any:
        return T.nn.Parameter(T.complex(numbers(*shape, scale=1 / width), numbers(*shape, scale=1 / width)))

    ends = [T.nn.Parameter(numbers(*shape, scale=0.3)) for shape in ((width, 1, 1, 1), (1, width, 1, 1))]
    layers = [
        (weights(width, width, modes, modes), weights(width, width, modes, modes),
         T.nn.Parameter(numbers(width, width, 1, 1, scale=1 / width)))
        for _ in range(2)
    ]  # fmt: skip
    opt = T.optim.Adam([*ends, *[w for layer in layers for w in layer]], lr=1e-3)
    x, y = numbers(batch, 1, size, size), numbers(batch, 1, size, size)
    convolve = T.nn.functional.conv2d

    def spectral(x: Any, low: Any, high: Any) -> Any:
        spectrum = T.fft.rfft2(x)
        kept = T.zeros(batch, width, size, size // 2 + 1, dtype=T.complex64)
        kept[:, :, :modes, :modes] = T.einsum("bixy,ioxy->boxy", spectrum[:, :, :modes, :modes], low)
        kept[:, :, -modes:, :modes] = T.einsum("bixy,ioxy->boxy", spectrum[:, :, -modes:, :modes], high)
        return T.fft.irfft2(kept, s=(size, size))

    @jit
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        h = convolve(x, ends[0])
        for low, high, beside in layers:
            h = T.nn.functional.gelu(spectral(h, low, high) + convolve(h, beside))
        loss = ((convolve(h, ends[1]) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return lambda: step(x, y)


def cases(system: str, threads: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is measured: names, and functions without arguments."""
    T = importlib.import_module(system)
    T.set_num_threads(threads)
    jit = T.jit if system == "autojit" else lambda function: function
    for name, sizes in NETWORKS.items():
        yield name, network_step(T, jit, *sizes)
    rng = np.random.default_rng(1)
    for count, points in LINES:
        x = T.tensor(rng.standard_normal((count, points)).astype(np.float32))
        z = T.complex(x, T.flip(x, (0,)))
        for kind, operand in (("fft", z), ("rfft", x)):
            run = jit(getattr(T.fft, kind))
            yield f"{kind} {count}x{points}", partial(run, operand)


def measure(system: str, seconds: float, threads: int) -> dict[str, float]:
    """Milliseconds of every case, in this process."""
    return {
        name: 1e3 * steady_state(call, lambda result: None, seconds).median_s for name, call in cases(system, threads)
    }


def main() -> None:
    """Measure both systems in turns; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.seconds, args.threads)))
        return
    found: dict[str, list[dict[str, float]]] = {system: [] for system in SYSTEMS}
    for _ in range(args.rounds):
        for system in SYSTEMS:
            python, kept = (args.torch, KEEPS_MAPPED) if system == "torch" else (sys.executable, {})
            command = [python, "-m", "benchmarks.spectral", "--measure", system, "--seconds", str(args.seconds)]
            done = subprocess.run(
                [*command, "--threads", str(args.threads)],
                capture_output=True, text=True, check=True, env={**os.environ, **kept},
            )  # fmt: skip
            found[system].append(json.loads(done.stdout.splitlines()[-1]))
    for case in found["autojit"][0]:
        ours, theirs = (min(one[case] for one in found[system]) for system in SYSTEMS)
        print(f"{case:34} {ours:9.3f} {theirs:9.3f} {theirs / ours:6.2f}x")


if __name__ == "__main__":
    main()
