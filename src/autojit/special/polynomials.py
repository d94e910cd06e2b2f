"""Orthogonal polynomials of a degree, by their three-term recurrences: differentiable, and fused in compiled steps.

``n`` is a number, or a tensor of degrees, whose greatest one is read; fractions are cut off. Negative degrees give
0, as in torch, and so do infinite ones, NaN and all from 2 ** 63. The rounding error grows with the degree, linearly
inside the interval of orthogonality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from autojit.core.wrapping import named
from autojit.dispatch.promotion import floating, floating_together, refuse_numbers
from autojit.functions.comparison import where
from autojit.functions.factories import ones_like
from autojit.functions.out_arguments import with_out
from autojit.tensor import Tensor
from autojit.tensor.state import holders, set_layers, state

Next = Callable[[Tensor, int, Tensor, Tensor], Tensor]  # (x, k, p[k], p[k - 1]) to p[k + 1]

_TOO_HIGH = 2.0**63


def _polynomial(name: str, first: Callable[[Tensor], Tensor], follow: Next, doc: str) -> Callable[..., Tensor]:
    def polynomial(input: Any, n: Any) -> Tensor:
        refuse_numbers(f"special_{name}", input, n, ("input", "n"))
        if not isinstance(n, Tensor):
            return _of_degree(floating(input, name), int(n) if abs(n) < _TOO_HIGH else -1)
        x, degrees = floating_together(input, n, name)
        degrees = degrees.detach().trunc()
        degrees = where(degrees.abs() < _TOO_HIGH, degrees, -1.0)
        found = where(degrees.eq(0), ones_like(x), 0.0)
        for degree, value in enumerate(_values(x, _greatest(degrees)), 1):
            found = where(degrees.eq(degree), value, found)
        return found

    def _of_degree(x: Tensor, n: int) -> Tensor:
        if n < 1:
            return ones_like(x) if n == 0 else ones_like(x) * 0
        *_, last = _values(x, n)
        return last

    def _values(x: Tensor, most: int) -> Iterator[Tensor]:
        """The polynomials of the degrees from 1 to ``most``."""
        before, now = ones_like(x), first(x)
        for k in range(1, most + 1):
            yield now
            if k < most:
                now, before = follow(x, k, now, before), now

    return with_out(named(polynomial, name, doc))


def _greatest(degrees: Tensor) -> int:
    """The greatest degree, of all elements of a batch."""
    whole, layers = [degrees, *holders(degrees)][-1], state.layers
    set_layers(())
    try:
        return int(whole.max().item()) if whole.numel() else 0
    finally:
        set_layers(layers)


def _chebyshev(kind: str, first: Callable[[Tensor], Tensor]) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The polynomials on [-1, 1] and, shifted, on [0, 1]."""

    def follow(x: Tensor, k: int, now: Tensor, before: Tensor) -> Tensor:
        return 2 * x * now - before

    plain = _polynomial(
        f"chebyshev_polynomial_{kind}", first, follow, f"The Chebyshev polynomial {kind.upper()} of degree ``n``."
    )
    shifted = _polynomial(
        f"shifted_chebyshev_polynomial_{kind}",
        lambda x: first(2 * x - 1),
        lambda x, k, now, before: follow(2 * x - 1, k, now, before),
        f"The Chebyshev polynomial {kind.upper()} of degree ``n`` at ``2 x - 1``.",
    )
    return plain, shifted


chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _chebyshev("t", lambda x: x * 1)
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _chebyshev("u", lambda x: 2 * x)
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _chebyshev("v", lambda x: 2 * x - 1)
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _chebyshev("w", lambda x: 2 * x + 1)
hermite_polynomial_h = _polynomial(
    "hermite_polynomial_h",
    lambda x: 2 * x,
    lambda x, k, now, before: 2 * (x * now - k * before),
    "The physicists' Hermite polynomial of degree ``n``.",
)
hermite_polynomial_he = _polynomial(
    "hermite_polynomial_he",
    lambda x: x * 1,
    lambda x, k, now, before: x * now - k * before,
    "The probabilists' Hermite polynomial of degree ``n``.",
)
laguerre_polynomial_l = _polynomial(
    "laguerre_polynomial_l",
    lambda x: 1 - x,
    lambda x, k, now, before: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    "The Laguerre polynomial of degree ``n``.",
)
legendre_polynomial_p = _polynomial(
    "legendre_polynomial_p",
    lambda x: x * 1,
    lambda x, k, now, before: ((2 * k + 1) * x * now - k * before) / (k + 1),
    "The Legendre polynomial of degree ``n``.",
)

__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip
