"""Counts drawn from Poisson and binomial distributions, as pure functions of random numbers.

A mean below 10 is drawn by inversion: the count is how many values of the distribution function, of 64, a uniform
number exceeds (beyond them is less than 1e-25). Larger ones by transformed rejection (Hoermann, "The transformed
rejection method for generating Poisson random variables", 1993, and "The generation of binomial random variates",
J. Stat. Comput. Simul. 46, 1993): the first of 24 proposals that is accepted; at least three in four are, so
none is in fewer than one of 10^14 numbers, which then is the mean rounded.
"""

from __future__ import annotations

from collections.abc import Callable

from autojit.core.dtypes import float64
from autojit.distributions.gamma_sampling import first_accepted
from autojit.functions.comparison import clamp, minimum, where
from autojit.functions.elementwise import abs as absolute
from autojit.functions.elementwise import exp, floor, log, log1p, sqrt, xlogy
from autojit.functions.factories import arange
from autojit.functions.order import cumsum
from autojit.functions.random import Generator, rand
from autojit.functions.special import lgamma
from autojit.tensor.tensor import Tensor

LogProbability = Callable[[Tensor], Tensor]

_SMALL_MEAN = 10.0
_COUNTS = 64
_PROPOSALS = 24


def _by_inversion(like: Tensor, log_probability: LogProbability, generator: Generator | None) -> Tensor:
    """Counts in the shape and on the device of a tensor."""
    shape = like.shape
    counts = arange(_COUNTS, dtype=float64, device=like.device).reshape(-1, *[1] * len(shape))
    below = cumsum(exp(log_probability(counts)), 0)
    return (rand(shape, dtype=float64, device=like.device, generator=generator) > below).to(float64).sum(0)


def _by_rejection(
    centre: Tensor, hat: tuple[Tensor, Tensor, Tensor], log_ratio: LogProbability, generator: Generator | None
) -> Tensor:
    """Hoermann's hat, ``(2 a / (1/2 - |u|) + b) u + centre``; ``log_ratio`` is the target's logarithm."""
    a, b, log_height = hat
    shape = (_PROPOSALS, *centre.shape)
    u = rand(shape, dtype=float64, generator=generator, device=centre.device) - 0.5
    room = clamp(0.5 - absolute(u), min=1e-12)
    count = floor((2 * a / room + b) * u + centre)
    v = rand(shape, dtype=float64, generator=generator, device=centre.device)
    level = log1p(-v) + log_height - log(a / room**2 + b)
    return first_accepted(count, level <= log_ratio(count), floor(centre))


def poisson_counts(rate: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers. Shape and dtype of ``rate``.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.count_sampling import poisson_counts
        >>> poisson_counts(aj.zeros(2))
        tensor([0., 0.])
    """
    mean = rate.to(float64)
    small = clamp(mean, max=_SMALL_MEAN)
    few = _by_inversion(mean, lambda k: xlogy(k, small) - small - lgamma(k + 1), generator)
    large = clamp(mean, min=_SMALL_MEAN)
    b = 0.931 + 2.53 * sqrt(large)
    a = -0.059 + 0.02483 * b
    log_height = log(1.1239 + 1.1328 / (b - 3.4))

    def log_probability(k: Tensor) -> Tensor:
        kept = clamp(k, min=0)
        return where(k < 0, float("-inf"), kept * log(large) - large - lgamma(kept + 1))

    many = _by_rejection(large + 0.43, (a, b, log_height), log_probability, generator)
    return where(mean < _SMALL_MEAN, few, many).to(rate.dtype)


def binomial_counts(total_count: Tensor, probs: Tensor, generator: Generator | None = None) -> Tensor:
    """Binomial numbers. Shapes: equal; dtype of ``probs``.

    Example:
        >>> import autojit as aj
        >>> from autojit.distributions.count_sampling import binomial_counts
        >>> binomial_counts(aj.tensor([3.0, 4.0]), aj.tensor([0.0, 1.0]))
        tensor([0., 4.])
    """
    n, p = total_count.to(float64), probs.to(float64)
    rare = minimum(p, 1 - p)
    is_small = n * rare < _SMALL_MEAN
    low = where(is_small, rare, _SMALL_MEAN / clamp(n, min=20.0))
    few = _by_inversion(n, _log_binomial(n, low), generator)
    many = _many_successes(where(is_small, 40.0, n), where(is_small, 0.5, rare), generator)
    count = where(is_small, few, many)
    return where(p > 0.5, n - count, count).to(probs.dtype)


def _many_successes(n: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    spread = sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    log_height = log((2.83 + 5.1 / b) * spread)
    log_probability = _log_binomial(n, p)
    highest = log_probability(floor((n + 1) * p))
    return _by_rejection(n * p + 0.5, (a, b, log_height), lambda k: log_probability(k) - highest, generator)


def _log_binomial(n: Tensor, p: Tensor) -> LogProbability:
    def log_probability(k: Tensor) -> Tensor:
        kept = minimum(clamp(k, min=0), n)
        choices = lgamma(n + 1) - lgamma(kept + 1) - lgamma(n - kept + 1)
        found = choices + xlogy(kept, p) + (n - kept) * log1p(-p)
        return where((k < 0) | (k > n), float("-inf"), found)

    return log_probability
