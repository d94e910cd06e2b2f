"""A variational autoencoder learns to write digits.

    python examples/vae.py [--steps N] [--small] [--eager] [--device DEVICE]

The posterior is a ``distributions.Normal``; the loss is the negative evidence lower bound, a Bernoulli likelihood
and a Kullback-Leibler divergence. Source: Kingma and Welling, ICLR 2014.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import digits, initialize, program, show

import autojit as aj
from autojit import nn
from autojit.distributions import Normal, kl_divergence
from autojit.nn import functional as F


class Autoencoder(nn.Module):
    """Pixels ``f32[n, 64]`` to the logits of pixels and the posterior of the code."""

    def __init__(self, hidden: int, code: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.Tanh(), nn.Linear(hidden, 64))

    def posterior(self, x: aj.Tensor) -> Normal:
        mean, log_scale = self.encoder(x).chunk(2, dim=1)
        return Normal(mean, log_scale.exp())

    def forward(self, x: aj.Tensor, noise: aj.Tensor) -> tuple[aj.Tensor, Normal]:
        posterior = self.posterior(x)
        return self.decoder(posterior.mean + posterior.stddev * noise), posterior


def drawn(image: np.ndarray) -> str:
    """An 8 x 8 image as lines of characters."""
    return "\n".join("".join(" .:*#"[min(4, int(5 * v))] for v in row) for row in image)


@program("a variational autoencoder on handwritten digits")
def main(o: Namespace) -> list[float]:
    hidden, code, batch, steps = (32, 4, 32, 80) if o.small else (128, 8, 64, 1000)
    pixels = digits()[0].reshape(-1, 64)
    rng = np.random.default_rng(0)

    model = initialize(Autoencoder(hidden, code))
    optimizer = aj.optim.Adam(model.parameters(), lr=3e-3)

    def step(x: aj.Tensor, noise: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        logits, posterior = model(x, noise)
        likelihood = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum()
        loss = (likelihood + divergence) / len(x)
        loss.backward()
        optimizer.step()
        return loss

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        x = pixels[rng.integers(0, len(pixels), batch)]
        noise = rng.normal(size=(batch, code)).astype(np.float32)
        losses.append(run(aj.tensor(x), aj.tensor(noise)).item())
        if number % 200 == 0:
            print(f"step {number:4d}  loss {losses[-1]:.2f} nats per digit")
    elapsed_s = time.perf_counter() - start
    print(f"{len(losses)} steps in {elapsed_s:.1f} s; loss {losses[0]:.2f} -> {losses[-1]:.2f}; a digit:")
    with aj.no_grad():
        samples = model.decoder(aj.tensor(rng.normal(size=(24, code)).astype(np.float32))).sigmoid()
    images = samples.view(-1, 8, 8).cpu().numpy()
    print(drawn(images[0]))
    show(images=images)
    assert o.steps or losses[-1] < (0.9 if o.small else 0.65) * losses[0]
    return losses


if __name__ == "__main__":
    main()
