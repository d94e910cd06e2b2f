"""Value and gradient of the 10-dimensional Rosenbrock function in float64: nothing but the latency of a call."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Function, Namespace, Work, leaf, norm

DIMENSIONS = 10


def data() -> Array:
    return np.random.default_rng(0).normal(size=DIMENSIONS)


def work() -> Work:
    """Some 200 flops, 50 ns: no limit worth stating."""
    return Work(dtype="float64")


def check(outputs: Any) -> dict[str, float]:
    return {"value": float(outputs[0]), "gradient": norm(outputs[1])}


def rosenbrock(x: Any) -> Any:
    head, tail = x[:-1], x[1:]
    return (100.0 * (tail - head * head) ** 2 + (1.0 - head) ** 2).sum()


def build(T: Namespace) -> Function:
    def step(x: Any) -> Any:
        value = rosenbrock(x)
        (gradient,) = T.autograd.grad(value, (x,))
        return value.detach(), gradient

    return Function(step, (leaf(T, data()),), check)


def build_jax() -> Function:
    import jax

    return Function(jax.value_and_grad(rosenbrock), (data(),), check, x64=True)
