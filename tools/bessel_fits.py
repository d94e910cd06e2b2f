"""The fits of `codegen/bessel_functions.py`: near zero entire functions of x^2/4, far out what asymptotics leave over.

Positions are those of the functions: z = x^2/4 for I and K, z less its middle for J and Y; far out a multiple of 1/x
(I, K) or 1/x^2 (J, Y), shifted to [-1, 1].
"""

from __future__ import annotations

import mpmath as mp

from tools.minimax import Fit, Function

SPLIT = mp.mpf(8)  # of I, J and Y
K_SPLIT = mp.mpf(2)
MIDDLE = SPLIT**2 / 8  # of z, for J and Y
LEAST = mp.mpf(2) ** -73  # nearer to zero the limits stand for the functions; exact at any precision
FAR = mp.mpf(300)  # beyond, the asymptotic series of I and K are exact
OSCILLATING_FAR = mp.mpf(4000)  # beyond, three terms of P and Q are


def bessel_fits() -> list[Fit]:
    return [fit for order in (0, 1) for fit in (*_modified(order), *_oscillating(order))]


def _of_z(function: Function) -> Function:
    """A function of x, x > 0, as one of z = x^2/4."""
    return lambda z: function(2 * mp.sqrt(max(mp.mpf(z), LEAST)))


def _one(x: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def _asymptotic(order: int, sign: int, x: mp.mpf) -> mp.mpf:
    """The sum of (sign)^k a_k / x^k of DLMF 10.40.1 and 10.40.2."""
    term = total = mp.mpf(1)
    for k in range(1, 14):
        term *= sign * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        total += term
    return total


def _modified(order: int) -> list[Fit]:
    """I near, as I0 or 2/x I1; I far; K near without its logarithm and pole; K far."""

    def i_near(x: mp.mpf) -> mp.mpf:
        return mp.besseli(order, x) / (x / 2) ** order

    def k_near(x: mp.mpf) -> mp.mpf:
        if order == 0:
            return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)
        return (mp.besselk(1, x) - 1 / x - mp.log(x / 2) * mp.besseli(1, x)) / x

    def i_far(w: mp.mpf) -> mp.mpf:
        x = 2 * SPLIT / (w + 1) if w > -1 else mp.inf
        if x > FAR:
            return _asymptotic(order, -1, x) / mp.sqrt(2 * mp.pi)
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)

    def k_far(w: mp.mpf) -> mp.mpf:
        x = 2 * K_SPLIT / (w + 1) if w > -1 else mp.inf
        if x > FAR:
            return _asymptotic(order, 1, x) * mp.sqrt(mp.pi / 2)
        return mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)

    one = mp.mpf(1)
    i_of_z = _of_z(i_near)
    return [
        Fit(f"I{order}_NEAR", "f64", i_of_z, mp.mpf(0), SPLIT**2 / 4, 15, lambda z: 1 / i_of_z(z)),
        Fit(f"I{order}_FAR", "f64", i_far, -one, one, 23, _one),
        Fit(f"K{order}_NEAR", "f64", _of_z(k_near), mp.mpf(0), K_SPLIT**2 / 4, 9, _one),
        Fit(f"K{order}_FAR", "f64", k_far, -one, one, 23, _one),
    ]


def _oscillating(order: int) -> list[Fit]:
    """J near, as J0 or J1/x; Y near without its logarithm and pole; the modulus' parts P and x Q far out."""

    def j_near(x: mp.mpf) -> mp.mpf:
        return mp.besselj(order, x) / x**order

    def y_near(x: mp.mpf) -> mp.mpf:
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x

    def shifted(function: Function) -> Function:
        return lambda u: _of_z(function)(u + MIDDLE)

    def parts(w: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
        x = SPLIT * mp.sqrt(2 / (w + 1)) if w > -1 else mp.inf
        if x > OSCILLATING_FAR:
            factors = [(4 * order**2 - (2 * k - 1) ** 2) / mp.mpf(8 * k) for k in range(1, 6)]
            a = [mp.fprod(factors[:k]) for k in range(6)]
            return 1 - a[2] / x**2 + a[4] / x**4, a[1] - a[3] / x**2 + a[5] / x**4
        phase = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        amplitude = mp.sqrt(mp.pi * x / 2)
        cosine, sine = mp.cos(phase), mp.sin(phase)
        return amplitude * (j * cosine + y * sine), x * amplitude * (y * cosine - j * sine)

    one = mp.mpf(1)
    return [
        Fit(f"J{order}_NEAR", "f64", shifted(j_near), -MIDDLE, MIDDLE, 15, _one),
        Fit(f"Y{order}_NEAR", "f64", shifted(y_near), -MIDDLE, MIDDLE, 15, _one),
        Fit(f"P{order}_FAR", "f64", lambda w: parts(w)[0], -one, one, 11, _one),
        Fit(f"Q{order}_FAR", "f64", lambda w: parts(w)[1], -one, one, 12, _one),
    ]
