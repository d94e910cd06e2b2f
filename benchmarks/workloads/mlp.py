"""Multi-layer perceptrons with ReLU and cross-entropy.

``mlp_digits``: 64-64-10, batch 64, SGD with momentum; bound by overhead.
``mlp_mnist``: 784-512-256-10, batch 128, Adam; bound by matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import cross_entropy, linear
from benchmarks.workloads.problem import (
    Array,
    Namespace,
    Optimizer,
    Training,
    Work,
    linear_parameters,
    set_parameters,
)


@dataclass(frozen=True)
class Net:
    """Layer widths from input to output, and how it is trained."""

    widths: tuple[int, ...]
    batch: int
    optimizer: Optimizer


DIGITS = Net((64, 64, 10), 64, Optimizer("SGD", lr=1e-3, momentum=0.9))
MNIST = Net((784, 512, 256, 10), 128, Optimizer("Adam", lr=1e-4))


def data(net: Net) -> tuple[Array, Array, list[Array]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(net.batch, net.widths[0])).astype(np.float32)
    y = rng.integers(0, net.widths[-1], net.batch).astype(np.int64)
    parameters: list[Array] = []
    for fan_in, fan_out in pairwise(net.widths):
        parameters += linear_parameters(rng, fan_in, fan_out)
    return x, y, parameters


def work(net: Net) -> Work:
    """Forward and weight gradient per layer; the input's gradient for all layers but the first."""
    products = [m * n for m, n in pairwise(net.widths)]
    return Work(flops=2 * net.batch * (3 * sum(products) - products[0]))


def build(T: Namespace, net: Net) -> Training:
    x, y, parameters = data(net)
    layers: list[Any] = []
    for fan_in, fan_out in pairwise(net.widths):
        layers += [T.nn.Linear(fan_in, fan_out), T.nn.ReLU()]
    model = set_parameters(T, T.nn.Sequential(*layers[:-1]), parameters)

    def loss(x: Any, y: Any) -> Any:
        return T.nn.functional.cross_entropy(model(x), y)

    return Training(loss, list(model.parameters()), net.optimizer, (T.tensor(x), T.tensor(y)))


def build_jax(net: Net) -> Training:
    import jax.numpy as jnp

    x, y, parameters = data(net)

    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        h = linear(x, *parameters[:2])
        for layer in range(2, len(parameters), 2):
            h = linear(jnp.maximum(h, 0), *parameters[layer : layer + 2])
        return cross_entropy(h, y)

    return Training(loss, parameters, net.optimizer, (x, y.astype(np.int32)))
