"""Random positions: permutations and draws in proportion to weights."""

from __future__ import annotations

from autojit.core.dtypes import float64, int64
from autojit.core.errors import ShapeError
from autojit.ir.op import O
from autojit.ops.by_name import apply
from autojit.ops.joining import select
from autojit.ops.random import exponential_of, random_bits, sixty_four, uniform
from autojit.ops.scans import cumsum
from autojit.ops.shape import broadcast_to, reshape
from autojit.ops.sorting import searchsorted, sort, topk

__all__ = ["chosen", "multinomial", "randperm", "words_per_place"]


def randperm(key: O, count: int) -> O:
    """A permutation of 0, 1, .., count - 1: the order of random numbers, which nearly all differ.

    Of ``words_per_place(count)`` words each; equal ones keep their order, a bias of 2**-33 per pair at most.
    """
    if words_per_place(count) == 1:
        return sort(random_bits(key, (count,)), 0, stable=True)[1]
    return sort(apply("cast", sixty_four(random_bits(key, (count, 2))), dtype=int64), 0, stable=True)[1]


def words_per_place(count: int) -> int:
    """32-bit words behind one element of a permutation."""
    return 1 if count <= 1 << 24 else 2


def multinomial(key: O, weights: O, count: int, replacement: bool = False) -> O:
    """Positions drawn in proportion to ``weights`` along the last axis: ``f[..., n] -> i64[..., count]``.

    Without replacement an exponential race is run: the ``count`` largest of ``weight / e`` win. With it, uniform
    numbers are looked up in the running sums.

    Raises:
        ShapeError: ``count`` exceeds the positions and replacement is off, or the rank is not 1 or 2.
    """
    shape = weights.spec.shape
    return chosen(uniform(key, (*shape[:-1], count) if replacement else shape, float64), weights, count, replacement)


def chosen(drawn: O, weights: O, count: int, replacement: bool) -> O:
    """See `multinomial`; ``drawn`` are uniform float64 numbers: one a position or, with replacement, one a sample."""
    shape = weights.spec.shape
    if weights.spec.ndim not in (1, 2):
        raise ShapeError("prob_dist must be 1 or 2 dim", {"weights": weights})
    if count > shape[-1] and not replacement:
        raise ShapeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement", {"weights": weights}
        )
    wide = weights if weights.spec.dtype is float64 else apply("cast", weights, dtype=float64)
    if not replacement:
        race = apply("div", wide, exponential_of(drawn, float64))
        return topk(race, count, -1, largest=True)[1]
    sums = cumsum(wide, -1)
    total = select(sums, -1, shape[-1] - 1)
    scaled = apply("mul", drawn, broadcast_to(reshape(total, (*shape[:-1], 1)), drawn.spec.shape))
    return searchsorted(sums, scaled, right=True)
