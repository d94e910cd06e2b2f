"""A convolutional network reads handwritten digits.

    python examples/cnn.py [--steps N] [--small] [--eager] [--device DEVICE]

Convolution, batch norm and pooling as in any torch program. The compiled step keeps the running statistics of the
norms as state. Evaluation compiles to another step, because the module is in another mode.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import digits, initialize, program, show

import autojit as aj
from autojit import nn
from autojit.nn import functional as F


class Network(nn.Module):
    """Images ``f32[n, 1, 8, 8]`` to log probabilities ``f32[n, 10]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(2 * channels)
        self.head = nn.Linear(2 * channels * 4, 10)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return F.log_softmax(self.head(aj.flatten(x, 1)), dim=1)


@program("a convolutional network on handwritten digits")
def main(o: Namespace) -> list[float]:
    channels, batch, steps = (8, 32, 40) if o.small else (16, 64, 300)
    images, labels = digits()
    held_out = 360
    rng = np.random.default_rng(0)

    model = initialize(Network(channels))
    optimizer = aj.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = aj.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=o.steps or steps)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def accuracy(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        with aj.no_grad():
            return (model(x).argmax(dim=1) == y).float().mean()

    run, judge = (step, accuracy) if o.eager else (aj.jit(step), aj.jit(accuracy))
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        chosen = rng.integers(0, len(labels) - held_out, batch)
        losses.append(run(aj.tensor(images[chosen]), aj.tensor(labels[chosen])).item())
        scheduler.step()
        if number % 50 == 0:
            print(f"step {number:4d}  loss {losses[-1]:.3f}")
    elapsed_s = time.perf_counter() - start
    model.eval()
    right = judge(aj.tensor(images[-held_out:]), aj.tensor(labels[-held_out:])).item()
    print(f"{len(losses)} steps in {elapsed_s:.1f} s; {right:.1%} of {held_out} unseen digits are right")
    show(model=model, images=images[-held_out:], labels=labels[-held_out:])
    assert o.steps or right > (0.7 if o.small else 0.94)
    return losses


if __name__ == "__main__":
    main()
