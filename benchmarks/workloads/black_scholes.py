"""Black-Scholes price of 4 million calls with delta, vega and, by double backward, gamma: long pointwise work."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workloads.problem import Array, Function, Namespace, Work, leaf, on_host

OPTIONS = 4_000_000
RATE = 0.03
SQRT_HALF = float(np.sqrt(0.5))


def data() -> list[Array]:
    """Spot, strike, time to expiry in years, volatility."""
    rng = np.random.default_rng(0)
    ranges = [(50, 150), (50, 150), (0.1, 2.0), (0.1, 0.5)]
    return [rng.uniform(low, high, OPTIONS).astype(np.float32) for low, high in ranges]


def work() -> Work:
    """Four arrays read, four written."""
    return Work(bytes=8 * 4 * OPTIONS)


def check(outputs: Any) -> dict[str, float]:
    names = ("price", "delta", "vega", "gamma")
    return {name: float(on_host(values).mean()) for name, values in zip(names, outputs, strict=True)}


def price(m: Any, erf: Any, spot: Any, strike: Any, expiry: Any, volatility: Any) -> Any:
    """The closed form, written on any namespace ``m`` with ``sqrt``, ``log`` and ``exp``."""
    spread = volatility * m.sqrt(expiry)
    d1 = (m.log(spot / strike) + (RATE + 0.5 * volatility * volatility) * expiry) / spread
    d2 = d1 - spread
    n1 = 0.5 * (1 + erf(d1 * SQRT_HALF))
    n2 = 0.5 * (1 + erf(d2 * SQRT_HALF))
    return spot * n1 - strike * m.exp(-RATE * expiry) * n2


def build(T: Namespace) -> Function:
    grad = T.autograd.grad

    def step(spot: Any, strike: Any, expiry: Any, volatility: Any) -> Any:
        value = price(T, T.erf, spot, strike, expiry, volatility)
        delta, vega = grad(value.sum(), (spot, volatility), create_graph=True)
        (gamma,) = grad(delta.sum(), (spot,))
        return value.detach(), delta.detach(), vega.detach(), gamma

    spot, strike, expiry, volatility = data()
    return Function(step, (leaf(T, spot), T.tensor(strike), T.tensor(expiry), leaf(T, volatility)), check)


def build_jax() -> Function:
    import jax
    import jax.numpy as jnp

    def step(spot: Any, strike: Any, expiry: Any, volatility: Any) -> Any:
        def total(spot: Any, volatility: Any) -> Any:
            value = price(jnp, jax.lax.erf, spot, strike, expiry, volatility)
            return value.sum(), value

        def total_delta(spot: Any) -> Any:
            (_, value), (delta, vega) = jax.value_and_grad(total, (0, 1), has_aux=True)(spot, volatility)
            return delta.sum(), (value, delta, vega)

        (_, greeks), gamma = jax.value_and_grad(total_delta, has_aux=True)(spot)
        return (*greeks, gamma)

    return Function(step, tuple(data()), check)
