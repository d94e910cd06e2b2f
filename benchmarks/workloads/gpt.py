"""A character-level GPT: exact GELU, layer norm, causal attention, cross-entropy, AdamW; no dropout, untied head."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads.jax_parts import cross_entropy, layer_norm
from benchmarks.workloads.jax_parts import linear as full_linear
from benchmarks.workloads.problem import Array, Namespace, Optimizer, Training, Work, set_parameters

OPTIMIZER = Optimizer("AdamW", lr=1e-4, weight_decay=0.1)
PER_BLOCK = 12  # arrays of one transformer block


@dataclass(frozen=True)
class Size:
    """Layers, heads, width, context length, batch size, vocabulary; whether products are taken in bfloat16."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    batch: int = 16
    vocabulary: int = 65
    autocast: bool = False


def data(size: Size) -> tuple[Array, Array, list[Array]]:
    rng = np.random.default_rng(0)
    shape, width = (size.batch, size.context), size.width
    x = rng.integers(0, size.vocabulary, shape).astype(np.int64)
    y = rng.integers(0, size.vocabulary, shape).astype(np.int64)

    def normal(*shape: int, std: float = 0.02) -> Array:
        return (rng.normal(size=shape) * std).astype(np.float32)

    def affine(width: int) -> list[Array]:
        return [np.ones(width, np.float32), np.zeros(width, np.float32)]

    def dense(fan_out: int, fan_in: int, std: float = 0.02) -> list[Array]:
        return [normal(fan_out, fan_in, std=std), np.zeros(fan_out, np.float32)]

    residual_std = 0.02 / float(np.sqrt(2 * size.layers))
    parameters = [normal(size.vocabulary, width), normal(size.context, width)]
    for _ in range(size.layers):
        parameters += affine(width) + dense(3 * width, width) + dense(width, width, residual_std)
        parameters += affine(width) + dense(4 * width, width) + dense(width, 4 * width, residual_std)
    return x, y, [*parameters, *affine(width), normal(size.vocabulary, width)]


def work(size: Size) -> Work:
    """Matrix products of one step, forward and twice that backward, without use of the causal mask."""
    tokens = size.batch * size.context
    dense = size.layers * 2 * tokens * size.width**2 * 12 + 2 * tokens * size.width * size.vocabulary
    attention = size.layers * 2 * 2 * tokens * size.context * size.width
    return Work(flops=3 * (dense + attention))


def model(T: Namespace, size: Size) -> Any:
    """The module, its parameters in the order of ``data``."""
    nn, F, width = T.nn, T.nn.functional, size.width

    class Block(nn.Module):  # type: ignore[misc,name-defined]  # the base class comes with the namespace
        """Attention and feed-forward, each behind a layer norm and added to the stream."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.proj = nn.Linear(width, width)
            self.norm2 = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def heads(self, x: Any) -> Any:
            return x.view(size.batch, size.context, size.heads, width // size.heads).transpose(1, 2)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
            mixed = F.scaled_dot_product_attention(self.heads(q), self.heads(k), self.heads(v), is_causal=True)
            x = x + self.proj(mixed.transpose(1, 2).reshape(size.batch, size.context, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):  # type: ignore[misc,name-defined]  # the base class comes with the namespace
        """Token and position embeddings, the blocks, a final norm and the head."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocabulary, width)
            self.positions = nn.Embedding(size.context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(size.layers)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, size.vocabulary, bias=False)

        def forward(self, tokens: Any, positions: Any) -> Any:
            h = self.tokens(tokens) + self.positions(positions)
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h))

    return Gpt()


def build(T: Namespace, size: Size) -> Training:
    x, y, parameters = data(size)
    gpt = set_parameters(T, model(T, size), parameters)

    def loss(x: Any, y: Any, positions: Any) -> Any:
        with T.autocast("cpu", T.bfloat16) if size.autocast else nullcontext():
            logits = gpt(x, positions).reshape(size.batch * size.context, size.vocabulary)
        return T.nn.functional.cross_entropy(logits.float(), y.reshape(size.batch * size.context))

    args = (T.tensor(x), T.tensor(y), T.tensor(np.arange(size.context, dtype=np.int64)))
    return Training(loss, list(gpt.parameters()), OPTIMIZER, args)


def build_jax(size: Size) -> Training:
    import jax
    import jax.numpy as jnp

    x, y, parameters = data(size)
    mask = np.tril(np.ones((size.context, size.context), bool))
    head_width = size.width // size.heads

    product_type = jnp.bfloat16 if size.autocast else jnp.float32

    def linear(x: Any, *parameters: Any) -> Any:
        return full_linear(*(array.astype(product_type) for array in (x, *parameters)))

    def heads(x: Any) -> Any:
        return x.reshape(size.batch, size.context, size.heads, head_width).transpose(0, 2, 1, 3)

    def block(h: Any, w: list[Any]) -> Any:
        q, k, v = (heads(part) for part in jnp.split(linear(layer_norm(h, *w[0:2]), *w[2:4]), 3, -1))
        scores = jnp.where(mask, q @ k.transpose(0, 1, 3, 2) * head_width**-0.5, -jnp.inf)
        mixed = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3).reshape(size.batch, size.context, size.width)
        h = h + linear(mixed, *w[4:6])
        up = jax.nn.gelu(linear(layer_norm(h, *w[6:8]), *w[8:10]), approximate=False)
        return h + linear(up, *w[10:12])

    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        h = parameters[0][x] + parameters[1]
        for layer in range(size.layers):
            start = 2 + PER_BLOCK * layer
            h = block(h, parameters[start : start + PER_BLOCK])
        logits = layer_norm(h, *parameters[-3:-1]).astype(product_type) @ parameters[-1].astype(product_type).T
        return cross_entropy(logits.astype(jnp.float32), y)

    return Training(loss, parameters, OPTIMIZER, (x.astype(np.int32), y.astype(np.int32)))
