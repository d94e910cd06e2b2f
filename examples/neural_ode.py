"""A neural ordinary differential equation learns a spiral; its gradient is another equation, solved backwards in time.

    python examples/neural_ode.py [--steps N] [--small] [--eager] [--device DEVICE]

The adjoint method is an ``autograd.Function``. Its backward integrates state, adjoint and parameter gradients
together; only states are kept. Source: Chen et al., NeurIPS 2018.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from _setup import initialize, program, show

import autojit as aj
from autojit import nn

State = tuple[aj.Tensor, ...]


class Slope(nn.Module):
    """``dy/dt`` as a function of ``y``, both ``f32[n, 2]``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, y: aj.Tensor) -> aj.Tensor:
        return self.net(y**3)


def runge_kutta(slope: Callable[[State], Sequence[aj.Tensor]], y: State, duration: float, pieces: int) -> State:
    """The classical method of order four over ``duration``, which may be negative."""
    h = duration / pieces
    moved = lambda k, by: tuple(a + by * b for a, b in zip(y, k))
    for _ in range(pieces):
        k1 = slope(y)
        k2 = slope(moved(k1, h / 2))
        k3 = slope(moved(k2, h / 2))
        k4 = slope(moved(k3, h))
        y = tuple(a + h / 6 * (p + 2 * q + 2 * r + s) for a, p, q, r, s in zip(y, k1, k2, k3, k4))
    return y


class Solve(aj.autograd.Function):
    """States at every time of a grid, ``f32[times, n, 2]``, from the one at the first."""

    @staticmethod
    def forward(ctx: Any, slope: nn.Module, y: aj.Tensor, times: list[float], *parameters: aj.Tensor) -> aj.Tensor:
        states = [y]
        for begin, end in pairwise(times):
            states.extend(runge_kutta(lambda s: (slope(s[0]),), (states[-1],), end - begin, pieces=2))
        ctx.slope, ctx.times, found = slope, times, aj.stack(states)
        ctx.save_for_backward(found, *parameters)
        return found

    @staticmethod
    def backward(ctx: Any, y_bar: aj.Tensor) -> tuple[aj.Tensor | None, ...]:
        states, *parameters = ctx.saved_tensors

        def augmented(state: State) -> Sequence[aj.Tensor]:
            with aj.enable_grad():
                y = state[0].detach().requires_grad_()
                slope = ctx.slope(y)
                return (slope.detach(), *aj.autograd.grad(slope, (y, *parameters), -state[1]))

        adjoint, grads = y_bar[-1], [aj.zeros_like(p) for p in parameters]
        for k in range(len(ctx.times) - 1, 0, -1):
            duration = ctx.times[k - 1] - ctx.times[k]
            _, adjoint, *grads = runge_kutta(augmented, (states[k], adjoint, *grads), duration, pieces=2)
            adjoint = adjoint + y_bar[k - 1]
        return (None, adjoint, None, *grads)


def spiral(times: list[float]) -> aj.Tensor:
    """The solution of ``dy/dt = A y^3`` that is to be learned."""
    matrix, states = aj.tensor([[-0.1, 2.0], [-2.0, -0.1]]), [aj.tensor([[2.0, 0.0]])]
    for begin, end in pairwise(times):
        states.extend(runge_kutta(lambda s: (s[0] ** 3 @ matrix,), (states[-1],), end - begin, pieces=20))
    return aj.stack(states)


@program("a neural ordinary differential equation")
def main(o: Namespace) -> list[float]:
    width, count, batch, span, steps = (16, 40, 8, 4, 60) if o.small else (48, 200, 20, 10, 600)
    times = [float(t) for t in np.linspace(0, 0.025 * (count - 1), count)]
    truth = spiral(times)
    slope, rng = initialize(Slope(width)), np.random.default_rng(0)
    optimizer = aj.optim.Adam(slope.parameters(), lr=1e-2)

    def step(y: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        predicted = Solve.apply(slope, y[0], times[:span], *slope.parameters())
        loss = (predicted - y).abs().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = step if o.eager else aj.jit(step)
    start = time.perf_counter()
    losses: list[float] = []
    for number in range(o.steps or steps):
        begin = rng.choice(count - span, batch, replace=False)  # of pieces, each to be predicted from its first state
        losses.append(run(aj.stack([truth[begin + k, 0] for k in range(span)])).item())
        if number % 100 == 0:
            print(f"step {number:4d}  mean distance {losses[-1]:.4f}")
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; distance {losses[0]:.4f} -> {losses[-1]:.4f}")
    show(slope=slope, truth=truth, times=times)
    assert o.steps or np.mean(losses[-10:]) < (0.7 if o.small else 0.3) * losses[0]
    return losses


if __name__ == "__main__":
    main()
