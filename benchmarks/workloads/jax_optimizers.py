"""Optimisers that torch-like namespaces have and JAX does not: a state, and what gradients make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.workloads.problem import Namespace, Optimizer


def jax_state(jax: Namespace, parameters: Sequence[Any], optimizer: Optimizer) -> Any:
    """Parameters, first moments, second moments, step count."""
    jnp = jax.numpy
    parameters = [jnp.array(p) for p in parameters]
    first = [jnp.zeros_like(p) for p in parameters]
    second = [] if optimizer.kind == "SGD" else [jnp.zeros_like(p) for p in parameters]
    return parameters, first, second, jnp.zeros((), jnp.float32)


def jax_update(jax: Namespace, optimizer: Optimizer) -> Callable[[Any, Any], Any]:
    jnp, lr = jax.numpy, optimizer.lr

    def sgd(state: Any, gradients: Any) -> Any:
        parameters, momenta, second, steps = state
        momenta = [optimizer.momentum * m + g for m, g in zip(momenta, gradients, strict=True)]
        return [p - lr * m for p, m in zip(parameters, momenta, strict=True)], momenta, second, steps

    def adam(state: Any, gradients: Any) -> Any:
        parameters, first, second, steps = state
        steps = steps + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
        correction1, correction2 = 1 - 0.9**steps, jnp.sqrt(1 - 0.999**steps)

        def moved(p: Any, m: Any, v: Any) -> Any:
            rate, scale = (lr / correction1).astype(p.dtype), correction2.astype(p.dtype)
            return p * (1 - lr * optimizer.weight_decay) - rate * m / (jnp.sqrt(v) / scale + 1e-8)

        return [moved(p, m, v) for p, m, v in zip(parameters, first, second, strict=True)], first, second, steps

    return sgd if optimizer.kind == "SGD" else adam


def jax_training(jax: Namespace, loss_of: Callable[..., Any], optimizer: Optimizer) -> Callable[..., Any]:
    """The step (state, batch) -> (state, loss), where ``loss_of`` takes parameters and the batch."""
    update = jax_update(jax, optimizer)

    def step(state: Any, *batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state[0], *batch)
        return update(state, gradients), loss

    return step
