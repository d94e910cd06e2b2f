"""Mean of 20 rows of a 100,000 x 64 table, a linear classifier, batch 512, SGD: a sparse update of a large table."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import cross_entropy, linear
from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, leaf, linear_parameters

ROWS, WIDTH, BATCH, BAG, CLASSES = 100_000, 64, 512, 20, 10
OPTIMIZER = Optimizer("SGD", lr=0.1)


def data() -> tuple[Array, Array, list[Array]]:
    rng = np.random.default_rng(0)
    bags = rng.integers(0, ROWS, (BATCH, BAG)).astype(np.int64)
    y = rng.integers(0, CLASSES, BATCH).astype(np.int64)
    table = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    return bags, y, [table, *linear_parameters(rng, WIDTH, CLASSES)]


def work() -> Work:
    """The looked-up rows read, and read and written again in the update."""
    return Work(flops=3 * 2 * BATCH * WIDTH * CLASSES, bytes=3 * 4 * BATCH * BAG * WIDTH)


def build(T: Namespace) -> Training:
    bags, y, arrays = data()
    F = T.nn.functional
    parameters = [leaf(T, array) for array in arrays]

    def loss(bags: Any, y: Any) -> Any:
        mean = F.embedding(bags, parameters[0]).mean(1)
        return F.cross_entropy(F.linear(mean, parameters[1], parameters[2]), y)

    return Training(loss, parameters, OPTIMIZER, (T.tensor(bags), T.tensor(y)))


def build_jax() -> Training:
    bags, y, arrays = data()

    def loss(parameters: list[Any], bags: Any, y: Any) -> Any:
        return cross_entropy(linear(parameters[0][bags].mean(1), *parameters[1:]), y)

    return Training(loss, arrays, OPTIMIZER, (bags.astype(np.int32), y.astype(np.int32)))
