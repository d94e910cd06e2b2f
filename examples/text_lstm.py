"""A recurrent language model reads a text from its first character to its last.

    python examples/text_lstm.py [--steps N] [--small] [--eager] [--device DEVICE]

The model has two layers of ``nn.LSTM``. Each window of the text passes its detached state to the next (truncated
backpropagation through time); gradients are clipped. The step is captured once: the state is argument and result.
"""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from _setup import initialize, program

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

TEXT = Path(__file__).with_name("lake.txt")
State = tuple[aj.Tensor, aj.Tensor]


class Model(nn.Module):
    """Characters ``i64[length, batch]`` and a state to logits ``f32[length, batch, vocabulary]`` and the next state."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers)
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.embedding.weight  # tied

    def forward(self, text: aj.Tensor, state: State) -> tuple[aj.Tensor, State]:
        x, state = self.lstm(self.embedding(text), state)
        return self.head(x), state

    def start(self, batch: int) -> State:
        shape = (self.lstm.num_layers, batch, self.lstm.hidden_size)
        return aj.zeros(shape), aj.zeros(shape)


def columns(content: str, batch: int) -> tuple[np.ndarray, list[str]]:
    """``i64[length, batch]``: the text cut into ``batch`` parts that are read side by side; and the alphabet."""
    alphabet = sorted(set(content))
    text = np.array([alphabet.index(c) for c in content])
    length = len(text) // batch
    return np.ascontiguousarray(text[: length * batch].reshape(batch, length).T), alphabet


@program("an LSTM language model")
def main(o: Namespace) -> list[float]:
    width, layers, batch, window, steps = (24, 2, 8, 8, 60) if o.small else (64, 2, 16, 32, 300)
    text, alphabet = columns(TEXT.read_text(encoding="utf-8"), batch)

    model = initialize(Model(len(alphabet), width, layers))
    optimizer = aj.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: aj.Tensor, y: aj.Tensor, state: State) -> tuple[aj.Tensor, State]:
        optimizer.zero_grad()
        logits, (h, c) = model(x, state)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss, (h.detach(), c.detach())

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    place = len(text)
    for number in range(o.steps or steps):
        if place + window >= len(text):
            place, state = 0, model.start(batch)
        x, y = text[place : place + window], text[place + 1 : place + window + 1]
        loss, state = run(aj.tensor(x), aj.tensor(y), state)
        losses.append(loss.item())
        place += window
        if number % 50 == 0:
            print(f"step {number:4d}  loss {losses[-1]:.3f} nats per character")
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    assert o.steps or np.mean(losses[-5:]) < (0.95 if o.small else 0.75) * losses[0]
    return losses


if __name__ == "__main__":
    main()
