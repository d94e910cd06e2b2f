"""The rates of a predator-prey system are found from observations, through a solver that chooses its own step sizes.

    python examples/adaptive_ode.py [--steps N] [--small] [--eager] [--device DEVICE]

How many steps the solver takes is known only while it runs. ``while_loop`` compiles it into one native loop, and the
gradient goes back through the same steps. Source of the Runge-Kutta pair of orders 3 and 2: Bogacki and Shampine, Appl.
Math. Lett. 2(4), 1989.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import program, show

import autojit as aj

TRUE_RATES = (1.1, 0.4, 0.1, 0.4)
TOLERANCE = 1e-5


def slope(y: aj.Tensor, rates: aj.Tensor) -> aj.Tensor:
    """``d(prey, predators)/dt``, ``f64[2]``."""
    prey, predators = y[0], y[1]
    met = prey * predators
    return aj.stack((rates[0] * prey - rates[1] * met, rates[2] * met - rates[3] * predators))


def advance(y: aj.Tensor, rates: aj.Tensor, duration: float) -> aj.Tensor:
    """The state after ``duration``, by steps whose estimated error stays below ``TOLERANCE``."""

    def unfinished(y: aj.Tensor, left: aj.Tensor, size: aj.Tensor) -> aj.Tensor:
        return left > 1e-9

    def step(y: aj.Tensor, left: aj.Tensor, size: aj.Tensor) -> tuple[aj.Tensor, ...]:
        h = aj.minimum(size, left)
        k1 = slope(y, rates)
        k2 = slope(y + h / 2 * k1, rates)
        k3 = slope(y + 3 * h / 4 * k2, rates)
        new = y + h / 9 * (2 * k1 + 3 * k2 + 4 * k3)
        other = y + h / 24 * (7 * k1 + 6 * k2 + 8 * k3 + 3 * slope(new, rates))
        error = (new - other).abs().max().detach() / TOLERANCE  # step sizes are chosen, not differentiated
        taken = error < 1
        factor = (0.9 * (error + 1e-6) ** (-1 / 3)).clamp(0.2, 5.0)
        return aj.where(taken, new, y), aj.where(taken, left - h, left), h * factor

    start = aj.tensor(duration, dtype=y.dtype)
    y, _, _ = aj.while_loop(unfinished, step, (y, start, start / 10))
    return y


def trajectory(rates: aj.Tensor, times: int) -> aj.Tensor:
    """The states at times 1, 2, ..., ``f64[times, 2]``."""
    first = aj.tensor([10.0, 5.0], dtype=aj.float64)

    def observe(y: aj.Tensor, _: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        y = advance(y, rates, 1.0)
        return y, y

    return aj.scan(observe, first, aj.zeros(times))[1]


@program("rates found through an adaptive solver")
def main(o: Namespace) -> list[float]:
    steps = o.steps or (5 if o.small else 300)
    times = 3 if o.small else 20
    with aj.no_grad():
        observed = trajectory(aj.tensor(TRUE_RATES, dtype=aj.float64), times)
    logs = aj.tensor(np.log([0.9, 0.3, 0.15, 0.5]), requires_grad=True)
    optimizer = aj.optim.Adam([logs], lr=0.02)

    def train() -> aj.Tensor:
        optimizer.zero_grad()
        loss = (trajectory(logs.exp(), times).log() - observed.log()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = train if o.eager else aj.jit(train)
    losses = [step().item()]
    start = time.perf_counter()
    losses += [step().item() for _ in range(steps - 1)]
    print(f"{(time.perf_counter() - start) / max(steps - 1, 1) * 1e3:.2f} ms per step")
    print("rates", np.round(logs.detach().exp().cpu().numpy(), 3).tolist(), "from", list(TRUE_RATES))
    show(rates=logs.detach().exp(), times=times)
    assert o.steps or losses[-1] < losses[0]
    return losses


if __name__ == "__main__":
    main()
