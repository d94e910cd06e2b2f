"""Atoms settle into their best arrangement: an energy written in NumPy, its gradient by autojit, SciPy's L-BFGS.

    python examples/lennard_jones.py [--steps N] [--small] [--eager] [--device DEVICE]

``energy`` is plain NumPy and does not use autojit. NumPy's functions also compute on tensors, so ``energy`` can be
differentiated and compiled. The best arrangements of 4 and 13 atoms, a tetrahedron and an icosahedron, are known from
Hoare and Pal, Adv. Phys. 20(84), 1971.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
from _setup import program, show
from scipy.optimize import minimize

import autojit as aj

LOWEST = {4: -6.0, 13: -44.326801}


def energy(x):
    """The Lennard-Jones energy of atoms at ``f64[3 n]``, in units of the depth of one bond."""
    atoms = x.reshape(-1, 3)
    first, second = np.triu_indices(len(atoms), 1)
    apart = atoms[first] - atoms[second]
    attraction = np.sum(apart**2, axis=1) ** -3.0
    return 4 * np.sum(np.square(attraction) - attraction)


def with_slope(x: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
    """The energy and its gradient."""
    x = x.detach().requires_grad_()
    value = energy(x)
    return value.detach(), aj.autograd.grad(value, x)[0]


@program("the best arrangement of some atoms")
def main(o: Namespace) -> list[float]:
    count, starts = (4, 3) if o.small else (13, 8)
    rng = np.random.default_rng(0)
    run = with_slope if o.eager else aj.jit(with_slope)
    energies: list[float] = []

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = run(aj.tensor(x))
        energies.append(value.item())
        return energies[-1], slope.cpu().numpy()

    start = time.perf_counter()
    settled: list[float] = []
    best = np.zeros((count, 3))
    for _ in range(o.steps or starts):
        begin = rng.uniform(-1.3, 1.3, (count, 3)) * (count / 13) ** (1 / 3)
        found = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
        if found.fun < min(settled, default=np.inf):
            best = found.x.reshape(count, 3)
        settled.append(float(found.fun))
    print(f"{len(energies)} energies with gradients in {time.perf_counter() - start:.1f} s")
    print(f"lowest energy {min(settled):.6f} of {len(settled)} starts, known to be {LOWEST[count]}")
    show(atoms=best)
    assert np.isclose(min(settled), LOWEST[count], rtol=1e-6)
    return settled


if __name__ == "__main__":
    main()
