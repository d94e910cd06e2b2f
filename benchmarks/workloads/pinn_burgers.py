"""A physics-informed network for Burgers' equation ``u_t + u u_x = nu u_xx``: third-order derivatives.

A tanh network 2-20x8-1 at 10,000 collocation points, residual by nested ``grad(create_graph=True)``, 100 initial
points, mean squares, Adam. Source: Raissi, Perdikaris and Karniadakis, J. Comput. Phys. 378, 2019, appendix A.1.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import linear
from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, leaf, linear_parameters

POINTS, INITIAL_POINTS, WIDTH, DEPTH = 10_000, 100, 20, 8
VISCOSITY = 0.01 / np.pi
WEIGHT_GAIN = 1.6  # makes the second derivative of the untrained network large enough to compare
OPTIMIZER = Optimizer("Adam", lr=1e-4)


def data(dtype: str) -> tuple[tuple[Array, ...], list[Array]]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (POINTS, 1)).astype(dtype)
    t = rng.uniform(0, 1, (POINTS, 1)).astype(dtype)
    x_initial = rng.uniform(-1, 1, (INITIAL_POINTS, 1)).astype(dtype)
    u_initial = -np.sin(np.pi * x_initial).astype(dtype)
    parameters: list[Array] = []
    for fan_in, fan_out in pairwise([2] + [WIDTH] * DEPTH + [1]):
        weight, bias = linear_parameters(rng, fan_in, fan_out, dtype)
        parameters += [weight * np.asarray(WEIGHT_GAIN, dtype), bias]
    return (x, t, x_initial, np.zeros_like(x_initial), u_initial), parameters


def work(dtype: str) -> Work:
    """Four streams (u, u_x, u_t, u_xx) forward, twice that in reverse."""
    network = 2 * POINTS * (2 * WIDTH + (DEPTH - 1) * WIDTH * WIDTH + WIDTH)
    return Work(flops=4 * 3 * network, dtype=dtype)


def build(T: Namespace, dtype: str) -> Training:
    arrays, initial = data(dtype)
    F, grad = T.nn.functional, T.autograd.grad
    parameters = [leaf(T, array) for array in initial]

    def net(x: Any, t: Any) -> Any:
        h = T.cat([x, t], dim=1)
        for layer in range(0, len(parameters) - 2, 2):
            h = T.tanh(F.linear(h, parameters[layer], parameters[layer + 1]))
        return F.linear(h, parameters[-2], parameters[-1])

    def loss(x: Any, t: Any, x_initial: Any, t_initial: Any, u_initial: Any) -> Any:
        u = net(x, t)
        u_x, u_t = grad(u.sum(), (x, t), create_graph=True)
        (u_xx,) = grad(u_x.sum(), (x,), create_graph=True)
        residual = u_t + u * u_x - VISCOSITY * u_xx
        return (residual * residual).mean() + ((net(x_initial, t_initial) - u_initial) ** 2).mean()

    x, t, *rest = arrays
    return Training(loss, parameters, OPTIMIZER, (leaf(T, x), leaf(T, t), *map(T.tensor, rest)))


def build_jax(dtype: str) -> Training:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", dtype == "float64")
    arrays, initial = data(dtype)

    def net(parameters: list[Any], x: Any, t: Any) -> Any:
        h = jnp.concatenate([x, t], 1)
        for layer in range(0, len(parameters) - 2, 2):
            h = jnp.tanh(linear(h, *parameters[layer : layer + 2]))
        return linear(h, *parameters[-2:])

    def loss(parameters: list[Any], x: Any, t: Any, x_initial: Any, t_initial: Any, u_initial: Any) -> Any:
        one = jnp.ones_like(x)

        def along_x(x: Any) -> Any:
            return jax.jvp(lambda x: net(parameters, x, t), (x,), (one,))

        (u, u_x), (_, u_xx) = jax.jvp(along_x, (x,), (one,))
        _, u_t = jax.jvp(lambda t: net(parameters, x, t), (t,), (one,))
        residual = u_t + u * u_x - VISCOSITY * u_xx
        return jnp.mean(residual * residual) + jnp.mean((net(parameters, x_initial, t_initial) - u_initial) ** 2)

    return Training(loss, initial, OPTIMIZER, arrays)
