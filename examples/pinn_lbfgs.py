"""A physics-informed network solves Poisson's equation ``u_xx + u_yy = f`` with a quasi-Newton method.

    python examples/pinn_lbfgs.py [--steps N] [--small] [--eager] [--device DEVICE]

``optim.LBFGS`` with its strong-Wolfe line search calls a compiled closure, which computes only the residual and its
gradient. The search itself is Python, because it decides from the computed numbers how often to call the closure.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import initialize, program, show

import autojit as aj
from autojit import nn


def solution(net: nn.Module, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
    """Zero on the edge of the unit square by construction."""
    return x * (1 - x) * y * (1 - y) * net(aj.cat([x, y], dim=1))


def laplacian(net: nn.Module, x: aj.Tensor, y: aj.Tensor) -> aj.Tensor:
    u = solution(net, x, y).sum()
    u_x, u_y = aj.autograd.grad(u, (x, y), create_graph=True)
    (u_xx,) = aj.autograd.grad(u_x.sum(), x, create_graph=True)
    (u_yy,) = aj.autograd.grad(u_y.sum(), y, create_graph=True)
    return u_xx + u_yy


@program("Poisson's equation by a network and LBFGS")
def main(o: Namespace) -> list[float]:
    width, points, steps = (10, 60, 3) if o.small else (24, 400, 15)
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (2, points, 1))
    x, y = (aj.tensor(p).requires_grad_() for p in places)
    exact = np.sin(np.pi * places[0]) * np.sin(2 * np.pi * places[1])
    source = aj.tensor(-5 * np.pi**2 * exact)

    layers = (nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    net = initialize(nn.Sequential(*layers).double())
    optimizer = aj.optim.LBFGS(net.parameters(), max_iter=20, line_search_fn="strong_wolfe")

    def closure() -> aj.Tensor:
        optimizer.zero_grad()
        loss = ((laplacian(net, x, y) - source) ** 2).mean()
        loss.backward(inputs=list(net.parameters()))
        return loss

    run = closure if o.eager else aj.jit(closure)
    losses: list[float] = []

    def counted() -> aj.Tensor:
        loss = run()
        losses.append(loss.item())
        return loss

    start = time.perf_counter()
    for number in range(o.steps or steps):
        optimizer.step(counted)
        print(f"step {number:3d}  {len(losses):4d} calls  mean squared residual {losses[-1]:.3e}")
    with aj.no_grad():
        error = np.abs(solution(net, x, y).cpu().numpy() - exact).max()
    print(f"{len(losses)} calls in {time.perf_counter() - start:.1f} s; greatest error {error:.1e}")
    show(net=net)
    assert o.steps or losses[-1] < (0.3 if o.small else 1e-3) * losses[0]
    assert o.steps or error < (0.5 if o.small else 0.01)
    return losses


if __name__ == "__main__":
    main()
