"""Twenty leapfrog steps of 20,000 particles in an anharmonic well, float64: a gradient inside a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Function, Namespace, Work, leaf, on_host

PARTICLES, STEPS, TIME_STEP = 20_000, 20, 0.05


def data() -> tuple[Array, Array]:
    """Positions and momenta."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(PARTICLES, 3)), rng.normal(size=(PARTICLES, 3))


def work() -> Work:
    """All of it fits the caches, and there are no matrix products."""
    return Work(dtype="float64")


def check(outputs: Any) -> dict[str, float]:
    q, p = (on_host(values) for values in outputs)
    return {
        "q_square": float((q * q).mean()),
        "energy": float((0.5 * (p * p).sum(1)).mean() + potential(np, q) / PARTICLES),
    }


def potential(m: Any, q: Any) -> Any:
    """Total potential energy; ``m`` supplies ``exp``."""
    square = (q * q).sum(1)
    return (0.5 * square + 0.1 * square * square + m.exp(-square)).sum()


def build(T: Namespace) -> Function:
    def force(q: Any) -> Any:
        q = q.detach().requires_grad_(True)
        (gradient,) = T.autograd.grad(potential(T, q), (q,))
        return -gradient

    def step(q: Any, p: Any) -> Any:
        p = p + 0.5 * TIME_STEP * force(q)
        for _ in range(STEPS):
            q = q + TIME_STEP * p
            p = p + TIME_STEP * force(q)
        return q.detach(), (p - 0.5 * TIME_STEP * force(q)).detach()

    q, p = data()
    return Function(step, (leaf(T, q), T.tensor(p)), check)


def build_jax() -> Function:
    import jax
    import jax.numpy as jnp

    def force(q: Any) -> Any:
        return -jax.grad(lambda q: potential(jnp, q))(q)

    def step(q: Any, p: Any) -> Any:
        def advance(_: int, state: Any) -> Any:
            q, p = state
            q = q + TIME_STEP * p
            return q, p + TIME_STEP * force(q)

        q, p = jax.lax.fori_loop(0, STEPS, advance, (q, p + 0.5 * TIME_STEP * force(q)))
        return q, p - 0.5 * TIME_STEP * force(q)

    return Function(step, data(), check, x64=True)
