"""A generator of digits and a critic of them, both convolutional, train against each other.

    python examples/dcgan.py [--steps N] [--small] [--eager] [--device DEVICE]

Transposed convolutions, batch norms, ``detach``, three backward passes and two optimisers all form one compiled step.
Source: Radford, Metz and Chintala, ICLR 2016.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import digits, initialize, program, show

import autojit as aj
from autojit import nn

CODE = 16


def generator(width: int) -> nn.Sequential:
    """Codes ``f32[n, 16, 1, 1]`` to images ``f32[n, 1, 8, 8]`` in [-1, 1]."""
    return nn.Sequential(
        nn.ConvTranspose2d(CODE, 2 * width, 2, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
        nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Tanh(),
    )  # fmt: skip


def critic(width: int) -> nn.Sequential:
    """Images ``f32[n, 1, 8, 8]`` to the logit of their being real, ``f32[n]``."""
    return nn.Sequential(
        nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(2 * width, 1, 2), nn.Flatten(0),
    )  # fmt: skip


@program("a generative adversarial network on handwritten digits")
def main(o: Namespace) -> list[float]:
    width, batch, steps = (8, 32, 40) if o.small else (24, 64, 400)
    real = 2 * digits()[0] - 1
    rng = np.random.default_rng(0)

    G, D = initialize(generator(width), seed=1), initialize(critic(width), seed=2)
    optimizer_g = aj.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = aj.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    def step(x: aj.Tensor, code: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        label = aj.ones(len(x))
        D.zero_grad()
        real_error = criterion(D(x), label)
        real_error.backward()
        fake = G(code)
        fake_error = criterion(D(fake.detach()), label.fill_(0))
        fake_error.backward()
        optimizer_d.step()

        G.zero_grad()
        error = criterion(D(fake), label.fill_(1))
        error.backward()
        optimizer_g.step()
        return real_error + fake_error, error

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        x = real[rng.integers(0, len(real), batch)]
        code = rng.normal(size=(batch, CODE, 1, 1)).astype(np.float32)
        critic_loss, generator_loss = run(aj.tensor(x), aj.tensor(code))
        losses.append(critic_loss.item())
        if number % 100 == 0:
            print(f"step {number:4d}  critic {losses[-1]:.3f}  generator {generator_loss.item():.3f}")
    with aj.no_grad():
        fake = G(aj.tensor(rng.normal(size=(200, CODE, 1, 1)).astype(np.float32))).cpu().numpy()
    show(images=fake[:24, 0])
    off = np.abs(real.mean(axis=0) - fake.mean(axis=0)).mean()
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; the mean image is off by {off:.2f}")
    assert o.steps or off < (0.6 if o.small else 0.2)
    return losses


if __name__ == "__main__":
    main()
