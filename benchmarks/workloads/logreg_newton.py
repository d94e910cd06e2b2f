"""A Newton step of logistic regression: the gradient, then ten conjugate gradients on Hessian-vector products."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Function, Namespace, Work, norm

ROWS, COLUMNS, ROUNDS, DAMPING = 20_000, 64, 10, 1e-2


def data() -> tuple[Array, Array, Array]:
    """Weights, rows, labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    truth = rng.normal(size=COLUMNS)
    labels = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)
    return (0.1 * rng.normal(size=COLUMNS)).astype(np.float32), x, labels


def work() -> Work:
    """Two products of the matrix with a vector for the gradient and for each round; 5 MB, which stay in a cache."""
    return Work(flops=(ROUNDS + 1) * 2 * 2 * ROWS * COLUMNS)


def check(outputs: Any) -> dict[str, float]:
    loss, gradient, direction = outputs
    return {"loss": float(loss), "gradient": norm(gradient), "direction": norm(direction)}


def build(T: Namespace) -> Function:
    def step(weights: Any, x: Any, labels: Any) -> tuple[Any, Any, Any]:
        weights = weights.detach().requires_grad_(True)
        loss = T.nn.functional.binary_cross_entropy_with_logits(x @ weights, labels)
        (gradient,) = T.autograd.grad(loss, (weights,), create_graph=True)
        residual = -gradient.detach()
        direction, search, length = T.zeros_like(residual), residual, (residual * residual).sum()
        for _ in range(ROUNDS):
            (curved,) = T.autograd.grad((gradient * search).sum(), (weights,), retain_graph=True)
            curved = curved + DAMPING * search
            pace = length / (search * curved).sum()
            direction, residual = direction + pace * search, residual - pace * curved
            left = (residual * residual).sum()
            search, length = residual + (left / length) * search, left
        return loss.detach(), gradient.detach(), direction

    return Function(step, tuple(map(T.tensor, data())), check)


def build_jax() -> Function:
    import jax
    import jax.numpy as jnp

    def step(weights: Any, x: Any, labels: Any) -> tuple[Any, Any, Any]:
        def loss_of(weights: Any) -> Any:
            logits = x @ weights
            return jnp.mean(jax.nn.softplus(logits) - logits * labels)

        (loss, gradient), derivative = jax.linearize(jax.value_and_grad(loss_of), weights)

        def iteration(_: Any, state: Any) -> Any:
            direction, residual, search, length = state
            curved = derivative(search)[1] + DAMPING * search
            pace = length / (search @ curved)
            direction, residual = direction + pace * search, residual - pace * curved
            left = residual @ residual
            return direction, residual, residual + (left / length) * search, left

        start = (jnp.zeros_like(gradient), -gradient, -gradient, gradient @ gradient)
        return loss, gradient, jax.lax.fori_loop(0, ROUNDS, iteration, start)[0]

    return Function(step, data(), check)
