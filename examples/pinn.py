"""A physics-informed network solves Burgers' equation ``u_t + u u_x = nu u_xx`` from its initial values alone.

    python examples/pinn.py [--steps N] [--small] [--eager] [--device DEVICE]

The residual contains first and second derivatives of the network, so training takes third-order derivatives. All are
part of one compiled step. The result is compared with the exact solution (Cole-Hopf, by quadrature).
Source: Raissi, Perdikaris and Karniadakis, J. Comput. Phys. 378, 2019.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import initialize, program, show

import autojit as aj
from autojit import nn

VISCOSITY = 0.1 / np.pi


def network(width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def solution(net: nn.Module, x: aj.Tensor, t: aj.Tensor) -> aj.Tensor:
    """Initial and boundary values hold by construction: ``u(x, 0) = -sin(pi x)``, ``u(+-1, t) = 0``."""
    return t * (1 - x * x) * net(aj.cat([x, t], dim=1)) - aj.sin(np.pi * x)


def residual(net: nn.Module, x: aj.Tensor, t: aj.Tensor) -> aj.Tensor:
    """What is left of the equation at the points ``(x, t)``, each ``f32[n, 1]``."""
    u = solution(net, x, t)
    u_x, u_t = aj.autograd.grad(u.sum(), (x, t), create_graph=True)
    (u_xx,) = aj.autograd.grad(u_x.sum(), (x,), create_graph=True)
    return u_t + u * u_x - VISCOSITY * u_xx


def train(net: nn.Module, points: int, steps: int, eager: bool) -> list[float]:
    optimizer = aj.optim.Adam(net.parameters(), lr=2e-3)
    rng = np.random.default_rng(0)

    def step(x: aj.Tensor, t: aj.Tensor) -> aj.Tensor:
        optimizer.zero_grad()
        loss = (residual(net, x, t) ** 2).mean()
        loss.backward(inputs=list(net.parameters()))
        optimizer.step()
        return loss

    run = step if eager else aj.jit(step)
    losses: list[float] = []
    for number in range(steps):
        x = aj.tensor(rng.uniform(-1, 1, (points, 1)).astype(np.float32), requires_grad=True)
        t = aj.tensor(rng.uniform(0, 1, (points, 1)).astype(np.float32), requires_grad=True)
        losses.append(run(x, t).item())
        if number % 200 == 0:
            print(f"step {number:5d}  mean squared residual {losses[-1]:.2e}")
    return losses


def exact(x: np.ndarray, t: float) -> np.ndarray:
    """The Cole-Hopf solution at ``(x, t)``, ``t > 0``: two Gaussian integrals, by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    y = x[:, None] - nodes * np.sqrt(4 * VISCOSITY * t)
    density = weights * np.exp(-np.cos(np.pi * y) / (2 * np.pi * VISCOSITY))
    return -(np.sin(np.pi * y) * density).sum(axis=1) / density.sum(axis=1)


def error(net: nn.Module, t: float) -> float:
    """Greatest distance from the exact solution at time ``t``."""
    x = np.linspace(-1, 1, 101)
    column = aj.tensor(x.astype(np.float32)[:, None])
    with aj.no_grad():
        found = solution(net, column, aj.full_like(column, t)).cpu().numpy()[:, 0]
    return float(np.abs(found - exact(x, t)).max())


@program("a physics-informed network for Burgers' equation")
def main(o: Namespace) -> list[float]:
    width, depth, points, steps = (12, 2, 128, 60) if o.small else (24, 4, 1024, 2000)

    net = initialize(network(width, depth))
    before = error(net, 0.5)
    start = time.perf_counter()
    losses = train(net, points, o.steps or steps, o.eager)
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s; residual {losses[0]:.2e} -> {losses[-1]:.2e}")
    print(f"greatest error at t = 0.5: {before:.4f} -> {error(net, 0.5):.4f}")
    show(net=net)
    assert o.steps or losses[-1] < 0.5 * losses[0]
    assert o.steps or error(net, 0.5) < before
    return losses


if __name__ == "__main__":
    main()
