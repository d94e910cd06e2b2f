"""A sequence classifier of LSTM cells written out: 32 steps, batch 32, 64 inputs, 128 hidden, Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import cross_entropy, linear
from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, leaf, linear_parameters

LENGTH, BATCH, INPUTS, HIDDEN, CLASSES = 32, 32, 64, 128, 10
OPTIMIZER = Optimizer("Adam", lr=1e-3)


def data() -> tuple[Array, Array, list[Array]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(LENGTH, BATCH, INPUTS)).astype(np.float32)
    y = rng.integers(0, CLASSES, BATCH).astype(np.int64)
    gates = linear_parameters(rng, INPUTS + HIDDEN, 4 * HIDDEN)
    return x, y, gates + linear_parameters(rng, HIDDEN, CLASSES)


def work() -> Work:
    """Forward, weight gradient and input gradient of the gates' product at every step."""
    return Work(flops=3 * 2 * LENGTH * BATCH * (INPUTS + HIDDEN) * 4 * HIDDEN)


def build(T: Namespace) -> Training:
    x, y, arrays = data()
    F = T.nn.functional
    parameters = [leaf(T, array) for array in arrays]

    def loss(x: Any, y: Any) -> Any:
        h = c = T.zeros((BATCH, HIDDEN))
        for t in range(LENGTH):
            gates = F.linear(T.cat([x[t], h], dim=1), parameters[0], parameters[1])
            i, f, g, o = gates.split(HIDDEN, dim=1)
            c = T.sigmoid(f) * c + T.sigmoid(i) * T.tanh(g)
            h = T.sigmoid(o) * T.tanh(c)
        return F.cross_entropy(F.linear(h, parameters[2], parameters[3]), y)

    return Training(loss, parameters, OPTIMIZER, (T.tensor(x), T.tensor(y)))


def build_jax() -> Training:
    import jax
    import jax.numpy as jnp

    x, y, arrays = data()

    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        def cell(state: Any, x_t: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(linear(jnp.concatenate([x_t, h], 1), *parameters[:2]), 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zero = jnp.zeros((BATCH, HIDDEN))
        (h, _), _ = jax.lax.scan(cell, (zero, zero), x)
        return cross_entropy(linear(h, *parameters[2:]), y)

    return Training(loss, arrays, OPTIMIZER, (x, y.astype(np.int32)))
