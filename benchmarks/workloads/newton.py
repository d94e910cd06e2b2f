"""Implied volatility of a million calls: six Newton steps, the slope by reverse mode at each, float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.black_scholes import price
from benchmarks.workloads.problem import Array, Function, Namespace, Work, on_host

OPTIONS, STEPS, START = 1_000_000, 6, 0.3
Market = tuple[Array, Array, Array, Array]


def data() -> Market:
    """Spot, strike, time to expiry, quoted price: a tenth of spot above the value at once, so a volatility exists."""
    rng = np.random.default_rng(0)
    spot = rng.uniform(90, 110, OPTIONS)
    strike = rng.uniform(90, 110, OPTIONS)
    expiry = rng.uniform(0.5, 2.0, OPTIONS)
    return spot, strike, expiry, np.maximum(spot - strike, 0) + 0.1 * spot


def work() -> Work:
    """Four arrays read, one written."""
    return Work(bytes=5 * 8 * OPTIONS, dtype="float64")


def check(outputs: Any) -> dict[str, float]:
    return {"volatility": float(on_host(outputs).mean())}


def build(T: Namespace) -> Function:
    def step(spot: Any, strike: Any, expiry: Any, quote: Any) -> Any:
        volatility = T.full_like(spot, START)
        for _ in range(STEPS):
            volatility = volatility.detach().requires_grad_(True)
            value = price(T, T.erf, spot, strike, expiry, volatility)
            (slope,) = T.autograd.grad(value.sum(), (volatility,))
            volatility = volatility - (value - quote) / slope
        return volatility.detach()

    return Function(step, tuple(map(T.tensor, data())), check)


def build_jax() -> Function:
    import jax
    import jax.numpy as jnp

    def step(spot: Any, strike: Any, expiry: Any, quote: Any) -> Any:
        def total(volatility: Any) -> Any:
            value = price(jnp, jax.lax.erf, spot, strike, expiry, volatility)
            return value.sum(), value

        volatility = jnp.full_like(spot, START)
        for _ in range(STEPS):
            (_, value), slope = jax.value_and_grad(total, has_aux=True)(volatility)
            volatility = volatility - (value - quote) / slope
        return volatility

    return Function(step, data(), check, x64=True)
