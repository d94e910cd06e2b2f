"""Hamiltonian Monte Carlo samples the posterior of a logistic regression.

    python examples/hmc.py [--steps N] [--small] [--eager] [--device DEVICE]

The log density is written with ``distributions``. A whole proposal (leapfrog steps, each with a gradient) is one
compiled call. Source: Neal, MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, 2011.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import program, show

import autojit as aj
from autojit.distributions import Bernoulli, Normal

TRUE_WEIGHTS = np.array([1.0, -2.0, 0.5])


def data(count: int, rng: np.random.Generator) -> tuple[aj.Tensor, aj.Tensor]:
    """Inputs ``f64[count, 3]`` and answers 0 or 1 of a logistic model."""
    x = rng.normal(size=(count, 3))
    y = rng.random(count) < 1 / (1 + np.exp(-x @ TRUE_WEIGHTS))
    return aj.tensor(x), aj.tensor(y.astype(np.float64))


@program("Hamiltonian Monte Carlo")
def main(o: Namespace) -> list[float]:
    count, leaps, steps = (100, 6, 100) if o.small else (400, 12, 1000)
    step_size = 1.2 / np.sqrt(count)
    rng = np.random.default_rng(1)
    x, y = data(count, rng)
    zero, five = aj.zeros((), dtype=aj.float64), aj.full((), 5.0, dtype=aj.float64)

    def log_density(w: aj.Tensor) -> aj.Tensor:
        return Bernoulli(logits=x @ w).log_prob(y).sum() + Normal(zero, five).log_prob(w).sum()

    def force(w: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        w = w.detach().requires_grad_()
        energy = log_density(w)
        return energy.detach(), aj.autograd.grad(energy, w)[0]

    def propose(w: aj.Tensor, momentum: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor, aj.Tensor]:
        """Where the dynamics end, and the log densities of the joint state before and after."""
        energy, slope = force(w)
        before = energy - 0.5 * momentum @ momentum
        for _ in range(leaps):
            momentum = momentum + 0.5 * step_size * slope
            w = w + step_size * momentum
            energy, slope = force(w)
            momentum = momentum + 0.5 * step_size * slope
        return w, before, energy - 0.5 * momentum @ momentum

    run = propose if o.eager else aj.jit(propose)
    start = time.perf_counter()
    w, samples, densities, accepted = aj.zeros(3, dtype=aj.float64), [], [], 0
    for _ in range(o.steps or steps):
        proposal, before, after = run(w, aj.tensor(rng.normal(size=3)))
        if np.log(rng.random()) < after.item() - before.item():
            w, accepted = proposal, accepted + 1
        samples.append(w.cpu().numpy().copy())
        densities.append(log_density(w).item())
    chosen = np.array(samples[len(samples) // 4 :])
    mean, deviation = chosen.mean(axis=0), chosen.std(axis=0)
    show(samples=chosen)
    print(f"{len(samples)} proposals in {time.perf_counter() - start:.1f} s, {accepted / len(samples):.0%} accepted")
    for name, m, d, t in zip("abc", mean, deviation, TRUE_WEIGHTS):
        print(f"weight {name}  {m:6.2f} +- {d:.2f}   true {t:5.2f}")
    assert o.steps or accepted > 0.6 * len(samples)
    assert o.steps or (np.abs(mean - TRUE_WEIGHTS) < 4 * deviation).all()
    return densities


if __name__ == "__main__":
    main()
