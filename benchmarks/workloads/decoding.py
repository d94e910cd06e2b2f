"""A GPT writes 64 tokens greedily, four texts at once: a compiled call a token, its position an int that counts.

Keys and values of earlier tokens are in caches that every call writes into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads import gpt
from benchmarks.workloads.jax_parts import layer_norm, linear
from benchmarks.workloads.problem import Array, Namespace, Program, Work, norm, set_parameters

SIZE = gpt.Size(layers=2, batch=4)
HEAD = SIZE.width // SIZE.heads
CACHE = (SIZE.batch, SIZE.heads, SIZE.context, HEAD)


def data() -> tuple[Array, list[Array]]:
    """The first token of every text, and the model; its weights are large enough that tokens differ."""
    x, _, parameters = gpt.data(SIZE)
    return x[:, 0], [5 * array if array.ndim == 2 else array for array in parameters]


def work() -> Work:
    """Forward products of all tokens; attention over the whole cache."""
    tokens, width = SIZE.batch * SIZE.context, SIZE.width
    return Work(flops=2 * tokens * width * (SIZE.layers * (12 * width + 2 * SIZE.context) + SIZE.vocabulary))


def check(logits: Any) -> dict[str, float]:
    return {"logits": norm(logits)}


def build(T: Namespace) -> Program:
    F, (first, arrays) = T.nn.functional, data()
    net = set_parameters(T, gpt.model(T, SIZE), arrays)

    def make(compile: Callable[..., Any]) -> Callable[[], Any]:
        caches = [(T.zeros(CACHE), T.zeros(CACHE)) for _ in range(SIZE.layers)]

        def attention(q: Any, k: Any, v: Any, cache: tuple[Any, Any], position: int) -> Any:
            keys, values = cache
            keys[:, :, position] = k.reshape(SIZE.batch, SIZE.heads, HEAD)
            values[:, :, position] = v.reshape(SIZE.batch, SIZE.heads, HEAD)
            scores = q.reshape(SIZE.batch, SIZE.heads, 1, HEAD) @ keys.transpose(-2, -1) * HEAD**-0.5
            later = T.arange(SIZE.context) > position
            weights = scores.masked_fill(later, float("-inf")).softmax(-1)
            return (weights @ values).reshape(SIZE.batch, SIZE.width)

        @compile
        def decode(token: Any, position: int) -> tuple[Any, Any]:
            h = net.tokens(token) + net.positions.weight[position]
            for block, cache in zip(net.blocks, caches, strict=True):
                q, k, v = block.qkv(block.norm1(h)).split(SIZE.width, -1)
                h = h + block.proj(attention(q, k, v, cache, position))
                h = h + block.down(F.gelu(block.up(block.norm2(h))))
            logits = net.head(net.norm(h))
            return logits.argmax(-1), logits

        start = T.tensor(first)

        def call() -> Any:
            token = start
            with T.no_grad():
                for position in range(SIZE.context):
                    token, logits = decode(token, position)
            return logits

        return call

    return Program(make, check)


def build_jax() -> Program:
    import jax
    import jax.numpy as jnp

    first, arrays = data()

    def attention(q: Any, k: Any, v: Any, cache: Any, position: Any) -> Any:
        keys, values = (
            part.at[:, :, position].set(new.reshape(SIZE.batch, SIZE.heads, HEAD))
            for part, new in zip(cache, (k, v), strict=True)
        )
        scores = q.reshape(SIZE.batch, SIZE.heads, 1, HEAD) @ keys.swapaxes(-2, -1) * HEAD**-0.5
        weights = jax.nn.softmax(jnp.where(jnp.arange(SIZE.context) > position, -jnp.inf, scores), -1)
        return (weights @ values).reshape(SIZE.batch, SIZE.width), (keys, values)

    def decode(caches: Any, parameters: list[Any], token: Any, position: Any) -> Any:
        h, written = parameters[0][token] + parameters[1][position], []
        for layer, cache in enumerate(caches):
            w = parameters[2 + gpt.PER_BLOCK * layer :]
            q, k, v = jnp.split(linear(layer_norm(h, *w[0:2]), *w[2:4]), 3, -1)
            mixed, cache = attention(q, k, v, cache, position)
            h = h + linear(mixed, *w[4:6])
            up = jax.nn.gelu(linear(layer_norm(h, *w[6:8]), *w[8:10]), approximate=False)
            h = h + linear(up, *w[10:12])
            written.append(cache)
        logits = layer_norm(h, *parameters[-3:-1]) @ parameters[-1].T
        return written, logits.argmax(-1), logits

    def make(compile: Callable[..., Any]) -> Callable[[], Any]:
        run = compile(decode, donate_argnums=(0,))
        parameters = [jnp.array(array) for array in arrays]
        caches = [(jnp.zeros(CACHE, jnp.float32), jnp.zeros(CACHE, jnp.float32)) for _ in range(SIZE.layers)]
        start = jnp.array(first.astype(np.int32))

        def call() -> Any:
            nonlocal caches
            token = start
            for position in range(SIZE.context):
                caches, token, logits = run(caches, parameters, token, position)
            return logits

        return call

    return Program(make, check)
