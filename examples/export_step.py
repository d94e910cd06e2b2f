"""A training step leaves the process: the first half of the training here, the second half by a native library.

    python examples/export_step.py [--steps N] [--small] [--eager] [--device DEVICE]

The library needs neither Python nor autojit. Here NumPy and ctypes call it, as a C program would (``step.h`` comes with
it). Its losses have the same bits as those that the process would have computed. On a device nothing is exported.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path

import numpy as np
from _setup import digits, initialize, program

import autojit as aj
from autojit.nn import functional as F

BATCH = 64


@program("digits, trained first in the process and then by an exported library")
def main(o: Namespace) -> list[float]:
    images, labels = digits()
    steps = o.steps or (40 if o.small else 400)
    model = initialize(aj.nn.Sequential(aj.nn.Flatten(), aj.nn.Linear(64, 64), aj.nn.ReLU(), aj.nn.Linear(64, 10)))
    optimizer = aj.optim.Adam(model.parameters(), lr=5e-3)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def batch(k: int) -> tuple[np.ndarray, np.ndarray]:
        first = k * BATCH % (len(images) - BATCH)
        return images[first : first + BATCH], labels[first : first + BATCH]

    run = step if o.eager else aj.jit(step)
    losses = [float(run(*map(aj.tensor, batch(k)))) for k in range(steps // 2)]
    if o.eager or o.device != "cpu":
        return losses + [float(run(*map(aj.tensor, batch(k)))) for k in range(steps // 2, steps)]
    with tempfile.TemporaryDirectory() as folder:
        print(run.export(Path(folder) / "step"))
        library = aj.export.load(Path(folder) / "step")
        losses += [float(library(*batch(k))) for k in range(steps // 2, steps)]
        weight = library.state_dict()["model.1.weight"]
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; the library's own weights: {weight.shape}")
    if not o.steps:
        assert losses[-1] < losses[0] / 2
    return losses


if __name__ == "__main__":
    main()
