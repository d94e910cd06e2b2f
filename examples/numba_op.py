"""A planet found in the speed of its star: Kepler's equation, solved by a Numba function, inside a fitted model.

    python examples/numba_op.py [--steps N] [--small] [--eager] [--device DEVICE]

``eccentric_anomaly`` solves ``E - e sin E = M`` by Newton's method, with as many steps as the operands need. `aj.op`
turns it into an op. The compiled step's kernels contain its machine code, including the loop, and its derivatives are
made from that code. Source of the model: Perryman, The Exoplanet Handbook, 2nd edition, equations 2.16 and 2.28.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace

import numba
import numpy as np
from _setup import program, show

import autojit as aj

TRUTH = {"speed": 55.0, "eccentricity": 0.4, "period": 4.23, "phase": 0.9, "direction": 0.7, "offset": -3.0}
START = {"speed": 40.0, "eccentricity": 0.2, "period": 4.2297, "phase": 0.6, "direction": 0.5, "offset": 0.0}


@aj.op
@numba.njit
def eccentric_anomaly(mean: float, eccentricity: float) -> float:
    """The angle on the orbit's circle from the one that grows steadily, both in radians."""
    turns = math.floor(mean / (2.0 * math.pi))
    m = mean - 2.0 * math.pi * turns
    angle = math.pi if eccentricity > 0.8 else m
    for _ in range(50):
        step = (angle - eccentricity * math.sin(angle) - m) / (1.0 - eccentricity * math.cos(angle))
        angle -= step
        if abs(step) < 1e-13:
            break
    return angle + 2.0 * math.pi * turns


def speeds(t: aj.Tensor, star: dict[str, aj.Tensor]) -> aj.Tensor:
    """Speed along the line of sight (m/s) at times ``t`` (days)."""
    e = star["eccentricity"]
    angle = eccentric_anomaly(2.0 * math.pi * t / star["period"] - star["phase"], e)
    true = 2.0 * aj.atan2(aj.sqrt(1.0 + e) * aj.sin(angle / 2.0), aj.sqrt(1.0 - e) * aj.cos(angle / 2.0))
    return star["speed"] * (aj.cos(true + star["direction"]) + e * aj.cos(star["direction"])) + star["offset"]


@program("radial velocities fitted through Kepler's equation")
def main(o: Namespace) -> list[float]:
    count, steps = (60, 60) if o.small else (20_000, 600)
    rng = np.random.default_rng(0)
    t = aj.tensor(np.sort(rng.uniform(0.0, 60.0, count)))
    measured = speeds(t, {name: aj.tensor(x, dtype=aj.float64) for name, x in TRUTH.items()})
    measured = measured + aj.tensor(rng.normal(scale=2.0, size=count))
    star = {name: aj.tensor(x, dtype=aj.float64, requires_grad=True) for name, x in START.items()}
    groups = [{"params": [x], "lr": 0.5 if name in ("speed", "offset") else 2e-5 if name == "period" else 0.01}
              for name, x in star.items()]  # fmt: skip
    optimizer = aj.optim.Adam(groups)

    def step() -> aj.Tensor:
        optimizer.zero_grad()
        loss = aj.mean((speeds(t, star) - measured).square())
        loss.backward()
        optimizer.step()
        return loss.detach()

    if not o.eager:
        step = aj.jit(step)
    start = time.perf_counter()
    losses = [step().item() for _ in range(o.steps or steps)]
    print(f"mean squared error {losses[0]:.1f} -> {losses[-1]:.2f} (m/s)^2 in {time.perf_counter() - start:.2f} s")
    for name, x in star.items():
        print(f"  {name:<13} {x.item():8.4f}   true {TRUTH[name]:8.4f}")
    show(times=t, measured=measured, star=star)
    assert o.steps or losses[-1] < losses[0] / 5
    return losses


if __name__ == "__main__":
    main()
