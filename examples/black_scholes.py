"""Prices of European calls with their Greeks: derivatives of the price by reverse mode, gamma by differentiating twice.

    python examples/black_scholes.py [--options N] [--small] [--eager] [--device DEVICE]

One compiled call, which reads every input once, returns price, delta, vega, theta, rho, gamma and vanna. They are
compared with their closed forms.
"""

from __future__ import annotations

import timeit
from argparse import Namespace
from math import pi, sqrt

import numpy as np
from _setup import program

import autojit as aj

Prices = dict[str, aj.Tensor]


def normal_cdf(x: aj.Tensor) -> aj.Tensor:
    return 0.5 * (1 + aj.erf(x / sqrt(2)))


def d1(spot: aj.Tensor, strike: aj.Tensor, expiry: aj.Tensor, volatility: aj.Tensor, rate: aj.Tensor) -> aj.Tensor:
    spread = volatility * aj.sqrt(expiry)
    return (aj.log(spot / strike) + (rate + 0.5 * volatility**2) * expiry) / spread


def call_price(
    spot: aj.Tensor, strike: aj.Tensor, expiry: aj.Tensor, volatility: aj.Tensor, rate: aj.Tensor
) -> aj.Tensor:
    first = d1(spot, strike, expiry, volatility, rate)
    second = first - volatility * aj.sqrt(expiry)
    return spot * normal_cdf(first) - strike * aj.exp(-rate * expiry) * normal_cdf(second)


def greeks(spot: aj.Tensor, strike: aj.Tensor, expiry: aj.Tensor, volatility: aj.Tensor, rate: aj.Tensor) -> Prices:
    """Every option is its own problem, so the gradient of the sum holds each one's derivative."""
    price = call_price(spot, strike, expiry, volatility, rate)
    delta, aging, vega, rho = aj.autograd.grad(price.sum(), (spot, expiry, volatility, rate), create_graph=True)
    gamma, vanna = aj.autograd.grad(delta.sum(), (spot, volatility))
    found = {"price": price, "delta": delta, "theta": -aging, "vega": vega, "rho": rho, "gamma": gamma, "vanna": vanna}
    return {name: value.detach() for name, value in found.items()}


def closed_forms(
    spot: aj.Tensor, strike: aj.Tensor, expiry: aj.Tensor, volatility: aj.Tensor, rate: aj.Tensor
) -> Prices:
    first = d1(spot, strike, expiry, volatility, rate)
    spread = volatility * aj.sqrt(expiry)
    density = aj.exp(-0.5 * first**2) / sqrt(2 * pi)
    discounted = strike * aj.exp(-rate * expiry) * normal_cdf(first - spread)
    return {
        "delta": normal_cdf(first),
        "theta": -spot * density * volatility / (2 * aj.sqrt(expiry)) - rate * discounted,
        "vega": spot * density * aj.sqrt(expiry),
        "rho": expiry * discounted,
        "gamma": density / (spot * spread),
        "vanna": -density * (first - spread) / volatility,
    }


@program("Black-Scholes prices and Greeks", options={"type": int, "help": "how many options"})
def main(o: Namespace) -> list[float]:
    count = o.options or (1_000 if o.small else 1_000_000)

    rng = np.random.default_rng(0)
    ranges = {"spot": (50, 150), "strike": (50, 150), "expiry": (0.1, 2), "volatility": (0.1, 0.5), "rate": (0, 0.05)}
    market = [aj.tensor(rng.uniform(low, high, count), requires_grad=True) for low, high in ranges.values()]
    run = greeks if o.eager else aj.jit(greeks)
    found = run(*market)
    elapsed_s = min(timeit.repeat(lambda: run(*market), number=1, repeat=5))
    print(f"{count} options in {elapsed_s * 1e3:.2f} ms: {count / elapsed_s / 1e6:.1f} million a second")

    with aj.no_grad():
        expected = closed_forms(*market)
    for name, value in found.items():
        print(f"{name:<6} {', '.join(f'{x:10.5f}' for x in value[:4].tolist())}, ...")
    for name, value in expected.items():
        assert aj.allclose(found[name], value, rtol=1e-9, atol=1e-11), name
    print("every Greek agrees with its closed form to 1e-9")
    return [value.sum().item() for value in found.values()]


if __name__ == "__main__":
    main()
