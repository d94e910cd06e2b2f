"""Shooting: find the push that brings a ring of coupled pendulums to rest in a wanted shape.

    python examples/leapfrog.py [--steps N] [--small] [--eager] [--device DEVICE]

Inside the time loop, the leapfrog integrator computes its forces in reverse mode. The outer gradient goes through the
loop and through those forces. Forces, loop, loss and outer gradient are one compiled call.
Source of the integrator: Hairer, Lubich and Wanner, Geometric Numerical Integration, section I.1.4.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import program

import autojit as aj

TIME_STEP = 0.05  # seconds
COUPLING = 2.0


def potential(q: aj.Tensor) -> aj.Tensor:
    """Gravity and springs between neighbours on the ring, for angles ``q`` in radians."""
    return (1 - aj.cos(q)).sum() + 0.5 * COUPLING * ((aj.roll(q, 1) - q) ** 2).sum()


def energy(q: aj.Tensor, p: aj.Tensor) -> aj.Tensor:
    return 0.5 * (p * p).sum() + potential(q)


def force(q: aj.Tensor) -> aj.Tensor:
    """Minus the slope of the potential; it stays differentiable."""
    if not q.requires_grad:
        q = q.detach().requires_grad_()
    (slope,) = aj.autograd.grad(potential(q), (q,), create_graph=True)
    return -slope


def fly(q: aj.Tensor, p: aj.Tensor, steps: int) -> tuple[aj.Tensor, aj.Tensor]:
    """Angles and momenta after ``steps`` time steps."""
    p = p + 0.5 * TIME_STEP * force(q)
    for _ in range(steps - 1):
        q = q + TIME_STEP * p
        p = p + TIME_STEP * force(q)
    q = q + TIME_STEP * p
    return q, p + 0.5 * TIME_STEP * force(q)


@program("a Hamiltonian system steered through its integrator")
def main(o: Namespace) -> list[float]:
    count, steps, rounds = (4, 8, 25) if o.small else (32, 40, 200)
    q0 = aj.zeros(count, dtype=aj.float64)
    target = aj.tensor(0.5 * np.sin(2 * np.pi * np.arange(count) / count))
    push = aj.zeros(count, dtype=aj.float64, requires_grad=True)
    optimizer = aj.optim.SGD([push], lr=1.0, momentum=0.5)

    def step() -> tuple[aj.Tensor, aj.Tensor]:
        optimizer.zero_grad()
        q, p = fly(q0, push, steps)
        miss = ((q - target) ** 2).sum()
        miss.backward()
        optimizer.step()
        return miss.detach(), energy(q, p).detach()

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    misses: list[float] = []
    for number in range(o.steps or rounds):
        started_with = energy(q0, push.detach()).item()
        miss, ended_with = run()
        misses.append(miss.item())
        drift = abs(ended_with.item() - started_with) / max(started_with, 1e-12)
        if number % 25 == 0:
            print(f"round {number:3d}  squared miss {misses[-1]:.2e}  energy drift of the flight {drift:.1e}")
    elapsed_s = time.perf_counter() - start
    print(f"{len(misses)} flights of {steps} steps in {elapsed_s:.2f} s; final miss {misses[-1] ** 0.5:.1e} rad")
    assert o.steps or misses[-1] < 0.05 * misses[0]
    assert o.steps or drift < 1e-2
    return misses


if __name__ == "__main__":
    main()
