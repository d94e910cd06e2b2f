"""What a training step takes and how long it runs when its temporaries may take less (`memory_budget=`).

    python -m benchmarks.memory_budget [--rounds 5] [--threads 1] [NAME ...]

For each model: without a budget, and with parts of what that takes. Megabytes of temporaries, milliseconds per step
(the least over rounds in turns), how much time that adds, and the seconds of the first call. A star: more than allowed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import autojit as aj
from autojit import nn

PARTS = (None, 0.8, 0.5, 0.25, 0.1)


class Residual(nn.Module):
    """A block whose operand is added to its result."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        """The sum."""
        return x + self.body(x)


def perceptron() -> tuple[nn.Module, aj.Tensor]:
    """Twelve blocks with dropout."""

    def block() -> Residual:
        return Residual(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))

    return nn.Sequential(*[block() for _ in range(12)]), aj.randn(512, 64)


def residual_network() -> tuple[nn.Module, aj.Tensor]:
    """Six blocks of two convolutions with batch normalisation."""

    def half() -> list[nn.Module]:
        return [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]

    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *[Residual(*half(), *half()) for _ in range(6)]), aj.randn(
        8, 3, 32, 32
    )


def transformer() -> tuple[nn.Module, aj.Tensor]:
    """Six encoder layers."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 6), aj.randn(8, 64, 64)


MODELS: dict[str, Callable[[], tuple[nn.Module, aj.Tensor]]] = {
    "perceptron": perceptron,
    "residual_network": residual_network,
    "transformer": transformer,
}


def training_step(name: str, budget: int | None) -> tuple[Any, aj.Tensor]:
    """A step of Adam and its batch."""
    aj.manual_seed(0)
    model, x = MODELS[name]()
    optimizer = aj.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss: aj.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return aj.jit(step, memory_budget=budget), x


def measure(name: str, rounds: int) -> None:
    """Print the rows of one model."""
    whole, steps, firsts = 0, [], []
    for part in PARTS:
        step, x = training_step(name, None if part is None else int(part * whole))
        begin = time.perf_counter()
        step(x)
        firsts.append(time.perf_counter() - begin)
        step(x)
        steps.append(step)
        whole = whole or step.memory()["arena_bytes"]
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for k, step in enumerate(steps):
            for _ in range(10):
                begin = time.perf_counter()
                step(x)
                best[k] = min(best[k], time.perf_counter() - begin)
    for part, step, seconds, first in zip(PARTS, steps, best, firsts, strict=True):
        taken = step.memory()["arena_bytes"]
        star = "*" if part is not None and taken > part * whole else " "
        allowed = "none" if part is None else f"{part * whole / 1e6:.1f}"
        print(f"{name:18} {allowed:>7} {taken / 1e6:7.1f}{star} {seconds * 1e3:8.2f} "
              f"{seconds / best[0]:6.2f} {first:7.2f}")  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    aj.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    print(f"{'model':18} {'allowed':>7} {'MB':>7}  {'ms':>8} {'times':>6} {'first s':>7}")
    for name in options.names or MODELS:
        measure(name, options.rounds)


if __name__ == "__main__":
    main()
