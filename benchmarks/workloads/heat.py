"""Forty explicit steps of the heat equation on a 256 x 256 grid, by slices; gradient in conductivity and start.

A Python loop of equal steps: unrolled, it is hundreds of kernels; as one loop over one body, it stays in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Function, Namespace, Work, leaf, norm

SIDE, STEPS = 256, 40


def data() -> tuple[Array, Array, Array]:
    """Conductivity of the inner cells, temperatures at the start, measured temperatures at the end."""
    rng = np.random.default_rng(0)
    conductivity = rng.uniform(0.05, 0.2, (SIDE - 2, SIDE - 2))
    start, measured = rng.normal(size=(2, SIDE, SIDE))
    return conductivity.astype(np.float32), start.astype(np.float32), measured.astype(np.float32)


def work() -> Work:
    """All of it fits the caches, and there are no matrix products."""
    return Work()


def check(outputs: Any) -> dict[str, float]:
    return {"misfit": float(outputs[0]), "conductivity_bar": norm(outputs[1]), "start_bar": norm(outputs[2])}


def flow(u: Any, conductivity: Any) -> Any:
    """What the inner cells gain in one step."""
    inner = u[1:-1, 1:-1]
    return conductivity * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * inner)


def build(T: Namespace) -> Function:
    pad = T.nn.functional.pad

    def step(conductivity: Any, start: Any, measured: Any) -> Any:
        u = start
        for _ in range(STEPS):
            u = u + pad(flow(u, conductivity), (1, 1, 1, 1))
        misfit = ((u - measured) ** 2).mean()
        return (misfit.detach(), *T.autograd.grad(misfit, (conductivity, start)))

    conductivity, start, measured = data()
    return Function(step, (leaf(T, conductivity), leaf(T, start), T.tensor(measured)), check)


def build_jax() -> Function:
    import jax
    import jax.numpy as jnp

    def misfit(conductivity: Any, start: Any, measured: Any) -> Any:
        def advance(u: Any, _: None) -> Any:
            return u + jnp.pad(flow(u, conductivity), 1), None

        u, _ = jax.lax.scan(advance, start, length=STEPS)
        return jnp.mean((u - measured) ** 2)

    def step(*args: Any) -> Any:
        value, gradients = jax.value_and_grad(misfit, (0, 1))(*args)
        return (value, *gradients)

    return Function(step, data(), check)
