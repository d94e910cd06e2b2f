"""A character-level GPT: learn a text, then write on from its first words.

    python examples/gpt.py [--data FILE] [--steps N] [--small] [--eager] [--device DEVICE]
    python -m autojit.launch -n 2 examples/gpt.py

The whole training step (forward, backward, AdamW) is one compiled call, and so is the model that samples.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import numpy as np
from _setup import initialize, program, show

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

TEXT = Path(__file__).with_name("lake.txt")


class Block(nn.Module):
    """Causal attention and feed-forward, each behind a layer norm and added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, width / heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Tokens ``i64[batch, length]`` to logits ``f32[batch, length, vocabulary]``."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: aj.Tensor) -> aj.Tensor:
        x = self.tokens(tokens) + self.positions(aj.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def replicated(gpt: Gpt) -> tuple[nn.Module, int, int]:
    """The model, this process's number, how many there are: under a launcher each learns from its part of a batch."""
    if "RANK" not in os.environ:
        return gpt, 0, 1
    aj.distributed.init_process_group()
    return nn.parallel.DistributedDataParallel(gpt), aj.distributed.get_rank(), aj.distributed.get_world_size()


def train(gpt: Gpt, text: np.ndarray, steps: int, batch: int, context: int, eager: bool) -> list[float]:
    """Random windows of the text; every character is to be predicted from those before it."""
    model, rank, ranks = replicated(gpt)
    optimizer = aj.optim.AdamW(gpt.parameters(), lr=2e-3, weight_decay=0.1)
    rng = np.random.default_rng(0)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    run = step if eager else aj.jit(step)
    losses: list[float] = []
    for number in range(steps):
        starts = rng.integers(0, len(text) - context, batch)
        windows = text[starts[rank::ranks, None] + np.arange(context + 1)]
        losses.append(run(aj.tensor(windows[:, :-1]), aj.tensor(windows[:, 1:])).item())
        if number % 50 == 0 and rank == 0:
            print(f"step {number:4d}  loss {losses[-1]:.3f}")
    return losses


def write_on(gpt: Gpt, start: np.ndarray, length: int, eager: bool) -> np.ndarray:
    """The likeliest next character, again and again; the window keeps its length, so one program serves."""
    with aj.no_grad():
        run = gpt if eager else aj.jit(gpt)
        text = list(start)
        for _ in range(length):
            text.append(int(run(aj.tensor(np.array(text[-len(start) :])[None]))[0, -1].argmax()))
    return np.array(text)


@program("a character-level GPT", data={"type": Path, "default": TEXT, "help": "any text"})
def main(o: Namespace) -> list[float]:
    content = o.data.read_text(encoding="utf-8")
    alphabet = sorted(set(content))
    text = np.array([alphabet.index(c) for c in content])
    width, layers, context, batch, steps = (32, 1, 16, 8, 40) if o.small else (96, 3, 64, 16, 400)
    gpt = initialize(Gpt(len(alphabet), context, width, layers, heads=4))
    losses = train(gpt, text, o.steps or steps, batch, context, o.eager)
    if os.environ.get("RANK", "0") != "0":
        return losses
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} nats per character")
    written = "".join(alphabet[k] for k in write_on(gpt, text[:context], 20 if o.small else 200, o.eager))
    print(written)
    show(text=written, given=context)
    assert o.steps or losses[-1] < 0.9 * losses[0]
    return losses


if __name__ == "__main__":
    main()
