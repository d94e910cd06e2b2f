"""Counter-based random numbers: Philox-4x32-10 bits, and distributions composed of elementwise ops on them.

A *key* is an int64[2] operand ``(seed, offset)``: the state of a generator, so that a compiled step advances it like
any other state. Word ``i`` of a request (row-major) is word ``i % 4`` of the Philox block whose 64-bit counter is
``offset + i // 4``; a request of ``n`` words uses up ``blocks_of(n)`` counters. Any division of the work among threads,
vectors or machines therefore gives the same numbers.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autojit.core.dtypes import DType, bfloat16, float16, float32, float64, int64, uint32, uint64
from autojit.core.errors import ArgumentError, DTypeError, UnsupportedDTypeError
from autojit.core.records import record
from autojit.core.types import Shape, TensorType
from autojit.ir.op import Ndarray, O, Operands, bind, not_differentiable
from autojit.ops.base import Structured
from autojit.ops.elementwise_arithmetic import add, cast, mul, neg, sub
from autojit.ops.elementwise_exponential import log, sqrt
from autojit.ops.elementwise_logic import bitwise_or, lt, shift_left, shift_right
from autojit.ops.elementwise_rounding import remainder
from autojit.ops.elementwise_trigonometric import cos
from autojit.ops.joining import one_by_one, select
from autojit.ops.samples import Samples, positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "RandomBits", "bernoulli", "blocks_of", "exponential", "exponential_of", "happened", "normal", "philox", "randint",
    "random_bits", "spread_over", "uniform", "words_per_normal", "words_per_uniform",
]  # fmt: skip

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BITS = {float32: 24, float16: 11, bfloat16: 8}  # significand bits: every multiple of 2**-bits in [0, 1) is exact


def blocks_of(words: int) -> int:
    """How many counters a request of ``words`` 32-bit words uses up."""
    return -(-words // 4)


def philox(counter: NDArray[np.uint64], seed: int) -> NDArray[np.uint32]:
    """The four words of each 64-bit counter: uint64[n] -> uint32[n, 4]; counter words 2 and 3 are zero."""
    c0, c1 = counter & _LOW, counter >> _HALF
    c2 = np.zeros_like(c0)
    c3 = np.zeros_like(c0)
    keys = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(_ROUNDS):
        product0, product2 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product2 >> _HALF) ^ c1 ^ np.uint64(keys[0]),
            product2 & _LOW,
            (product0 >> _HALF) ^ c3 ^ np.uint64(keys[1]),
            product0 & _LOW,
        )
        keys = [(key + weyl) & 0xFFFFFFFF for key, weyl in zip(keys, _WEYL, strict=True)]
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


@record
class RandomBits(Structured):
    """uint32 words of a shape from a key ``(seed, offset)``; a function of the key, so equal requests agree."""

    is_random: ClassVar[bool] = True
    shape: Shape

    def result_type(self, key: TensorType) -> TensorType:
        if key.shape != (2,) or key.dtype is not int64:
            raise DTypeError("random_bits: a key is int64[2]: (seed, offset)", {"key": key})
        return TensorType(self.shape, uint32, key.device)

    def eager(self, key: Ndarray) -> Ndarray:
        words = prod(self.shape)
        seed, offset = int(key[0]), int(key[1])
        counter = np.arange(blocks_of(words), dtype=np.uint64) + np.uint64(offset & 0xFFFFFFFFFFFFFFFF)
        return philox(counter, seed).reshape(-1)[:words].reshape(self.shape)

    vjp = jvp = not_differentiable("random bits do not depend on their key smoothly")

    def batch(self, args: Operands, batched: tuple[bool, ...]) -> Any:
        return one_by_one(self, args, batched)

    @staticmethod
    def samples(dtype: DType) -> Samples:
        if dtype is not int64:
            return []
        return [
            (RandomBits((3, 5)), (positions([42, 0]),)),
            (RandomBits((7,)), (positions([-1, 2**33]),)),
            (RandomBits((0,)), (positions([1, 2]),)),
        ]


def random_bits(key: O, shape: Sequence[int]) -> O:
    """uint32 words, uniformly distributed."""
    return bind(RandomBits(tuple(shape)), key)


def words_per_uniform(dtype: DType) -> int:
    """32-bit words behind one uniform number: 2 for float64, else 1."""
    return 2 if dtype is float64 else 1


def words_per_normal(dtype: DType) -> int:
    """32-bit words behind one normal number: two uniform ones (Box-Muller; halves are computed in float32)."""
    return 4 if dtype is float64 else 2


def uniform(key: O, shape: Sequence[int], dtype: DType = float32) -> O:
    """Uniform numbers in [0, 1): all multiples of 2**-53 (float64), 2**-24 (float32), 2**-11, 2**-8 (halves)."""
    if dtype is float64:
        return _unit(random_bits(key, (*shape, 2)), dtype)
    return _unit(random_bits(key, shape), dtype)


def _unit(bits: O, dtype: DType) -> O:
    """Words to [0, 1); float64 takes its two words from the last axis: 27 high bits and 26 low ones."""
    if dtype is float64:
        high = cast(shift_right(select(bits, -1, 0), 5), float64)
        low = cast(shift_right(select(bits, -1, 1), 6), float64)
        return mul(add(mul(high, 2.0**26), low), 2.0**-53)
    if dtype not in _BITS:
        raise UnsupportedDTypeError(f'"uniform" not implemented for {dtype}')
    count = _BITS[dtype]
    return cast(mul(cast(shift_right(bits, 32 - count), float32), 2.0**-count), dtype)


def normal(key: O, shape: Sequence[int], dtype: DType = float32) -> O:
    """Standard normal numbers by Box and Muller: element i from uniform numbers 2i and 2i + 1."""
    wide = dtype if dtype is float64 else float32
    if dtype not in (*_BITS, float64):
        raise UnsupportedDTypeError(f'"normal" not implemented for {dtype}')
    both = _unit(random_bits(key, (*shape, 2, 2) if wide is float64 else (*shape, 2)), wide)
    # 1 - u is in (0, 1], so that the logarithm is finite
    radius = sqrt(mul(log(sub(1, select(both, -1, 0))), -2.0))
    angle = mul(select(both, -1, 1), 2 * pi)
    return cast(mul(radius, cos(angle)), dtype)


def exponential(key: O, shape: Sequence[int], dtype: DType = float32) -> O:
    """Exponential numbers of rate 1: ``-log(1 - u)``."""
    return exponential_of(uniform(key, shape, dtype if dtype is float64 else float32), dtype)


def exponential_of(drawn: O, dtype: DType) -> O:
    """Exponential numbers of rate 1 from uniform ones."""
    return cast(neg(log(sub(1, drawn))), dtype)


def bernoulli(key: O, probability: O) -> O:
    """True with the given probability, per element: compared in float32 or float64."""
    dtype = float64 if probability.spec.dtype is float64 else float32
    return happened(uniform(key, probability.spec.shape, dtype), probability)


def happened(drawn: O, probability: O) -> O:
    """Whether what has these probabilities has happened, of uniform numbers of float32 or float64."""
    return lt(drawn, cast(probability, drawn.spec.dtype))


def randint(key: O, low: int, high: int, shape: Sequence[int], dtype: DType = int64) -> O:
    """Integers in [low, high): multiply-shift of 32 bits for spans up to 2**32, else 64 bits modulo the span.

    The bias is below span / 2**32 (or / 2**64). Uses 1 (or 2) words per number.

    Raises:
        ArgumentError: the span is empty.
    """
    span = high - low
    if span <= 0:
        raise ArgumentError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if span <= 2**32:
        return cast(spread_over(random_bits(key, shape), low, span), dtype)
    wide = sixty_four(random_bits(key, (*shape, 2)))
    drawn = remainder(wide, span) if span < 2**64 else wide
    return cast(add(cast(drawn, int64), low), dtype)


def spread_over(bits: O, low: Any, span: Any) -> O:
    """Words as integers from ``low`` on, below ``low + span``."""
    found: O = add(cast(shift_right(mul(cast(bits, uint64), span), 32), int64), low)
    return found


def sixty_four(bits: O) -> O:
    """Two words on the last axis joined to one uint64."""
    high = cast(select(bits, -1, 0), uint64)
    low = cast(select(bits, -1, 1), uint64)
    return bitwise_or(shift_left(high, 32), low)
