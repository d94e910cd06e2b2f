"""Programs that are run on the CPU and on a GPU, eager and compiled: small, and together of all that steps do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import autojit as aj
from autojit import nn

F = nn.functional

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: aj.optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: aj.optim.Adam(p, 1e-2),
    "adamw": lambda p: aj.optim.AdamW(p, 1e-2),
}


class Training:
    """A model, its optimiser and a loss, on a device; ``step`` is one update."""

    def __init__(self, device: str, model: nn.Module, loss: Callable[..., aj.Tensor], optimizer: str = "sgd") -> None:
        self.device = device
        self.model = model.to(device)
        self.updates = OPTIMIZERS[optimizer](self.model.parameters())
        self.loss = loss

    def step(self, *batch: aj.Tensor) -> aj.Tensor:
        self.updates.zero_grad()
        loss = self.loss(self.model, *batch)
        loss.backward()
        self.updates.step()
        return loss

    def numbers(self) -> list[Any]:
        """Parameters and the optimiser's state, on the host."""
        found = [p.detach().cpu().numpy() for p in self.model.parameters()]
        for state in self.updates.state.values():
            found += [value.detach().cpu().numpy() for value in state.values() if isinstance(value, aj.Tensor)]
        return found


def trained(make: Callable[[str], Training], batches: list[tuple[Any, ...]], device: str, is_jitted: bool) -> Any:
    """(losses, parameters and state, the step) after one update for each batch of NumPy's arrays."""
    aj.manual_seed(0)
    training = make(device)
    step = aj.jit(training.step) if is_jitted else training.step
    losses = [step(*(aj.tensor(a, device=device) for a in batch)).item() for batch in batches]
    return losses, training.numbers(), step


def mlp(device: str, optimizer: str = "sgd") -> Training:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return Training(device, model, lambda model, x, y: F.cross_entropy(model(x), y), optimizer)


def classes(count: int, rows: int = 5, width: int = 6, of: int = 3) -> list[tuple[Any, ...]]:
    """Batches of vectors and labels."""
    rng = np.random.default_rng(1)
    return [(rng.standard_normal((rows, width)).astype(np.float32), rng.integers(0, of, rows)) for _ in range(count)]


def normalized(device: str) -> Training:
    model = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 6))

    def loss(model: nn.Module, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        return (aj.softmax(model(x), -1) * aj.log_softmax(x, 0)).square().sum() + F.mse_loss(model(x)[:, 0], y.float())

    return Training(device, model, loss, "adam")


class Bag(nn.Module):
    """Words as vectors, their mean, a line of scores."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.scores = nn.Linear(8, 3)

    def forward(self, words: aj.Tensor) -> aj.Tensor:
        return self.scores(self.table(words).mean(1))


def embedding(device: str) -> Training:
    return Training(device, Bag(), lambda model, words, y: F.cross_entropy(model(words), y), "adamw")


def sentences(count: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(2)
    return [(rng.integers(0, 11, (4, 5)), rng.integers(0, 3, 4)) for _ in range(count)]


class Block(nn.Module):
    """A layer of a language model: attention as it is written, and two lines."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: aj.Tensor) -> aj.Tensor:
        rows, length, width = x.shape
        parts = self.into(self.before(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, part].transpose(1, 2) for part in range(3))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        later = aj.ones(length, length, device=x.device).triu(1) > 0
        weights = aj.softmax(scores.masked_fill(later, float("-inf")), -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


def gpt_block(device: str) -> Training:
    return Training(device, Block(), lambda model, x, y: F.mse_loss(model(x), y))


def sequences(count: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(3)
    return [tuple(rng.standard_normal((2, 2, 4, 8)).astype(np.float32)) for _ in range(count)]


def pinn(device: str) -> Training:
    """A network whose third derivative is part of its loss."""
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss(model: nn.Module, x: aj.Tensor) -> aj.Tensor:
        x = x.detach().requires_grad_()
        found = [model(x)]
        for _ in range(3):
            found += aj.autograd.grad(found[-1].sum(), x, create_graph=True)
        u, first, _, third = found
        return (third + u * first - aj.sin(x)).square().mean()

    return Training(device, model, loss, "adam")


def points(count: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(4)
    return [(rng.uniform(-1, 1, (6, 1)).astype(np.float32),) for _ in range(count)]


PROGRAMS: dict[str, tuple[Callable[[str], Training], Callable[[int], list[tuple[Any, ...]]]]] = {
    **{f"mlp_{name}": (lambda device, name=name: mlp(device, name), classes) for name in OPTIMIZERS},
    "normalized": (normalized, classes),
    "embedding": (embedding, sentences),
    "gpt_block": (gpt_block, sequences),
    "pinn": (pinn, points),
}
