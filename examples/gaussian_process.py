"""Gaussian-process regression: scales and noise by maximising the evidence, then the prediction with its uncertainty.

    python examples/gaussian_process.py [--steps N] [--small] [--eager] [--device DEVICE]

The evidence is computed and differentiated through a Cholesky factor. Source: Rasmussen and Williams, Gaussian
Processes for Machine Learning, MIT Press 2006, algorithm 2.1.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace

import numpy as np
from _setup import program, show

import autojit as aj
from autojit import nn


class Process(nn.Module):
    """A squared-exponential kernel with noise; all parameters as logarithms."""

    def __init__(self) -> None:
        super().__init__()
        self.length = nn.Parameter(aj.zeros((), dtype=aj.float64))
        self.scale = nn.Parameter(aj.zeros((), dtype=aj.float64))
        self.noise = nn.Parameter(aj.full((), -1.0, dtype=aj.float64))

    def kernel(self, a: aj.Tensor, b: aj.Tensor) -> aj.Tensor:
        """Covariances ``f64[m, n]`` of the function's values at ``f64[m]`` and ``f64[n]``."""
        distance = (a[:, None] - b[None, :]) / self.length.exp()
        return (2 * self.scale).exp() * aj.exp(-0.5 * distance**2)

    def factor(self, x: aj.Tensor, y: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        """The Cholesky factor ``L`` of the covariance of the data, and ``(L L^T)^-1 y``."""
        covariance = self.kernel(x, x) + (2 * self.noise).exp() * aj.eye(len(x), dtype=x.dtype)
        L = aj.linalg.cholesky(covariance)
        return L, aj.cholesky_solve(y[:, None], L).squeeze(1)

    def negative_evidence(self, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        L, weights = self.factor(x, y)
        return 0.5 * y @ weights + L.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)

    def predict(self, x: aj.Tensor, y: aj.Tensor, at: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        """Mean and standard deviation of the function at new places."""
        L, weights = self.factor(x, y)
        across = self.kernel(x, at)
        explained = aj.linalg.solve_triangular(L, across, upper=False)
        variance = (2 * self.scale).exp() - (explained**2).sum(0)
        return across.T @ weights, variance.clamp(min=0).sqrt()


@program("Gaussian-process regression")
def main(o: Namespace) -> list[float]:
    count, steps = (20, 60) if o.small else (60, 200)
    rng = np.random.default_rng(0)
    places = np.sort(rng.uniform(0, 6, count))
    truth = lambda x: np.sin(2 * x) + 0.5 * x
    x, y = aj.tensor(places), aj.tensor(truth(places) + 0.1 * rng.normal(size=count))
    process = Process()
    optimizer = aj.optim.Adam(process.parameters(), lr=0.05)

    def step() -> aj.Tensor:
        optimizer.zero_grad()
        loss = process.negative_evidence(x, y)
        loss.backward()
        optimizer.step()
        return loss

    run, predict = (step, process.predict) if o.eager else (aj.jit(step), aj.jit(process.predict))
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        losses.append(run().item())
        if number % 50 == 0:
            print(f"step {number:4d}  negative log evidence {losses[-1]:.3f}")
    grid = np.linspace(0.5, 5.5, 50)
    with aj.no_grad():
        mean, deviation = (v.cpu().numpy() for v in predict(x, y, aj.tensor(grid)))
    show(x=places, y=y.cpu().numpy(), grid=grid, mean=mean, deviation=deviation, truth=truth(grid))
    error = np.abs(mean - truth(grid))
    within = (error < 2 * deviation).mean()
    print(
        f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; noise {process.noise.exp().item():.3f}, true 0.1"
    )
    print(f"mean error {error.mean():.3f}; {within:.0%} of the function is within two standard deviations")
    assert o.steps or losses[-1] < 0.5 * losses[0]
    assert o.steps or error.mean() < 0.15
    return losses


if __name__ == "__main__":
    main()
