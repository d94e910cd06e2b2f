"""An LSTM cell, unrolled by a Python loop, learns a toy language in which brackets must close in the right order.

    python examples/lstm.py [--steps N] [--small] [--eager] [--device DEVICE]

A word is a walk up and down: ``(`` and ``[`` open, ``)`` and ``]`` close what was opened last. Which bracket must close
cannot be told from the last character, so the cell has to keep a stack. The whole unrolled step is one compiled call.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import initialize, program

import autojit as aj
from autojit import nn
from autojit.nn import functional as F

ALPHABET = "()[]"
DEEPEST = 4


def words(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """``i64[count, length]``: positions in the alphabet of random balanced words (``length`` is even)."""
    found = np.zeros((count, length), np.int64)
    for word in found:
        stack: list[int] = []
        for place in range(length):
            left = length - place
            opens = len(stack) < min(DEEPEST, left - 1) and (not stack or rng.random() < 0.5)
            word[place] = 2 * rng.integers(2) if opens else stack.pop() + 1
            if opens:
                stack.append(int(word[place]))
    return found


class Reader(nn.Module):
    """Logits ``f32[batch, length - 1, 4]`` of the next character at every place of ``i64[batch, length]``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), width)
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, text: aj.Tensor) -> aj.Tensor:
        x = self.embedding(text)
        h = aj.zeros(text.shape[0], self.cell.hidden_size)
        c = aj.zeros_like(h)
        outputs = []
        for place in range(text.shape[1] - 1):
            h, c = self.cell(x[:, place], (h, c))
            outputs.append(h)
        return self.head(aj.stack(outputs, dim=1))


def closing_accuracy(reader: Reader, text: np.ndarray) -> float:
    """At places where a bracket closes: how often the right kind gets the higher logit of the two that close."""
    with aj.no_grad():
        logits = reader(aj.tensor(text)).cpu().numpy()
    following = text[:, 1:]
    closes = following % 2 == 1
    guess = np.where(logits[..., 1] > logits[..., 3], 1, 3)
    return float((guess == following)[closes].mean())


@program("an unrolled LSTM cell on a language of brackets")
def main(o: Namespace) -> list[float]:
    width, length, batch, steps = (16, 8, 16, 60) if o.small else (48, 24, 64, 600)

    rng = np.random.default_rng(0)
    reader = initialize(Reader(width))
    optimizer = aj.optim.Adam(reader.parameters(), lr=1e-2)

    def step(text: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(reader(text).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        losses.append(run(aj.tensor(words(rng, batch, length))).item())
        if number % 100 == 0:
            print(f"step {number:4d}  loss {losses[-1]:.3f}")
    accuracy = closing_accuracy(reader, words(rng, 200, length))
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; the right bracket closes in {accuracy:.1%}")
    assert o.steps or losses[-1] < losses[0]
    assert o.steps or accuracy > (0.6 if o.small else 0.95)
    return losses


if __name__ == "__main__":
    main()
