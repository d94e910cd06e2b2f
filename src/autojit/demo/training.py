"""One training run: the network, its step, and the clock around every step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

import autojit as aj
from autojit import nn
from autojit.core.records import record
from autojit.demo.digits import Digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 64
WIDTH = 128
CLASSES = 10
SEED = 0
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-2

Notice = Callable[[int, float], None]  # steps done, loss


@record(frozen=False)
class Run:
    """What one mode did: the loss after and the seconds of every step, the first of which compiles."""

    mode: str
    losses: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def median_step_s(self) -> float:
        """Median over all steps but the first."""
        return statistics.median(self.step_s[1:] or self.step_s)


@record
class Trainer:
    """A network with its optimiser and schedule, and one training step in plain, imperative code."""

    model: Any
    optimizer: Any
    schedule: Any
    step: Callable[[aj.Tensor, aj.Tensor], aj.Tensor]


def make_trainer(pixels: int, steps: int, device: str = "cpu") -> Trainer:
    """The same initial parameters in every call, and on every device."""
    aj.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(pixels, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)).to(device)
    optimizer = aj.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = aj.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    def step(x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss: aj.Tensor = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Trainer(model, optimizer, schedule, step)


def batches(digits: Digits, steps: int) -> list[NDArray[Any]]:
    """Which images each step sees: epochs in random order, the last incomplete batch of each left out."""
    rng = np.random.default_rng(SEED)
    size = min(BATCH, len(digits.labels))
    found: list[NDArray[Any]] = []
    while len(found) < steps:
        order = rng.permutation(len(digits.labels))
        found += [order[k : k + size] for k in range(0, len(order) - size + 1, size)]
    return found[:steps]


def train(
    digits: Digits, steps: int, *, compiled: bool, device: str = "cpu", notice: Notice = lambda done, loss: None
) -> Run:
    """Train for ``steps`` steps and measure the accuracy on the held-out part."""
    trainer = make_trainer(digits.pixels, steps, device)
    step: Any = aj.jit(trainer.step) if compiled else trainer.step
    run = Run("compiled" if compiled else "eager")
    for done, chosen in enumerate(batches(digits, steps), 1):
        x, y = aj.from_numpy(digits.images[chosen]).to(device), aj.from_numpy(digits.labels[chosen]).to(device)
        start = time.perf_counter()
        loss = step(x, y)
        wait_for(device)
        run.step_s.append(time.perf_counter() - start)
        trainer.schedule.step()
        run.losses.append(loss.item())
        notice(done, run.losses[-1])
    run.accuracy = accuracy(trainer.model, digits.held_out_images, digits.held_out_labels, device)
    run.stats = step.stats() if compiled else {}
    return run


def wait_for(device: str) -> None:
    """Let what was queued on the device be done, so that a clock sees it; the CPU has no queue."""
    if device != "cpu":
        aj.cuda.synchronize()


def accuracy(model: Any, images: NDArray[Any], labels: NDArray[Any], device: str = "cpu") -> float:
    """The share of images whose highest logit is the label's."""
    with aj.no_grad():
        predicted = model(aj.from_numpy(images).to(device)).argmax(dim=1)
    return float(np.mean(predicted.cpu().numpy() == labels))


def stage_text(digits: Digits, stage: str, device: str = "cpu") -> str:
    """What the compiler made of the training step: the text of one of its stages."""
    trainer = make_trainer(digits.pixels, 1, device)
    step = aj.jit(trainer.step)
    (chosen,) = batches(digits, 1)
    step(aj.from_numpy(digits.images[chosen]).to(device), aj.from_numpy(digits.labels[chosen]).to(device))
    return str(step.show(stage))
