"""One step compiled for all sizes, against a step compiled for the very size it runs with.

    python -m benchmarks.symbolic_sizes [--programs mlp,gpt,pinn,cnn,lstm,lengths] [--pairs 40]

Whole training steps: forward, backward, optimiser. Both forms are called in turns; a row gives the best time of each,
and the median over pairs of calls of their ratio (1.08 is the limit the project sets itself). ``captures`` counts what
was captured in calls with every size from 1 to 64 and then the sizes of the rows; ``changing`` is the time of a call
when two sizes alternate, beside the mean of the two when they do not.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import autojit as aj
import autojit.nn.functional as F
from autojit import nn

Step = Callable[..., Any]
Data = Callable[[int], tuple[Any, ...]]
LETTERS = 65


def mlp() -> tuple[Step, Data]:
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return classifier(model), lambda n: (aj.randn(n, 784), aj.randint(0, 10, (n,)))


def cnn() -> tuple[Step, Data]:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    return classifier(model), lambda n: (aj.randn(n, 1, 28, 28), aj.randint(0, 10, (n,)))


class Reader(nn.Module):
    """An LSTM that labels a sequence by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        return self.head(self.cells(x)[0][:, -1])  # type: ignore[no-any-return]


def lstm() -> tuple[Step, Data]:
    return classifier(Reader()), lambda n: (aj.randn(n, 16, 32), aj.randint(0, 10, (n,)))


def lengths() -> tuple[Step, Data]:
    return classifier(Reader()), lambda n: (aj.randn(16, n, 32), aj.randint(0, 10, (16,)))


def classifier(model: nn.Module) -> Step:
    optimiser = aj.optim.Adam(model.parameters())

    def step(x: aj.Tensor, labels: aj.Tensor) -> aj.Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimiser.step()
        return loss

    return step


class Block(nn.Module):
    """Causal attention and a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).chunk(3, dim=-1)
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.widen(self.between(x))))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """Letters and places, blocks, the next letter."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 4, longest: int = 512) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        h = self.letters(x) + self.places(aj.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))  # type: ignore[no-any-return]


def gpt() -> tuple[Step, Data]:
    model = Gpt()
    optimiser = aj.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x).reshape(-1, LETTERS), y.reshape(-1))
        loss.backward()
        optimiser.step()
        return loss

    return step, lambda n: (aj.randint(0, LETTERS, (8, n)), aj.randint(0, LETTERS, (8, n)))


def pinn() -> tuple[Step, Data]:
    layers = [nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 1)]
    model = nn.Sequential(*layers)
    optimiser = aj.optim.Adam(model.parameters())

    def step(points: aj.Tensor) -> aj.Tensor:
        optimiser.zero_grad()
        points = points.detach().requires_grad_(True)
        u = model(points)
        (slopes,) = aj.autograd.grad(u.sum(), points, create_graph=True)
        (curves,) = aj.autograd.grad(slopes[:, 0].sum(), points, create_graph=True)
        loss = ((slopes[:, 1] + u[:, 0] * slopes[:, 0] - 0.01 * curves[:, 0]) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss  # type: ignore[no-any-return]

    return step, lambda n: (aj.randn(n, 2),)


PROGRAMS = {
    "mlp": (mlp, (64, 256, 1024)),
    "gpt": (gpt, (64, 128, 256)),
    "pinn": (pinn, (256, 1024, 8192)),
    "cnn": (cnn, (16, 64)),
    "lstm": (lstm, (16, 64)),
    "lengths": (lengths, (16, 64, 256)),
}


def timed(step: Step, data: tuple[Any, ...]) -> float:
    """Seconds of one call."""
    before = time.perf_counter()
    step(*data)
    return time.perf_counter() - before


def compare(name: str, pairs: int) -> None:
    make, sizes = PROGRAMS[name]
    program, data = make()
    general = aj.jit(program)
    for n in range(1, 65):
        general(*data(n))
    for n in sizes:
        program, _ = make()
        special, given = aj.jit(program, dynamic=False), data(n)
        for _ in range(3):
            special(*given)
            general(*given)
        times = [(timed(special, given), timed(general, given)) for _ in range(pairs)]
        ratio = statistics.median(b / a for a, b in times)
        best = [1e3 * min(side) for side in zip(*times, strict=True)]
        print(f"{name:7} {n:5}  fixed {best[0]:8.3f} ms  open {best[1]:8.3f} ms  ratio {ratio:.3f}", flush=True)
    print(f"{name:7} captures {general.stats()['captures']}, fixed again {general.stats()['specialised_sizes']}")
    alternate(name, general, [data(n) for n in sizes[:2]], pairs)


def alternate(name: str, step: Step, inputs: list[tuple[Any, ...]], pairs: int) -> None:
    """The cost of sizes that change from call to call."""
    steady = statistics.mean(statistics.median(timed(step, given) for _ in range(pairs)) for given in inputs)
    changing = statistics.mean(statistics.median(times) for times in zip(
        *([timed(step, given) for given in inputs] for _ in range(pairs)), strict=True
    ))  # fmt: skip
    print(f"{name:7} changing {1e3 * changing:8.3f} ms, steady {1e3 * steady:8.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--pairs", type=int, default=40)
    given = parser.parse_args()
    for name in given.programs.split(","):
        aj.manual_seed(0)
        compare(name, given.pairs)


if __name__ == "__main__":
    main()
