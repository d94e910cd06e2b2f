"""Learning to learn: weights from which one gradient step fits a new sine wave.

    python examples/maml.py [--steps N] [--small] [--eager] [--device DEVICE]

The inner step is ``func.grad`` of ``functional_call``, and ``func.vmap`` runs it for all tasks at once. ``backward``
goes through the inner step, so training takes second derivatives. Source: Finn, Abbeel and Levine, ICML 2017.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import initialize, program, show

import autojit as aj
from autojit import nn
from autojit.func import functional_call, grad, vmap

INNER_RATE = 0.02
Points = tuple[aj.Tensor, ...]


def tasks(rng: np.random.Generator, count: int, points: int) -> Points:
    """For each task inputs and values to learn from, and others to judge by: four ``f32[count, points, 1]``."""
    height, phase = rng.uniform(0.5, 3, (count, 1, 1, 1)), rng.uniform(0, np.pi, (count, 1, 1, 1))
    x = rng.uniform(-3, 3, (count, 2, points, 1))
    y = height * np.sin(x - phase)
    return tuple(aj.tensor(np.ascontiguousarray(v[:, k], np.float32)) for k in range(2) for v in (x, y))


@program("model-agnostic meta-learning of sine waves")
def main(o: Namespace) -> list[float]:
    width, count, points, steps = (16, 8, 10, 150) if o.small else (40, 25, 10, 2000)
    net = initialize(
        nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    )
    optimizer = aj.optim.Adam(net.parameters(), lr=3e-3)
    rng = np.random.default_rng(0)

    def error(weights: dict[str, aj.Tensor], x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
        return ((functional_call(net, weights, (x,)) - y) ** 2).mean()

    def adapted(x: aj.Tensor, y: aj.Tensor, new_x: aj.Tensor, new_y: aj.Tensor) -> aj.Tensor:
        """The error on new points after one gradient step on the given ones."""
        weights = dict(net.named_parameters())
        slopes = grad(error)(weights, x, y)
        return error({name: w - INNER_RATE * slopes[name] for name, w in weights.items()}, new_x, new_y)

    def step(x: aj.Tensor, y: aj.Tensor, new_x: aj.Tensor, new_y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = vmap(adapted)(x, y, new_x, new_y).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        losses.append(run(*tasks(rng, count, points)).item())
        if number % 200 == 0:
            print(f"step {number:4d}  error after one inner step {losses[-1]:.3f}")
    show(net=net)
    first, last = np.mean(losses[:10]), np.mean(losses[-10:])
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; error after one step {first:.3f} -> {last:.3f}")
    assert o.steps or last < (0.8 if o.small else 0.5) * first
    return losses


if __name__ == "__main__":
    main()
