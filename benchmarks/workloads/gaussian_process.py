"""A Gaussian process: marginal likelihood of 256 points by Cholesky, its gradient, Adam on six hyper-parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, leaf

POINTS, COLUMNS = 256, 4
OPTIMIZER = Optimizer("Adam", lr=1e-2)


def data() -> tuple[Array, Array, list[Array]]:
    """Places, values there, and logarithms: of a length in each direction, of the amplitude, of the noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (POINTS, COLUMNS)).astype(np.float32)
    y = (np.sin(x.sum(1)) + 0.1 * rng.normal(size=POINTS)).astype(np.float32)
    return x, y, [np.zeros(COLUMNS, np.float32), np.zeros((), np.float32), np.full((), -1, np.float32)]


def work() -> Work:
    """The factor (a third of n cubed) and the inverse of the matrix that its gradient needs (two thirds)."""
    return Work(flops=POINTS**3)


def build(T: Namespace) -> Training:
    x, y, arrays = data()
    parameters = [leaf(T, array) for array in arrays]
    lengths, amplitude, noise = parameters

    def loss(x: Any, y: Any) -> Any:
        scaled = x * T.exp(-lengths)
        distances = (scaled[:, None, :] - scaled[None, :, :]).square().sum(-1)
        covariance = T.exp(2 * amplitude - 0.5 * distances) + T.exp(2 * noise) * T.eye(POINTS)
        factor = T.linalg.cholesky(covariance)
        whitened = T.linalg.solve_triangular(factor, y[:, None], upper=False)
        return (0.5 * whitened.square().sum() + factor.diagonal().log().sum()) / POINTS

    return Training(loss, parameters, OPTIMIZER, (T.tensor(x), T.tensor(y)))


def build_jax() -> Training:
    import jax
    import jax.numpy as jnp

    x, y, parameters = data()

    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        lengths, amplitude, noise = parameters
        scaled = x * jnp.exp(-lengths)
        distances = jnp.square(scaled[:, None, :] - scaled[None, :, :]).sum(-1)
        covariance = jnp.exp(2 * amplitude - 0.5 * distances) + jnp.exp(2 * noise) * jnp.eye(POINTS)
        factor = jnp.linalg.cholesky(covariance)
        whitened = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        return (0.5 * jnp.square(whitened).sum() + jnp.log(jnp.diagonal(factor)).sum()) / POINTS

    return Training(loss, parameters, OPTIMIZER, (x, y))
