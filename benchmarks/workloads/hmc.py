"""Hamiltonian Monte Carlo: one trajectory of 20 leapfrog steps on a logistic regression's posterior, 21 gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Function, Namespace, Work, on_host

ROWS, COLUMNS, LEAPS, PACE = 1000, 20, 20, 0.01


def data() -> tuple[Array, Array, Array, Array]:
    """Position, momentum, the regression's rows and labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    truth = rng.normal(size=COLUMNS)
    labels = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)
    position = (0.1 * rng.normal(size=COLUMNS)).astype(np.float32)
    return position, rng.normal(size=COLUMNS).astype(np.float32), x, labels


def work() -> Work:
    """Two products of the matrix with a vector in every gradient."""
    return Work(flops=(LEAPS + 1) * 2 * 2 * ROWS * COLUMNS)


def check(outputs: Any) -> dict[str, float]:
    position, momentum, energy = map(on_host, outputs)
    return {"position": float(np.sum(position**2)), "momentum": float(np.sum(momentum**2)), "energy": float(energy)}


def build(T: Namespace) -> Function:
    def gradient(position: Any, x: Any, labels: Any) -> tuple[Any, Any]:
        position = position.detach().requires_grad_(True)
        logits = x @ position
        potential = (T.nn.functional.softplus(logits) - logits * labels).sum() + 0.5 * (position * position).sum()
        (slope,) = T.autograd.grad(potential, (position,))
        return potential.detach(), slope

    def step(position: Any, momentum: Any, x: Any, labels: Any) -> tuple[Any, Any, Any]:
        potential, slope = gradient(position, x, labels)
        momentum = momentum - 0.5 * PACE * slope
        for leap in range(LEAPS):
            position = position + PACE * momentum
            potential, slope = gradient(position, x, labels)
            momentum = momentum - (PACE if leap < LEAPS - 1 else 0.5 * PACE) * slope
        return position, momentum, potential + 0.5 * (momentum * momentum).sum()

    return Function(step, tuple(map(T.tensor, data())), check)


def build_jax() -> Function:
    import jax
    import jax.numpy as jnp

    def step(position: Any, momentum: Any, x: Any, labels: Any) -> tuple[Any, Any, Any]:
        def potential_of(position: Any) -> Any:
            logits = x @ position
            return (jax.nn.softplus(logits) - logits * labels).sum() + 0.5 * (position @ position)

        gradient = jax.value_and_grad(potential_of)

        def leap(number: Any, state: Any) -> Any:
            position, momentum, _ = state
            position = position + PACE * momentum
            potential, slope = gradient(position)
            return position, momentum - jnp.where(number < LEAPS - 1, PACE, 0.5 * PACE) * slope, potential

        momentum = momentum - 0.5 * PACE * gradient(position)[1]
        position, momentum, potential = jax.lax.fori_loop(0, LEAPS, leap, (position, momentum, jnp.float32(0)))
        return position, momentum, potential + 0.5 * (momentum @ momentum)

    return Function(step, data(), check)
