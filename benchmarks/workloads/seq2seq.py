"""Translation with attention: a GRU reads, an unrolled GRU cell writes; both lengths differ from batch to batch.

A call trains on six batches, each of other lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workloads.jax_optimizers import jax_state, jax_training
from benchmarks.workloads.jax_parts import cross_entropy, linear
from benchmarks.workloads.problem import Array, Namespace, Optimizer, Program, Work, loss_check, set_parameters

BATCH, WIDTH, WORDS = 16, 64, 50
LENGTHS = ((9, 7), (17, 10), (12, 5), (21, 7), (15, 10), (24, 5))  # of source and target
OPTIMIZER = Optimizer("Adam", lr=1e-3)


def data() -> tuple[list[tuple[Array, Array]], list[Array]]:
    """Pairs of sentences, time first; embedding, weights and biases of the reader, of the writer, of the head."""
    rng = np.random.default_rng(0)
    pairs = [tuple(rng.integers(0, WORDS, (length, BATCH)) for length in both) for both in LENGTHS]

    def uniform(*shape: int) -> Array:
        return rng.uniform(-(WIDTH**-0.5), WIDTH**-0.5, shape).astype(np.float32)

    parameters = [uniform(WORDS, WIDTH)]
    for width in (WIDTH, 2 * WIDTH):
        parameters += [uniform(3 * WIDTH, width), uniform(3 * WIDTH, WIDTH), uniform(3 * WIDTH), uniform(3 * WIDTH)]
    return [(source, target) for source, target in pairs], [*parameters, uniform(WORDS, WIDTH), uniform(WORDS)]


def work() -> Work:
    """Products of the gates, of attention and of the head, thrice for the gradients."""
    read = sum(source for source, _ in LENGTHS) * 3 * 2 * WIDTH * WIDTH
    write = sum(
        (target - 1) * (3 * 3 * WIDTH * WIDTH + 2 * source * WIDTH + WIDTH * WORDS) for source, target in LENGTHS
    )
    return Work(flops=3 * 2 * BATCH * (read + write))


def build(T: Namespace) -> Program:
    nn, (pairs, arrays) = T.nn, data()
    embedding, reader, cell = nn.Embedding(WORDS, WIDTH), nn.GRU(WIDTH, WIDTH), nn.GRUCell(2 * WIDTH, WIDTH)
    head = nn.Linear(WIDTH, WORDS)
    model = set_parameters(T, nn.ModuleList([embedding, reader, cell, head]), arrays)

    def loss_of(source: Any, target: Any) -> Any:
        read, last = reader(embedding(source))
        state, losses = last[0], []
        for word in range(target.shape[0] - 1):
            weights = (read * state).sum(-1, keepdim=True).softmax(0)
            state = cell(T.cat([embedding(target[word]), (weights * read).sum(0)], -1), state)
            losses.append(nn.functional.cross_entropy(head(state), target[word + 1]))
        return T.stack(losses).mean()

    def make(compile: Callable[..., Any]) -> Callable[[], Any]:
        optimizer = T.optim.Adam(model.parameters(), lr=OPTIMIZER.lr)

        @compile
        def step(source: Any, target: Any) -> Any:
            optimizer.zero_grad()
            loss = loss_of(source, target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        batches = [(T.tensor(source), T.tensor(target)) for source, target in pairs]
        return lambda: [step(*batch) for batch in batches][-1]

    return Program(make, loss_check)


def build_jax() -> Program:
    import jax
    import jax.numpy as jnp

    pairs, arrays = data()

    def gru(w: list[Any], x: Any, state: Any) -> Any:
        reset, update, new = jnp.split(linear(x, w[0], w[2]), 3, -1)
        reset_h, update_h, new_h = jnp.split(linear(state, w[1], w[3]), 3, -1)
        update = jax.nn.sigmoid(update + update_h)
        return (1 - update) * jnp.tanh(new + jax.nn.sigmoid(reset + reset_h) * new_h) + update * state

    def loss_of(w: list[Any], source: Any, target: Any) -> Any:
        def reads(state: Any, x: Any) -> Any:
            state = gru(w[1:5], x, state)
            return state, state

        def writes(state: Any, words: Any) -> Any:
            weights = jax.nn.softmax((read * state).sum(-1, keepdims=True), 0)
            x = jnp.concatenate([w[0][words[0]], (weights * read).sum(0)], -1)
            state = gru(w[5:9], x, state)
            return state, cross_entropy(linear(state, *w[9:]), words[1])

        state, read = jax.lax.scan(reads, jnp.zeros((BATCH, WIDTH), jnp.float32), w[0][source])
        return jax.lax.scan(writes, state, jnp.stack([target[:-1], target[1:]], 1))[1].mean()

    def make(compile: Callable[..., Any]) -> Callable[[], Any]:
        state = jax_state(jax, arrays, OPTIMIZER)
        batches = [(jnp.array(source), jnp.array(target)) for source, target in pairs]

        run = compile(jax_training(jax, loss_of, OPTIMIZER), donate_argnums=(0,))

        def call() -> Any:
            nonlocal state
            for batch in batches:
                state, loss = run(state, *batch)
            return loss

        return call

    return Program(make, loss_check)
