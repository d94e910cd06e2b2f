"""Newton's method with conjugate gradients: the Hessian is never formed, only multiplied with vectors.

    python examples/newton_cg.py [--small] [--eager] [--device DEVICE]

Logistic regression on 50 features. A Hessian-vector product is the gradient of ``gradient . v``: two reverse sweeps,
one compiled call. Source: Nocedal and Wright, Numerical Optimization, 2nd edition, algorithm 7.1.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial

import numpy as np
from _setup import program

import autojit as aj
from autojit.nn import functional as F

Product = Callable[[aj.Tensor], aj.Tensor]
PENALTY = 1e-3
TOLERANCE = 1e-7


def problem(samples: int, features: int) -> tuple[aj.Tensor, aj.Tensor]:
    """Badly scaled features ``f64[n, m]``, labels 0 or 1 ``f64[n]``: plain gradient descent crawls here."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, features)) * np.logspace(0, 2, features)
    truth = rng.normal(size=features) / np.logspace(0, 2, features)
    y = rng.uniform(size=samples) < 1 / (1 + np.exp(-x @ truth))
    return aj.tensor(x), aj.tensor(y.astype(np.float64))


def conjugate_gradients(multiply: Product, b: aj.Tensor, tolerance: float, most: int) -> tuple[aj.Tensor, int]:
    """Solve ``A s = b`` for a positive definite ``A`` given as ``multiply``: the solution, the number of products."""
    s, r = aj.zeros_like(b), b.clone()
    p, rr = r.clone(), float(r @ r)
    for count in range(1, most + 1):
        ap = multiply(p)
        alpha = rr / float(p @ ap)
        s, r = s + alpha * p, r - alpha * ap
        before, rr = rr, float(r @ r)
        if rr**0.5 <= tolerance:
            return s, count
        p = r + rr / before * p
    return s, most


@program("Newton-CG with Hessian-vector products")
def main(o: Namespace) -> list[float]:
    samples, features = (200, 8) if o.small else (20_000, 50)
    x, y = problem(samples, features)

    def loss(w: aj.Tensor) -> aj.Tensor:
        return F.binary_cross_entropy_with_logits(x @ w, y) + 0.5 * PENALTY * (w * w).sum()

    def value_and_gradient(w: aj.Tensor) -> tuple[aj.Tensor, aj.Tensor]:
        value = loss(w)
        (gradient,) = aj.autograd.grad(value, (w,))
        return value.detach(), gradient

    def hessian_product(w: aj.Tensor, v: aj.Tensor) -> aj.Tensor:
        (gradient,) = aj.autograd.grad(loss(w), (w,), create_graph=True)
        (product,) = aj.autograd.grad(gradient @ v, (w,))
        return product

    if not o.eager:
        value_and_gradient, hessian_product = aj.jit(value_and_gradient), aj.jit(hessian_product)
    w = aj.zeros(features, dtype=aj.float64, requires_grad=True)
    multiply = partial(hessian_product, w)  # w is updated in place
    start = time.perf_counter()
    losses, products = [], 0
    for number in range(30):
        value, gradient = value_and_gradient(w)
        losses.append(value.item())
        size = float(gradient.norm())
        print(f"iteration {number:2d}  loss {losses[-1]:.10f}  |gradient| {size:.1e}  {products} Hessian products")
        if size <= TOLERANCE:
            break
        forcing = min(0.5, size**0.5) * size  # solve each system only as well as its point deserves
        step, used = conjugate_gradients(multiply, -gradient, forcing, most=4 * features)
        products += used
        with aj.no_grad():
            scale = 1.0
            while float(loss(w + scale * step)) > losses[-1] + 1e-4 * scale * float(gradient @ step) and scale > 1e-6:
                scale /= 2
            w.add_(scale * step)
    print(f"{products} Hessian products in {time.perf_counter() - start:.2f} s")
    assert size <= TOLERANCE
    return losses


if __name__ == "__main__":
    main()
