"""Building blocks that torch-like namespaces have and JAX does not."""

from __future__ import annotations

from typing import Any


def linear(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight.T + bias


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    import jax

    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def cross_entropy(logits: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    log_probabilities = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[..., None], axis=-1))
