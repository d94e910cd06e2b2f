"""Cross-entropy of an affine layer norm of 8192 x 1024, with all gradients: several reductions over each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import cross_entropy, layer_norm
from benchmarks.workloads.problem import Array, Function, Namespace, Work, leaf, norm

ROWS, WIDTH = 8192, 1024


def data() -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(ROWS, WIDTH)).astype(np.float32),
        rng.uniform(0.5, 1.5, WIDTH).astype(np.float32),
        rng.normal(size=WIDTH).astype(np.float32),
        rng.integers(0, WIDTH, ROWS).astype(np.int64),
    )


def work() -> Work:
    """The input read once, its gradient written once: a row of 4 KiB stays in the first-level cache between."""
    return Work(bytes=2 * 4 * ROWS * WIDTH)


def check(outputs: Any) -> dict[str, float]:
    loss, *gradients = outputs
    norms = {name: norm(g) for name, g in zip(("x_bar", "weight_bar", "bias_bar"), gradients, strict=True)}
    return {"loss": float(loss), **norms}


def build(T: Namespace) -> Function:
    F = T.nn.functional

    def step(x: Any, weight: Any, bias: Any, labels: Any) -> Any:
        loss = F.cross_entropy(F.layer_norm(x, (WIDTH,), weight, bias), labels)
        return (loss.detach(), *T.autograd.grad(loss, (x, weight, bias)))

    x, weight, bias, labels = data()
    return Function(step, (leaf(T, x), leaf(T, weight), leaf(T, bias), T.tensor(labels)), check)


def build_jax() -> Function:
    import jax

    def loss(x: Any, weight: Any, bias: Any, labels: Any) -> Any:
        return cross_entropy(layer_norm(x, weight, bias), labels)

    def step(x: Any, weight: Any, bias: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss, (0, 1, 2))(x, weight, bias, labels)
        return (value, *gradients)

    x, weight, bias, labels = data()
    return Function(step, (x, weight, bias, labels.astype(np.int32)), check)
